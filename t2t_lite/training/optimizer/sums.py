"""The passes of an update, added up."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from t2t_lite.training.optimizer import own_copy


class Pass(NamedTuple):
    """What a pass over a micro-batch gives, or several of them together.

    Attributes:
      counts: float32 [3]: the summed loss in nats, the target tokens, the
        source tokens; real ones, ends included.
      gradients: of the loss, one of each variable. A single pass may have
        None, which is zero, and `tf.IndexedSlices`.
    """

    counts: tf.Tensor
    gradients: Sequence[Any]


class Sums:
    """A sum on each replica, to be applied at the end of an update.

    Args:
      strategy: of the replicas.
      variables: what the gradients are by.
      here: the numbers of the replicas that are this process's.
      make_pass: of a micro-batch; called in a replica context.
      make_update: of the sum of all replicas and the learning rate; called in
        a replica context.
    """

    def __init__(
        self,
        strategy: tf.distribute.Strategy,
        variables: Sequence[tf.Variable],
        here: range,
        make_pass: Callable[[Mapping[str, tf.Tensor]], Pass],
        make_update: Callable[[Pass, tf.Tensor], dict[str, tf.Tensor]],
    ):
        self._strategy = strategy
        self._here = here
        self._make_pass = make_pass
        self._make_update = make_update
        with strategy.scope():
            self._counts = _sum_over_replicas([3])
            self._gradients = [_sum_over_replicas(v.shape) for v in variables]
        self._all = [self._counts, *self._gradients]
        # By the length of their seeds: of micro-batches, of slices.
        self._graphs: dict[int, Callable[..., None]] = {}
        self._forget = graph(lambda: strategy.run(self._empty))
        self._apply = graph(
            lambda *args: on_replicas(strategy, self._apply_here, *args),
            tf.TensorSpec([], tf.float32),
            tf.TensorSpec([], tf.float32),
        )

    def add(self, micro_batches: Sequence[Mapping[str, Any]]) -> None:
        """Makes a pass of each of these, one a replica.

        Args:
          micro_batches: of the replicas that are this process's.
        """
        seeds = len(micro_batches[0]["seed"])
        if seeds not in self._graphs:
            spec = micro_batch_spec(micro_batches[0], seeds)
            self._graphs[seeds] = graph(self._add, [spec] * len(self._here))
        self._graphs[seeds](list(micro_batches))

    def apply(
        self, learning_rate: float, wants_decision: bool = False
    ) -> dict[str, tf.Tensor]:
        """Make the update; the sums are empty again.

        Args:
          learning_rate: of the update.
          wants_decision: whether this process wants a decision of all.

        Returns:
          What `make_update` returns, and `wanting_decision`, the number of
          replicas whose process wants a decision.
        """
        return self._apply(
            tf.constant(learning_rate, tf.float32),
            tf.constant(wants_decision, tf.float32),
        )

    def forget(self) -> None:
        """Empties the sums."""
        self._forget()

    def _add(self, micro_batches: list[dict[str, tf.Tensor]]) -> None:
        distribute = self._strategy.experimental_distribute_values_from_function
        features = distribute(
            lambda context: micro_batches[
                context.replica_id_in_sync_group - self._here.start
            ]
        )
        self._strategy.run(self._add_here, args=(features,))

    def _add_here(self, features: dict[str, tf.Tensor]) -> None:
        counts, gradients = self._make_pass(features)
        own_copy.add(self._counts, counts)
        for total, gradient in zip(self._gradients, gradients, strict=True):
            if gradient is not None:
                own_copy.add(total, tf.convert_to_tensor(gradient))

    def _apply_here(
        self, learning_rate: tf.Tensor, wants_decision: tf.Tensor
    ) -> dict[str, tf.Tensor]:
        own = [own_copy.read(v) for v in self._all]
        totals = [tf.concat([own[0], [wants_decision]], axis=0), *own[1:]]
        if self._strategy.num_replicas_in_sync > 1:
            context = tf.distribute.get_replica_context()
            totals = context.all_reduce(tf.distribute.ReduceOp.SUM, totals)
        counts, *gradients = totals
        stats = self._make_update(Pass(counts[:3], gradients), learning_rate)
        self._empty(own)
        return {**stats, "wanting_decision": counts[3]}

    def _empty(self, values: Sequence[tf.Tensor] | None = None) -> None:
        values = values or [own_copy.read(v) for v in self._all]
        for variable, value in zip(self._all, values, strict=True):
            own_copy.assign(variable, tf.raw_ops.ZerosLike(x=value))


def on_replicas(
    strategy: tf.distribute.Strategy, function: Callable[..., Any], *args: Any
) -> Any:
    """What a function gives on one of the replicas, where all give the same."""
    return strategy.experimental_local_results(
        strategy.run(function, args=args)
    )[0]


def graph(function: Callable[..., Any], *signature: Any) -> Any:
    """A graph of a function of such arguments."""
    # Autograph would find nothing to convert; looking costs seconds.
    return tf.function(function, input_signature=signature, autograph=False)


def micro_batch_spec(
    names: Iterable[str], seed_length: int
) -> dict[str, tf.TensorSpec]:
    """What a graph takes, whatever the shapes of the micro-batches.

    Args:
      names: of the features; `seed` may be one of them.
      seed_length: its numbers.
    """
    rows = tf.TensorSpec([None, None], tf.int32)
    seed = tf.TensorSpec([seed_length], tf.int32)
    return dict.fromkeys(names, rows) | {"seed": seed}


def _sum_over_replicas(shape: Any) -> tf.Variable:
    return tf.Variable(
        tf.zeros(shape),
        trainable=False,
        synchronization=tf.VariableSynchronization.ON_READ,
        aggregation=tf.VariableAggregation.SUM,
    )
