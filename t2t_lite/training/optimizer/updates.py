"""One optimizer update, the same on any number of devices.

An update is a fixed list of micro-batches. Replicas share them out, add up
the gradients of the *summed* loss, and divide once by the number of real
target tokens of them all. Dropout is seeded per micro-batch. So neither the
number of replicas nor their share of the tokens changes the result, apart
from the order in which floats are added. Where one pass on one replica is the
whole update, nothing is added up: that takes memory of the size of the model.
"""

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from t2t_lite.data.packing import feature_names
from t2t_lite.hparam import HParams
from t2t_lite.training.distribute import computes_halves
from t2t_lite.training.optimizer.adafactor import Adafactor
from t2t_lite.training.optimizer.adam import Adam
from t2t_lite.training.optimizer.freezing import frozen_paths
from t2t_lite.training.optimizer.gradients import Gradients
from t2t_lite.training.optimizer.moving_average import MovingAverage
from t2t_lite.training.optimizer.schedules import training_rate
from t2t_lite.training.optimizer.sums import (
    Pass,
    Sums,
    graph,
    micro_batch_spec,
    on_replicas,
)

# What a replica works on when there are fewer micro-batches than replicas.
_NOTHING = np.zeros((1, 1), np.int32)


class UpdateStats(NamedTuple):
    """What an update did; sums are over all its micro-batches.

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
        """The same in numbers; waits for the device."""
        return UpdateStats(*map(float, self))


def dropout_seed(seed: int, update: int, micro_batch: int) -> np.ndarray:
    """The dropout seed of a micro-batch: int32 [2], a pure function.

    Args:
      seed: of the run.
      update: its number.
      micro_batch: its number within the update.
    """
    sequence = np.random.SeedSequence([seed, update, micro_batch])
    return sequence.generate_state(2).view(np.int32)


class Updater:
    """Trains a model, update by update.

    Args:
      model: has `trainable_variables` and
        `loss_sum(features, label_smoothing, seed)`; created and built within
        the strategy's scope.
      hparams: its training part is used.
      strategy: from `distribute.choose_strategy` or `join_workers`.
      seed: of the run, for dropout.
      freeze: patterns of weights that do not train, see `frozen_paths`.
      jit: compile the passes by XLA.
      recompute: see `Transformer`.

    Attributes:
      replicas: devices that share an update.
      recompute: whether passes do.
      slices: parts by rows that each micro-batch is passed in, so that it
        takes less memory. They change nothing else.
      strategy: as given.
      optimizer: what the hparam `optimizer` names.
      average: of the weights; None without the hparam `ema_decay`.
    """

    def __init__(
        self,
        model: Any,
        hparams: HParams,
        strategy: tf.distribute.Strategy,
        seed: int,
        freeze: Sequence[str] = (),
        jit: bool = False,
        recompute: bool = False,
    ):
        self._model = model
        model.recompute = self.recompute = recompute
        self._hparams = hparams
        self.strategy = strategy
        self.replicas: int = strategy.num_replicas_in_sync
        self.slices = 1
        self._seed = seed
        # Of the replicas, those of this process.
        self._here = _replicas_here(strategy)
        self._names = feature_names(hparams.packing)
        self._nothing: dict[str, Any] = dict.fromkeys(self._names, _NOTHING)
        weights = model.trainable_variables
        frozen = frozen_paths((v.path for v in weights), freeze)
        trained = [v for v in weights if v.path not in frozen]
        self._paths = [v.path for v in trained]
        self._variables = [v.value for v in trained]
        self._pass = Gradients(
            model, self._names, self._variables, hparams.label_smoothing, jit
        )
        # XLA makes few operations of a pass: there is little to wait for.
        self._halves = computes_halves(strategy, hparams) and not jit
        with strategy.scope():
            self.optimizer = _optimizer(hparams, self._variables)
            self.average = (
                MovingAverage(self._variables, hparams.ema_decay)
                if hparams.ema_decay
                else None
            )
        self._update_alone = graph(
            lambda *args: on_replicas(strategy, self._apply_pass, *args),
            micro_batch_spec(self._names, seed_length=2),
            tf.TensorSpec([], tf.float32),
            tf.TensorSpec([], tf.bool),
        )

    @functools.cached_property
    def _sums(self) -> Sums:
        """Where passes are added up, if they ever are."""
        return Sums(
            self.strategy,
            self._variables,
            self._here,
            self._make_pass,
            self._apply_gradients,
        )

    def tensors(self) -> dict[str, tf.Variable]:
        """The optimizer's state by name, for checkpoints."""
        return self.optimizer.tensors(self._paths)

    @property
    def trained_parameters(self) -> int:
        """How many numbers train."""
        return sum(math.prod(v.shape) for v in self._variables)

    def averages(self) -> dict[str, tf.Variable]:
        """The moving average of each trained weight by path; {} without."""
        if not self.average:
            return {}
        return dict(zip(self._paths, self.average.averages, strict=True))

    def begin_average(self) -> None:
        """Lets the moving average, if any, begin as the weights are now."""
        if self.average:
            self.average.begin()

    def update(
        self,
        micro_batches: Sequence[Mapping[str, tf.Tensor]],
        step: int,
        between_passes: Callable[[], None] | None = None,
        wants_decision: Callable[[], bool] = lambda: False,
    ) -> UpdateStats:
        """Makes one update.

        Args:
          micro_batches: dicts of int32 `inputs` [b, S] and `targets` [b, T],
            and with the hparam `packing` the other `packing.feature_names`.
          step: the update's number, for its learning rate and dropout.
          between_passes: called before each pass. If it raises, the weights
            are as before, but no other update must be made.
          wants_decision: called after the passes: whether this worker wants
            all workers to save or to stop. The replicas that do are counted
            with the sums.

        Returns:
          What it did; not waited for.
        """
        passes = self.passes(micro_batches, step)
        rate = training_rate(self._hparams, step)
        if self.adds_up or len(passes) > 1:
            for first in range(0, len(passes), self.replicas):
                if between_passes:
                    between_passes()
                self._add_up(passes[first : first + self.replicas])
            sums = self._sums.apply(rate, wants_decision())
        else:
            if between_passes:
                between_passes()
            sums = self._update_alone(passes[0], rate, True)
        positions = sum(
            math.prod(batch[side].shape)
            for batch in micro_batches
            for side in ("inputs", "targets")
        )
        return UpdateStats(learning_rate=rate, positions=positions, **sums)

    @property
    def adds_up(self) -> bool:
        """Whether an update has several passes, by plan."""
        passes = self._hparams.micro_batches * self.slices
        return max(passes, self.replicas) > 1

    def passes(
        self, micro_batches: Sequence[Mapping[str, tf.Tensor]], step: int
    ) -> list[dict[str, tf.Tensor]]:
        """What each pass of an update works on: micro-batches, or slices."""
        return [
            part
            for number, batch in enumerate(micro_batches)
            for part in self._slices_of(
                batch, dropout_seed(self._seed, step, number)
            )
        ]

    def _slices_of(
        self, batch: Mapping[str, tf.Tensor], seed: np.ndarray
    ) -> list[dict[str, tf.Tensor]]:
        """The rows of a batch in as many parts, or one for each row."""
        if self.slices == 1:
            return [
                {name: batch[name] for name in self._names} | {"seed": seed}
            ]
        rows = batch["inputs"].shape[0]
        size = -(-rows // self.slices)
        return [
            {name: batch[name][start : start + size] for name in self._names}
            | {"seed": np.array([*seed, start], np.int32)}
            for start in range(0, rows, size)
        ]

    def try_pass(self, micro_batch: Mapping[str, tf.Tensor]) -> None:
        """Makes a pass on each replica, to be thrown away by `try_update`.

        If that raises, call `forget`.
        """
        features: dict[str, Any] = {
            name: micro_batch[name] for name in self._names
        }
        features["seed"] = dropout_seed(self._seed, 0, 0)
        if self.adds_up:
            self._add_up([features] * self.replicas)
        else:
            float(self._update_alone(features, 0.0, False)["skipped"])  # waits

    def try_update(self) -> None:
        """The rest of an update; it changes nothing."""
        if not self.adds_up:
            return  # the pass was all
        self.forget()  # an update without any target token is skipped
        float(self._sums.apply(0.0)["skipped"])  # waits

    def forget(self) -> None:
        """Drops the passes that were made for an update."""
        if "_sums" in vars(self):  # otherwise there are none
            self._sums.forget()

    def _add_up(self, turn: list[dict[str, Any]]) -> None:
        """Makes a pass on each replica; some may have nothing to do."""
        idle = self.replicas - len(turn)
        turn = turn + [self._nothing | {"seed": turn[0]["seed"]}] * idle
        self._sums.add([turn[replica] for replica in self._here])

    def _make_pass(self, features: Mapping[str, tf.Tensor]) -> Pass:
        make = self._pass.in_halves if self._halves else self._pass
        loss, tokens, gradients = make(features)
        source_tokens = tf.math.count_nonzero(
            features["inputs"], dtype=tf.float32
        )
        return Pass(tf.stack([loss, tokens, source_tokens]), gradients)

    def _apply_pass(
        self,
        features: Mapping[str, tf.Tensor],
        learning_rate: tf.Tensor,
        made: tf.Tensor,
    ) -> dict[str, tf.Tensor]:
        """An update of one pass; not `made`, it changes nothing."""
        counts, gradients = self._make_pass(features)
        dense = [
            tf.zeros(v.shape) if g is None else tf.convert_to_tensor(g)
            for g, v in zip(gradients, self._variables, strict=True)
        ]
        return self._apply_gradients(Pass(counts, dense), learning_rate, made)

    def _apply_gradients(
        self,
        sums: Pass,
        learning_rate: tf.Tensor,
        made: tf.Tensor | bool = True,
    ) -> dict[str, tf.Tensor]:
        loss_sum, target_tokens, source_tokens = tf.unstack(sums.counts)
        # Stacked: TensorFlow's optimizer of graphs would take a sum by `add_n`
        # apart, in four tenths of a second.
        squares = tf.stack([tf.nn.l2_loss(each) for each in sums.gradients])
        norm = tf.sqrt(2.0 * tf.reduce_sum(squares)) / target_tokens
        # One number tells of every gradient, and replicas agree on it. There
        # is no branch, which would have each operation in two graphs: zeros
        # are applied so that they change nothing.
        finite = tf.math.is_finite(norm) & made
        divisor = tf.where(finite, target_tokens, 0.0)
        gradients = [
            tf.math.divide_no_nan(total, divisor) for total in sums.gradients
        ]
        if (most := self._hparams.clip_norm) is not None:
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


def _replicas_here(strategy: tf.distribute.Strategy) -> range:
    """The numbers of the replicas that are this process's."""
    distribute = strategy.experimental_distribute_values_from_function
    numbers = strategy.experimental_local_results(
        distribute(lambda context: context.replica_id_in_sync_group)
    )
    return range(numbers[0], numbers[-1] + 1)


def _optimizer(
    hparams: HParams, variables: list[tf.Variable]
) -> Adam | Adafactor:
    if hparams.optimizer == "adafactor":
        return Adafactor(variables)
    return Adam(
        variables,
        hparams.adam_beta1,
        hparams.adam_beta2,
        hparams.adam_epsilon,
        hparams.weight_decay,  # 0 without AdamW, see the rules of hparams
    )
