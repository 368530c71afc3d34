"""Optimizer updates with gradient accumulation.

An update runs `gradient_accumulation_steps` passes, one at a time on each
replica. The sum of all gradients is divided by the number of real target
tokens, and dropout is seeded per micro-batch. So the number of replicas changes
the result only by the order of the float additions.

An update of one pass on one replica uses no accumulators, because they take as
much memory as the model.
"""

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from t2t_lite.data.packing import feature_names
from t2t_lite.hparam import HParams
from t2t_lite.training import optimizers
from t2t_lite.training.distribute import splits_cores
from t2t_lite.training.schedules import training_rate


class UpdateStats(NamedTuple):
    """Results of an update, summed over its micro-batches.

    Except `learning_rate` and `positions` they are tensors until `read`.
    """

    learning_rate: float
    loss_sum: float  # smoothed cross-entropy, nats
    target_tokens: float  # real tokens, EOS included
    source_tokens: float  # real tokens, EOS included
    gradient_norm: float  # of the gradient per target token, before clipping
    skipped: float  # 1 if a gradient was not finite, else 0
    positions: float  # of both sides, padding included
    wanting_decision: float = 0.0  # number of replicas, see `Updater.update`

    def read(self) -> "UpdateStats":
        """Wait for the device and return the results as numbers."""
        return UpdateStats(*map(float, self))


def dropout_seed(seed: int, update: int, micro_batch: int) -> np.ndarray:
    """Return the dropout seed of a micro-batch, int32 [2]."""
    sequence = np.random.SeedSequence([seed, update, micro_batch])
    return sequence.generate_state(2).view(np.int32)


class Updater:
    """Runs the updates of a model.

    On a CPU a small model computes the two halves of a micro-batch
    concurrently, each on half of the cores. Cores that share an operation wait
    for the slowest core after each of thousands of operations.

    The model has `trainable_variables` and `loss_sum(features, label_smoothing,
    seed)`, and is built within the strategy's scope. The `seed` is for dropout.
    For `freeze` see `optimizers.frozen_paths`.

    `replicas` is the number of devices that share an update, `slices` the
    number of row slices of a micro-batch that run concurrently. Without the
    hparam `ema_decay` there is no `average`.
    """

    def __init__(
        self,
        model: Any,
        hparams: HParams,
        strategy: tf.distribute.Strategy,
        seed: int,
        freeze: Sequence[str] = (),
    ):
        self.hparams, self.strategy = hparams, strategy
        self.replicas: int = strategy.num_replicas_in_sync
        self._model, self._seed = model, seed
        self._names = feature_names(hparams.packing)
        weights = model.trainable_variables
        frozen = optimizers.frozen_paths((v.path for v in weights), freeze)
        trained = [v for v in weights if v.path not in frozen]
        self._paths = [v.path for v in trained]
        self._variables = [v.value for v in trained]
        self.slices = 2 if splits_cores(self.replicas, hparams) else 1
        self._gradients = self._loss_and_gradients
        if self.slices > 1:  # both slices share one graph, without inlining
            self._gradients = tf.function(
                self._loss_and_gradients,
                autograph=False,
                experimental_attributes={"_noinline": True},
            )
        with strategy.scope():
            self.optimizer = optimizers.make_optimizer(hparams, self._variables)
            self.average = (
                optimizers.MovingAverage(self._variables, hparams.ema_decay)
                if hparams.ema_decay
                else None
            )
            # Sums of each replica: counts, then gradients; none for one pass.
            passes = max(hparams.gradient_accumulation_steps, self.replicas)
            shapes = [[3], *(v.shape for v in self._variables)]
            self._sums = [
                tf.Variable(
                    tf.zeros(shape),
                    trainable=False,
                    synchronization=tf.VariableSynchronization.ON_READ,
                    aggregation=tf.VariableAggregation.SUM,
                )
                for shape in (shapes if passes > 1 else [])
            ]
        # The global indices of the replicas of this process.
        distribute = strategy.experimental_distribute_values_from_function
        indices = strategy.experimental_local_results(
            distribute(lambda context: context.replica_id_in_sync_group)
        )
        self._local_replicas = range(indices[0], indices[-1] + 1)
        rows = tf.TensorSpec([None, None], tf.int32)
        seeds = tf.TensorSpec([2 if self.slices == 1 else 3], tf.int32)
        features = dict.fromkeys(self._names, rows) | {"seed": seeds}
        slices = [features] * self.slices
        number = tf.TensorSpec([], tf.float32)
        self._update_single = self._graph(self._pass_and_apply, slices, number)
        self._accumulate = _graph(
            self._accumulate_all, [slices] * len(self._local_replicas)
        )
        self._apply_sums = self._graph(self._apply_and_reset, number, number)

    def _graph(self, function, *signature):
        """Return a graph that runs a function on all replicas.

        It returns the result of the first replica; all results are equal.
        """
        strategy = self.strategy
        return _graph(
            lambda *args: strategy.experimental_local_results(
                strategy.run(function, args=args)
            )[0],
            *signature,
        )

    def tensors(self) -> dict[str, tf.Variable]:
        """Return the optimizer's state by name, for checkpoints."""
        return self.optimizer.tensors(self._paths)

    @property
    def trained_parameters(self) -> int:
        """The number of parameters that are not frozen."""
        return sum(math.prod(v.shape) for v in self._variables)

    def averages(self) -> dict[str, tf.Variable]:
        """Return the moving average of each trained weight by path."""
        if not self.average:
            return {}
        return dict(zip(self._paths, self.average.averages, strict=True))

    def update(
        self,
        batches: Sequence[Mapping[str, tf.Tensor]],
        step: int,
        between_passes: Callable[[], None] = lambda: None,
        wants_decision: Callable[[], bool] = lambda: False,
    ) -> UpdateStats:
        """Run one update and return its results without waiting for the device.

        Args:
          batches: micro-batches: dicts of int32 `packing.feature_names`.
          step: the number of the update, for its learning rate and dropout.
          between_passes: called before each pass. If it raises an error, the
            weights are unchanged, and the updater must not be used again.
          wants_decision: called at the end; True requests a common decision of
            all workers to save or to stop.
        """
        passes = self.passes(batches, step)
        concurrent = self.replicas * self.slices
        # Passes without tokens fill up the last round.
        empty = dict.fromkeys(self._names, np.zeros((1, 1), np.int32))
        empty |= {"seed": passes[0]["seed"]}
        passes += [empty] * (-len(passes) % concurrent)
        rate = training_rate(self.hparams, step)
        if not self._sums:
            between_passes()
            sums = self._update_single(passes, rate)
        else:
            for first in range(0, len(passes), concurrent):
                between_passes()
                chunk = passes[first : first + concurrent]
                self._accumulate(
                    [chunk[i :: self.replicas] for i in self._local_replicas]
                )
            sums = self._apply_sums(rate, float(wants_decision()))
        positions = sum(
            math.prod(batch[side].shape)
            for batch in batches
            for side in ("inputs", "targets")
        )
        return UpdateStats(learning_rate=rate, positions=positions, **sums)

    def passes(
        self, batches: Sequence[Mapping[str, tf.Tensor]], step: int
    ) -> list[dict[str, Any]]:
        """Return the features of each micro-batch, or of its row slices."""
        passes = []
        for index, batch in enumerate(batches):
            seed = dropout_seed(self._seed, step, index)
            features = {name: batch[name] for name in self._names}
            if self.slices == 1:
                passes.append(features | {"seed": seed})
                continue
            rows = batch["inputs"].shape[0]
            size = -(-rows // self.slices)
            for start in range(0, rows, size):
                rows_of = slice(start, start + size)
                sliced = {name: x[rows_of] for name, x in features.items()}
                sliced["seed"] = np.array([*seed, start], np.int32)
                passes.append(sliced)
        return passes

    def _loss_and_gradients(self, features):
        """Return [loss_sum, target_tokens, source_tokens], and gradients."""
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(self._variables)
            loss, tokens = self._model.loss_sum(
                {name: features[name] for name in self._names},
                label_smoothing=self.hparams.label_smoothing,
                seed=features["seed"],
            )
        gradients = tape.gradient(
            loss, self._variables, unconnected_gradients="zero"
        )
        sources = features["inputs"]
        source_tokens = tf.math.count_nonzero(sources, dtype=tf.float32)
        counts = tf.stack([loss, tokens, source_tokens])
        return [counts, *map(tf.convert_to_tensor, gradients)]

    def _pass(self, slices):
        """Return the counts and gradients, summed over the slices."""
        results = zip(*map(self._gradients, slices), strict=True)
        return [functools.reduce(tf.add, values) for values in results]

    def _pass_and_apply(self, slices, learning_rate):
        counts, *gradients = self._pass(slices)
        return self._apply(counts, gradients, learning_rate)

    def _accumulate_all(self, by_replica):
        distribute = self.strategy.experimental_distribute_values_from_function
        first = self._local_replicas.start
        passes = distribute(
            lambda context: by_replica[context.replica_id_in_sync_group - first]
        )
        self.strategy.run(self._accumulate_pass, args=(passes,))

    def _accumulate_pass(self, slices):
        for total, value in zip(self._sums, self._pass(slices), strict=True):
            optimizers.add(total, value)

    def _apply_and_reset(self, learning_rate, wants_decision):
        own = [optimizers.read(v) for v in self._sums]
        totals = [tf.concat([own[0], [wants_decision]], axis=0), *own[1:]]
        if self.replicas > 1:
            context = tf.distribute.get_replica_context()
            totals = context.all_reduce(tf.distribute.ReduceOp.SUM, totals)
        counts, *gradients = totals
        stats = self._apply(counts[:3], gradients, learning_rate)
        for variable, value in zip(self._sums, own, strict=True):
            optimizers.assign(variable, tf.raw_ops.ZerosLike(x=value))
        return {**stats, "wanting_decision": counts[3]}

    def _apply(self, counts, sums, learning_rate):
        """Apply summed gradients if they are finite; return the results."""
        loss_sum, target_tokens, source_tokens = tf.unstack(counts)
        # Stacked, because TensorFlow's graph optimizer takes 0.4 seconds to
        # split a sum made by `add_n`.
        squares = tf.stack([tf.nn.l2_loss(each) for each in sums])
        norm = tf.sqrt(2.0 * tf.reduce_sum(squares))
        norm = tf.math.divide_no_nan(norm, target_tokens)
        # The norm is equal on all replicas. Zeros are applied if it is not
        # finite, because a branch would put each operation into two graphs. An
        # update without tokens, which measures memory, changes nothing either.
        finite = tf.math.is_finite(norm) & (target_tokens > 0)
        divisor = tf.where(finite, target_tokens, 0.0)
        gradients = [tf.math.divide_no_nan(total, divisor) for total in sums]
        if (limit := self.hparams.clip_norm) is not None:
            scale = limit / tf.maximum(tf.where(finite, norm, 0.0), limit)
            gradients = [gradient * scale for gradient in gradients]
        self.optimizer.apply(gradients, learning_rate, finite)
        if self.average:
            self.average.update(self.optimizer.applied, finite)
        return {
            "loss_sum": loss_sum,
            "target_tokens": target_tokens,
            "source_tokens": source_tokens,
            "gradient_norm": norm,
            "skipped": 1.0 - tf.cast(finite, tf.float32),
        }


def _graph(function, *signature):
    # Autograph has nothing to convert here, and its search takes seconds.
    return tf.function(function, input_signature=signature, autograph=False)
