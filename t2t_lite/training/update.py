"""Updates: gradients of several passes, summed, normalized and applied.

An update makes `gradient_accumulation_steps` passes, one at a time on each
replica. The sum of all gradients is divided by the number of real target
tokens. Dropout is seeded per micro-batch. So neither the number of replicas nor
their share of the tokens changes the result, apart from the order in which
floats are added.
Where one pass on one replica is the whole update, nothing is summed: sums take
memory of the size of the model.
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
from t2t_lite.training.devices import computes_halves
from t2t_lite.training.schedules import training_rate


class UpdateStats(NamedTuple):
    """Results of an update; sums are over all its micro-batches.

    All but the learning rate and the positions are tensors until they are read.
    """

    learning_rate: float
    loss_sum: float  # smoothed cross-entropy, nats
    target_tokens: float  # real ones, EOS included
    source_tokens: float
    gradient_norm: float  # of the gradient per target token, unclipped
    skipped: float  # 1 when a gradient was not finite, else 0
    positions: float  # of both sides, padding included
    wanting_decision: float = 0.0  # replicas, see `Updater.update`

    def read(self) -> "UpdateStats":
        """Return the numbers; waits for the device."""
        return UpdateStats(*map(float, self))


def dropout_seed(seed: int, update: int, micro_batch: int) -> np.ndarray:
    """Return the dropout seed of a micro-batch of an update, int32 [2]."""
    sequence = np.random.SeedSequence([seed, update, micro_batch])
    return sequence.generate_state(2).view(np.int32)


class Updater:
    """Trains a model, update by update.

    Small models on a processor make two passes side by side, each on its own
    cores: cores that share an operation wait for the slowest of them after
    each, and there are thousands of operations.

    The model has `trainable_variables` and `loss_sum(features, label_smoothing,
    seed)`, and is built within the strategy's scope. The `seed` is for dropout.
    For `freeze` see `optimizers.frozen_paths`.

    Attributes:
      hparams, strategy: as given.
      replicas: devices that share an update.
      parts: slices of a micro-batch, by rows, that are computed side by side.
      optimizer: of the hparam `optimizer`.
      average: of the weights; None without the hparam `ema_decay`.
    """

    def __init__(
        self,
        model: Any,
        hparams: HParams,
        strategy: tf.distribute.Strategy,
        seed: int,
        freeze: Sequence[str] = (),
    ):
        self.hparams = hparams
        self.strategy = strategy
        self.replicas: int = strategy.num_replicas_in_sync
        self._model, self._seed = model, seed
        self._names = feature_names(hparams.packing)
        weights = model.trainable_variables
        frozen = optimizers.frozen_paths((v.path for v in weights), freeze)
        trained = [v for v in weights if v.path not in frozen]
        self._paths = [v.path for v in trained]
        self._variables = [v.value for v in trained]
        self.parts = 2 if computes_halves(self.replicas, hparams) else 1
        self._gradients = self._of
        if self.parts > 1:  # one graph for both, which is not copied for each
            self._gradients = tf.function(
                self._of,
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
            # Sums on each replica: of the counts, and of each gradient.
            passes = max(hparams.gradient_accumulation_steps, self.replicas)
            self._sums = [
                tf.Variable(
                    tf.zeros(shape),
                    trainable=False,
                    synchronization=tf.VariableSynchronization.ON_READ,
                    aggregation=tf.VariableAggregation.SUM,
                )
                for shape in [[3], *(v.shape for v in self._variables)]
                if passes > 1
            ]
        # The numbers of the replicas of this process.
        distribute = strategy.experimental_distribute_values_from_function
        numbers = strategy.experimental_local_results(
            distribute(lambda context: context.replica_id_in_sync_group)
        )
        self._local_replicas = range(numbers[0], numbers[-1] + 1)
        rows = tf.TensorSpec([None, None], tf.int32)
        seeds = tf.TensorSpec([2 if self.parts == 1 else 3], tf.int32)
        features = dict.fromkeys(self._names, rows) | {"seed": seeds}
        passes = [features] * self.parts
        number = tf.TensorSpec([], tf.float32)
        self._update_alone = self._graph(self._pass_and_apply, passes, number)
        self._accumulate = _graph(
            self._accumulate_all, [passes] * len(self._local_replicas)
        )
        self._apply_sums = self._graph(self._apply_and_clear, number, number)

    def _graph(self, function, *signature):
        """Return a graph of what the replicas compute, which all do alike."""
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
        """The number of parameters that train."""
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
        """Make one update; return its results, which are not waited for.

        Args:
          batches: dicts of int32 `inputs` [b, S] and `targets` [b, T],
            and with the hparam `packing` the other `packing.feature_names`.
          step: the update's number, for its learning rate and dropout.
          between_passes: called before each pass. If it raises, the weights
            are as before, but no other update must be made.
          wants_decision: whether this worker wants all to save or to stop.
        """
        passes = self.passes(batches, step)
        at_once = self.replicas * self.parts
        # Passes without a token, for what has none left to do.
        nothing = dict.fromkeys(self._names, np.zeros((1, 1), np.int32))
        nothing |= {"seed": passes[0]["seed"]}
        passes += [nothing] * (-len(passes) % at_once)
        rate = training_rate(self.hparams, step)
        if not self._sums:
            between_passes()
            sums = self._update_alone(passes, rate)
        else:
            for first in range(0, len(passes), at_once):
                between_passes()
                turn = passes[first : first + at_once]
                self._accumulate(
                    [turn[n :: self.replicas] for n in self._local_replicas]
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
        """Return the features of each micro-batch, or of its parts."""
        passes = []
        for number, batch in enumerate(batches):
            seed = dropout_seed(self._seed, step, number)
            features = {name: batch[name] for name in self._names}
            if self.parts == 1:
                passes.append(features | {"seed": seed})
                continue
            rows = batch["inputs"].shape[0]
            size = -(-rows // self.parts)
            for start in range(0, rows, size):
                part = {n: x[start : start + size] for n, x in features.items()}
                part["seed"] = np.array([*seed, start], np.int32)
                passes.append(part)
        return passes

    def _of(self, features):
        """Return the counts, float32 [3], and the gradient of each variable.

        The counts are the summed loss in nats, and the real tokens of target
        and source, EOS included.
        """
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
        source_tokens = tf.math.count_nonzero(
            features["inputs"], dtype=tf.float32
        )
        counts = tf.stack([loss, tokens, source_tokens])
        return [counts, *map(tf.convert_to_tensor, gradients)]

    def _pass(self, side_by_side):
        """Return the sums of what `_of` returns for each part."""
        parts = map(self._gradients, side_by_side)
        sums = zip(*parts, strict=True)
        return [functools.reduce(tf.add, each) for each in sums]

    def _pass_and_apply(self, side_by_side, learning_rate):
        counts, *gradients = self._pass(side_by_side)
        return self._apply(counts, gradients, learning_rate)

    def _accumulate_all(self, of_replicas):
        distribute = self.strategy.experimental_distribute_values_from_function
        first = self._local_replicas.start
        passes = distribute(
            lambda context: of_replicas[
                context.replica_id_in_sync_group - first
            ]
        )
        self.strategy.run(self._accumulate_here, args=(passes,))

    def _accumulate_here(self, side_by_side):
        for total, each in zip(
            self._sums, self._pass(side_by_side), strict=True
        ):
            optimizers.add(total, each)

    def _apply_and_clear(self, learning_rate, wants_decision):
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
        """Apply summed gradients, unless one is not finite."""
        loss_sum, target_tokens, source_tokens = tf.unstack(counts)
        # Stacked: TensorFlow's graph optimizer would split a sum by `add_n`,
        # which takes 0.4 seconds.
        squares = tf.stack([tf.nn.l2_loss(each) for each in sums])
        norm = tf.sqrt(2.0 * tf.reduce_sum(squares)) / target_tokens
        # Replicas agree on this one number. A branch would need each operation
        # in two graphs; zeros are applied instead so that nothing changes.
        finite = tf.math.is_finite(norm)
        divisor = tf.where(finite, target_tokens, 0.0)
        gradients = [tf.math.divide_no_nan(total, divisor) for total in sums]
        if (most := self.hparams.clip_norm) is not None:
            scale = most / tf.maximum(tf.where(finite, norm, 0.0), most)
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
    # Autograph would find nothing to convert; looking costs seconds.
    return tf.function(function, input_signature=signature, autograph=False)
