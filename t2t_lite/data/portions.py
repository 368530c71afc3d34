"""A portion of records on its way to batches: parsed, planned, padded.

A portion is what is planned at once: so many examples, in the order in which
they are read. All but the plan runs in TensorFlow's own threads.
"""

import os
import pathlib
from collections.abc import Callable, Iterable, Iterator, Mapping

import numpy as np
import tensorflow as tf

from t2t_lite.data import bucketing
from t2t_lite.data.manifest import SplitRecord
from t2t_lite.data.packing import (
    PARTS,
    SIDES,
    PackedPlan,
    feature_names,
    packed_shape,
    plan_rows,
)
from t2t_lite.errors import T2TLiteError
from t2t_lite.problem import Problem

PORTION_SIZE = 65_536  # examples; about 10 MB of text
READ_BYTES = 8 << 20
# Keeps the randomness of the plans apart from that of the order of shards.
_PLANS = 1


def features(names: Iterable[str]) -> dict[str, tf.io.RaggedFeature]:
    """What parses features of int64 values; a missing one is empty."""
    ragged = tf.io.RaggedFeature(tf.int64, row_splits_dtype=tf.int64)
    return dict.fromkeys(names, ragged)


def records_of(
    data_dir: str | os.PathLike, record: SplitRecord
) -> tf.data.Dataset:
    """The serialized records of a split, in file order."""
    paths = [str(pathlib.Path(data_dir) / s.file) for s in record.shards]
    return tf.data.TFRecordDataset(paths, buffer_size=READ_BYTES)


def ragged_portions(
    data_dir: str | os.PathLike,
    problem: Problem,
    record: SplitRecord,
    portion_size: int = PORTION_SIZE,
) -> Iterator[tuple[tf.RaggedTensor, tf.RaggedTensor]]:
    """Yields the (inputs, targets) of each portion of a split, ragged int64."""
    for serialized in records_of(data_dir, record).batch(portion_size):
        yield parsed_sides(serialized, problem, record)


def check_lengths(
    record: SplitRecord, max_positions: int, max_length: int
) -> None:
    """Refuses a split without a usable pair, or with one too long for a pass.

    Args: as in `bucketing.plan_batches`.
    """
    too_long = record.too_long(max_length)
    if record.examples == too_long:
        raise T2TLiteError(
            f"There is no pair to use: of {record.examples}, {too_long} are "
            f"longer than max_length={max_length} tokens. Raise max_length."
        )
    if min(record.longest, max_length) > max_positions:
        raise T2TLiteError(
            "The longest pair must fit one pass: min(max_length, longest) <= "
            f"batch_tokens / micro_batches; got max_length={max_length}, "
            f"longest={record.longest}, batch_tokens / micro_batches="
            f"{max_positions}. Lower max_length or micro_batches, or raise "
            "batch_tokens."
        )


def planner(
    problem: Problem,
    record: SplitRecord,
    max_positions: int,
    max_length: int,
    seed: int | None = None,
) -> Callable:
    """A map from (epoch, portion, serialized) to a portion ready to be cut.

    Args: as in `bucketing.plan_batches`, and
      problem: its reversed copy swaps the sides.
      record: of the split.
      seed: of the order; None gives the order of evaluation.

    Returns:
      a function that adds to (epoch, portion) what `padded_batch` needs, with
      the number of batches as "count".
    """

    def plan(epoch, portion, source_lengths, target_lengths):
        return bucketing.plan_batches(
            source_lengths,
            target_lengths,
            max_positions=max_positions,
            max_length=max_length,
            generator=plan_generator(seed, epoch, portion),
        )[:4]

    def planned(epoch, portion, serialized):
        source, target = parsed_sides(serialized, problem, record)
        rows, splits, source_widths, target_widths = tf.numpy_function(
            plan,
            [epoch, portion, source.row_lengths(), target.row_lengths()],
            [tf.int64] * 4,
            stateful=False,
        )
        rows = tf.ensure_shape(rows, [None])
        source, target = tf.gather(source, rows), tf.gather(target, rows)
        ready = {
            "count": tf.size(splits, tf.int64) - 1,
            "splits": tf.ensure_shape(splits, [None]),
            "inputs": tf.cast(source.values, tf.int32),
            "targets": tf.cast(target.values, tf.int32),
            "inputs_splits": source.row_splits,
            "targets_splits": target.row_splits,
            "inputs_widths": tf.ensure_shape(source_widths, [None]),
            "targets_widths": tf.ensure_shape(target_widths, [None]),
        }
        return epoch, portion, ready

    return planned


def plan_generator(
    seed: int | None, epoch: int, portion: int
) -> np.random.Generator | None:
    """The randomness of one portion of training; None without a seed."""
    if seed is None:
        return None
    return np.random.default_rng([seed, _PLANS, epoch, portion])


def parsed_sides(
    serialized: tf.Tensor, problem: Problem, record: SplitRecord
) -> tuple[tf.RaggedTensor, tf.RaggedTensor]:
    """The (inputs, targets) of pairs: ragged int64 [N, None].

    Those of packed rows are taken out of them, row by row.
    """
    names = feature_names(record.is_packed)
    parsed = tf.io.parse_example(serialized, features(names))
    if record.is_packed:
        numbers = [parsed[f"{side}_segmentation"] for side in SIDES]
        sides = [
            _sentences(parsed[side], number)
            for side, number in zip(SIDES, numbers, strict=True)
        ]
    else:
        sides = [parsed[side] for side in SIDES]
    return problem.directed(*sides)


def _sentences(
    rows: tf.RaggedTensor, numbers: tf.RaggedTensor
) -> tf.RaggedTensor:
    """The sentences of packed rows, without what spaces them.

    Example: rows [[5, 1, 0, 7, 1], [8, 1]] numbered [[1, 1, 0, 2, 2], [1, 1]]
    are the sentences [[5, 1], [7, 1], [8, 1]].
    """
    counts = tf.reduce_max(numbers, axis=1)  # sentences of each row
    before = tf.cumsum(counts, exclusive=True)
    of_sentence = tf.gather(before, rows.value_rowids()) + numbers.values - 1
    kept = numbers.values > 0
    return tf.RaggedTensor.from_value_rowids(
        rows.values[kept],
        of_sentence[kept],
        nrows=tf.reduce_sum(counts),
        validate=False,
    )


def padded_batch(
    planned: Mapping[str, tf.Tensor], index: tf.Tensor
) -> dict[str, tf.Tensor]:
    """Batch `index` of a planned portion: {"inputs", "targets"}."""
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
    problem: Problem,
    record: SplitRecord,
    max_positions: int,
    max_length: int,
    seed: int,
) -> Callable:
    """As `planner`, for portions that `packed_batch` cuts.

    Rows are laid out here, the whole portion at once: a batch is a slice.
    """
    height, width = packed_shape(max_positions, max_length)

    def plan(epoch, portion, *lengths):
        plan = plan_rows(
            *lengths,
            max_positions=max_positions,
            max_length=max_length,
            generator=plan_generator(seed, epoch, portion),
        )
        places = [_places(plan, side[plan.rows]) for side in lengths]
        return (plan.rows, *places[0], *places[1])

    def planned(epoch, portion, serialized):
        sides = parsed_sides(serialized, problem, record)
        rows, *places = tf.numpy_function(
            plan,
            [epoch, portion, *(side.row_lengths() for side in sides)],
            [tf.int64] + [tf.int64, tf.int32, tf.int32] * 2,
            stateful=False,
        )
        rows = tf.ensure_shape(rows, [None])
        ready = {}
        for name, side, (splits, *parts) in zip(
            SIDES, sides, (places[:3], places[3:]), strict=True
        ):
            ids = tf.cast(tf.gather(side, rows).values, tf.int32)
            splits = tf.ensure_shape(splits, [None])
            for part, values in zip(PARTS, (ids, *parts), strict=True):
                packed = tf.RaggedTensor.from_row_splits(
                    tf.ensure_shape(values, [None]), splits, validate=False
                )
                ready[name + part] = packed.to_tensor(0, shape=[None, width])
        bins = tf.shape(ready[SIDES[0]], tf.int64)[0]
        return epoch, portion, {"count": bins // height, **ready}

    return planned


def packed_rows_planner(
    problem: Problem, max_positions: int, max_length: int, seed: int
) -> Callable:
    """As `packing_planner`, for rows that others have packed: they stay so.

    Rows of more than `max_length` positions are left out.
    """
    height, width = packed_shape(max_positions, max_length)
    names = feature_names(packing=True)

    def plan(epoch, portion, source_lengths, target_lengths):
        kept = bucketing.usable(source_lengths, target_lengths, width)
        generator = np.random.default_rng([seed, _PLANS, epoch, portion])
        return generator.permutation(kept)

    def planned(epoch, portion, serialized):
        parsed = tf.io.parse_example(serialized, features(names))
        lengths = [parsed[side].row_lengths() for side in SIDES]
        rows = tf.numpy_function(
            plan, [epoch, portion, *lengths], tf.int64, stateful=False
        )
        rows = tf.ensure_shape(rows, [None])
        missing = -tf.size(rows, tf.int64) % height  # of the last batch
        ready = {}
        for ours, theirs in zip(SIDES, problem.directed(*SIDES), strict=True):
            for part in PARTS:
                kept = tf.gather(parsed[theirs + part], rows)
                dense = kept.to_tensor(0, shape=[None, width])
                dense = tf.pad(dense, [[0, missing], [0, 0]])
                ready[ours + part] = tf.cast(dense, tf.int32)
        count = (tf.size(rows, tf.int64) + missing) // height
        return epoch, portion, {"count": count, **ready}

    return planned


def _places(
    plan: PackedPlan, lengths: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Where the tokens of one side lie, side by side in the plan's order.

    Args:
      plan: of both sides.
      lengths: int64 [kept examples], in its order.

    Returns:
      int64 [bins + 1], the splits of its bins; int32 [tokens] each, the number
      of a token's pair in its bin, from 1, and its place in the sentence.
    """
    starts = np.concatenate([[0], np.cumsum(lengths)])
    numbers = np.arange(1, len(lengths) + 1, dtype=np.int32)
    numbers -= np.repeat(plan.splits[:-1], np.diff(plan.splits)).astype("int32")
    places = np.arange(starts[-1], dtype=np.int32)
    places -= np.repeat(starts[:-1].astype(np.int32), lengths)
    return starts[plan.splits], np.repeat(numbers, lengths), places


def packed_batch(
    planned: Mapping[str, tf.Tensor], index: tf.Tensor, shape: tuple[int, int]
) -> dict[str, tf.Tensor]:
    """Batch `index` of a packed portion: `packing.feature_names(True)`.

    Args: what a planner of packed rows gives, an int64 scalar,
      `packing.packed_shape`.
    """
    first = index * shape[0]
    return {
        name: tf.ensure_shape(planned[name][first : first + shape[0]], shape)
        for name in feature_names(packing=True)
    }
