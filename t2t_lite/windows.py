"""One window of records on its way to batches: parsed, planned, padded.

Everything but the plan itself, which `bucketing` makes from the lengths, runs
in TensorFlow's own threads.
"""

from collections.abc import Callable, Mapping

import numpy as np
import tensorflow as tf

from t2t_lite import bucketing
from t2t_lite.packing import SIDES, pack_window
from t2t_lite.problem import Problem

# The generator of plans is another than that of the order of shards.
_PLANS = 1

_FEATURES = {
    side: tf.io.RaggedFeature(tf.int64, row_splits_dtype=tf.int64)
    for side in SIDES
}


def planner(
    problem: Problem,
    max_positions: int,
    max_length: int,
    seed: int | None = None,
) -> Callable:
    """A map from (epoch, window, serialized) to a window ready to be cut.

    Args:
      problem: its reversed copy swaps the sides.
      max_positions: as of `bucketing.plan_window`.
      max_length: likewise.
      seed: of the order; None gives the order of evaluation.

    Returns:
      a function that adds to (epoch, window) what `padded_batch` needs, with
      the number of batches as "count".
    """

    def plan(epoch, window, source_lengths, target_lengths):
        return bucketing.plan_window(
            source_lengths,
            target_lengths,
            max_positions=max_positions,
            max_length=max_length,
            generator=plan_generator(seed, epoch, window),
        )[:4]

    def planned(epoch, window, serialized):
        source, target = parsed_sides(serialized, problem)
        rows, splits, source_widths, target_widths = tf.numpy_function(
            plan,
            [epoch, window, source.row_lengths(), target.row_lengths()],
            [tf.int64] * 4,
            stateful=False,
        )
        rows = tf.ensure_shape(rows, [None])
        source, target = tf.gather(source, rows), tf.gather(target, rows)
        return (
            epoch,
            window,
            {
                "count": tf.size(splits, tf.int64) - 1,
                "splits": tf.ensure_shape(splits, [None]),
                "inputs": tf.cast(source.values, tf.int32),
                "targets": tf.cast(target.values, tf.int32),
                "inputs_splits": source.row_splits,
                "targets_splits": target.row_splits,
                "inputs_widths": tf.ensure_shape(source_widths, [None]),
                "targets_widths": tf.ensure_shape(target_widths, [None]),
            },
        )

    return planned


def plan_generator(
    seed: int | None, epoch: int, window: int
) -> np.random.Generator | None:
    """The randomness of one window of training; None without a seed."""
    if seed is None:
        return None
    return np.random.default_rng([seed, _PLANS, epoch, window])


def parsed_sides(
    serialized: tf.Tensor, problem: Problem
) -> tuple[tf.RaggedTensor, tf.RaggedTensor]:
    """The (inputs, targets) of records: ragged int64 [N, None]."""
    parsed = tf.io.parse_example(serialized, _FEATURES)
    source, target = parsed["inputs"], parsed["targets"]
    return (target, source) if problem.reversed else (source, target)


def padded_batch(
    planned: Mapping[str, tf.Tensor], index: tf.Tensor
) -> dict[str, tf.Tensor]:
    """Batch `index` of a planned window: {"inputs", "targets"}."""
    first, end = planned["splits"][index], planned["splits"][index + 1]

    def side(name):
        splits = planned[f"{name}_splits"][first : end + 1]
        rows = tf.RaggedTensor.from_row_splits(
            planned[name][splits[0] : splits[-1]],
            splits - splits[0],
            validate=False,
        )
        width = planned[f"{name}_widths"][index]
        dense = rows.to_tensor(0, shape=tf.stack([end - first, width]))
        return tf.ensure_shape(dense, [None, None])

    return {name: side(name) for name in SIDES}


def packing_planner(
    problem: Problem, max_positions: int, max_length: int, seed: int
) -> Callable:
    """As `planner`, for windows that `packed_batch` cuts.

    Args: as of `planner`.
    """

    def plan(epoch, window, source_lengths, target_lengths):
        plan = pack_window(
            source_lengths,
            target_lengths,
            max_positions=max_positions,
            max_length=max_length,
            generator=plan_generator(seed, epoch, window),
        )
        numbers = np.arange(1, len(plan.rows) + 1)
        numbers -= np.repeat(plan.splits[:-1], np.diff(plan.splits))
        return (
            plan.rows,
            plan.splits,
            numbers.astype(np.int32),
            np.int64(len(plan.shapes())),
        )

    def planned(epoch, window, serialized):
        source, target = parsed_sides(serialized, problem)
        rows, splits, numbers, count = tf.numpy_function(
            plan,
            [epoch, window, source.row_lengths(), target.row_lengths()],
            [tf.int64, tf.int64, tf.int32, tf.int64],
            stateful=False,
        )
        rows = tf.ensure_shape(rows, [None])
        source, target = tf.gather(source, rows), tf.gather(target, rows)
        return (
            epoch,
            window,
            {
                "count": tf.ensure_shape(count, []),
                "splits": tf.ensure_shape(splits, [None]),
                "numbers": tf.ensure_shape(numbers, [None]),
                "inputs": tf.cast(source.values, tf.int32),
                "targets": tf.cast(target.values, tf.int32),
                "inputs_splits": source.row_splits,
                "targets_splits": target.row_splits,
            },
        )

    return planned


def packed_batch(
    planned: Mapping[str, tf.Tensor],
    index: tf.Tensor,
    shape: tuple[int, int],
) -> dict[str, tf.Tensor]:
    """Batch `index` of a packed window: `packing.feature_names(True)`.

    Args:
      planned: from `packing_planner`.
      index: int64 scalar.
      shape: from `packing.packed_shape`.
    """
    first = index * shape[0]
    bins = planned["splits"][first : first + shape[0] + 1]
    numbers = planned["numbers"][bins[0] : bins[-1]]
    features = {}
    for side in SIDES:
        splits = planned[f"{side}_splits"]
        ends = tf.gather(splits, bins)  # of the bins, in the window's tokens
        of_pairs = splits[bins[0] : bins[-1] + 1]
        lengths = of_pairs[1:] - of_pairs[:-1]

        def dense(values, ends=ends):
            rows = tf.RaggedTensor.from_row_splits(
                values, ends - ends[0], validate=False
            )
            return tf.ensure_shape(rows.to_tensor(0, shape=shape), shape)

        places = tf.ragged.range(tf.cast(lengths, tf.int32))
        features[side] = dense(planned[side][ends[0] : ends[-1]])
        features[f"{side}_segmentation"] = dense(tf.repeat(numbers, lengths))
        features[f"{side}_position"] = dense(places.values)
    return features
