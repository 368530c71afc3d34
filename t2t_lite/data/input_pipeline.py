"""TFRecords to padded batches: bounded positions, resumable, in a fixed order.

Records are read in portions; `bucketing` decides from the lengths which pairs
of a portion share a batch, or `packing` which ones share a row. The order is a
pure function of seed, epoch and portion, so a stream starts anywhere without
reading what comes before.
"""

import contextlib
import functools
import os
import pathlib
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from t2t_lite.data.checks import verify_shards
from t2t_lite.data.manifest import Manifest, SplitRecord
from t2t_lite.data.packing import packed_shape
from t2t_lite.data.portions import (
    PORTION_SIZE,
    READ_BYTES,
    check_lengths,
    packed_batch,
    packed_rows_planner,
    packing_planner,
    padded_batch,
    planner,
    ragged_portions,
    records_of,
)
from t2t_lite.errors import T2TLiteError, in_words
from t2t_lite.problem import Problem

_PREFETCHED_BATCHES = 16
_ENDLESS = 1 << 62
# Keeps the randomness of the order of shards apart from that of the plans.
_SHARD_ORDER = 0
_IN_ORDER = tf.data.Options()
_IN_ORDER.deterministic = True  # whatever that costs
# Nothing here is left to TensorFlow to tune, and the thread that would tune may
# miss that it is to end: then whoever is done waits for it, up to a minute.
_IN_ORDER.autotune.enabled = False
# Autograph would look for something to convert in whatever a dataset maps.
_as_it_is = tf.autograph.experimental.do_not_convert


class Position(NamedTuple):
    """Where a training stream starts: a batch of a portion of an epoch."""

    epoch: int = 0
    portion: int = 0
    batch: int = 0


START = Position()


@_as_it_is
def training_batches(
    data_dir: str | os.PathLike,
    problem: Problem,
    manifest: Manifest,
    *,
    max_positions: int,
    max_length: int,
    seed: int,
    start: Position = START,
    packing: bool = False,
    portion_size: int = PORTION_SIZE,
) -> tf.data.Dataset:
    """An endless stream of padded or packed batches of the train split.

    Every epoch holds each pair that is not too long exactly once, in an order
    of its own. A stream that starts at an element's `position` goes on exactly
    like the stream that the element came from.

    Args:
      data_dir: where the shards are.
      problem: its reversed copy swaps the sides.
      manifest: of the data in `data_dir`.
      max_positions: bound of rows * padded length on either side, that is
        batch_tokens / micro_batches.
      max_length: longer pairs are left out; tokens a side, EOS counted.
      seed: of the order; at least 0.
      start: where to start.
      packing: several pairs in a row instead of rows of about equal length;
        rows that others have packed stay as they are.
      portion_size: records that are shuffled and bucketed together.

    Returns:
      a dataset of {"inputs": int32 [B, S], "targets": int32 [B, T],
      "position": int64 [3]}: rows end in EOS, then pads; `position` is where
      the next batch starts. Packed ones have all `packing.feature_names`, and
      the shape `packing.packed_shape`.

    Raises:
      T2TLiteError: no pair, or a pair that is too long for one pass.
    """
    record = manifest.split("train")
    lengths = (max_positions, max_length)
    as_rows = packing and record.is_packed
    check_lengths(record.as_rows if as_rows else record, *lengths)
    portions_per_epoch = -(-record.records // portion_size)
    start = Position(*map(int, start))
    if not 0 <= start.portion < portions_per_epoch:
        raise T2TLiteError(
            "A position in this data has a portion below "
            f"{portions_per_epoch}; got {start}. It belongs to other data."
        )
    files = functools.partial(
        _files_of_epoch,
        *(pathlib.Path(data_dir), record, seed),
        start=start,
        portion_size=portion_size,
    )
    cut: Callable = padded_batch
    if packing:
        cut = functools.partial(packed_batch, shape=packed_shape(*lengths))
    if as_rows:
        planned = packed_rows_planner(problem, *lengths, seed)
    else:
        plan = packing_planner if packing else planner
        planned = plan(problem, record, *lengths, seed)
    return (
        tf.data.Dataset.range(start.epoch, _ENDLESS)
        .flat_map(_epoch_reader(files, portion_size))
        .map(planned)
        .prefetch(1)
        .flat_map(_batch_cutter(cut, start, portions_per_epoch))
        .prefetch(_PREFETCHED_BATCHES)
        .with_options(_IN_ORDER)
    )


@_as_it_is
def eval_batches(
    data_dir: str | os.PathLike,
    problem: Problem,
    manifest: Manifest,
    split: str,
    *,
    max_positions: int,
    max_length: int,
) -> tf.data.Dataset:
    """Every pair of a split once, in padded batches, the longest ones first.

    Pairs longer than `max_length` are left out; `padding_report` counts them.

    Args: as in `training_batches`.

    Returns:
      a finite dataset of {"inputs": int32 [B, S], "targets": int32 [B, T]}.

    Raises:
      T2TLiteError: no pair, or a pair that is too long for one pass.
    """
    record = manifest.split(split)
    check_lengths(record, max_positions, max_length)

    def batches_of_portion(epoch, portion, planned):
        indices = tf.data.Dataset.range(planned["count"])
        return indices.map(lambda index: padded_batch(planned, index))

    zero = tf.constant(0, tf.int64)
    return (
        records_of(data_dir, record)
        .batch(PORTION_SIZE)
        .map(lambda serialized: (zero, zero, serialized))
        .map(planner(problem, record, max_positions, max_length))
        .flat_map(batches_of_portion)
        .prefetch(_PREFETCHED_BATCHES)
        .with_options(_IN_ORDER)
    )


def read_pairs(
    data_dir: str | os.PathLike,
    problem: Problem,
    manifest: Manifest,
    split: str,
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """The (inputs, targets) ids of a split, EOS last, in the files' order.

    Yields:
      pairs of int64 arrays; a reversed problem has its sides swapped.
    """
    for sides in ragged_portions(data_dir, problem, manifest.split(split)):
        rows = [
            np.split(side.values.numpy(), side.row_splits.numpy()[1:-1])
            for side in sides
        ]
        yield from zip(*rows, strict=True)


@contextlib.contextmanager
def naming_damaged_shards(
    data_dir: str | os.PathLike, manifest: Manifest, split: str
) -> Iterator[None]:
    """Turns TensorFlow's reading errors into an error that names the file.

    Put it around code that iterates over a dataset of this split.

    Raises:
      T2TLiteError: a shard is damaged, gone or cannot be read.
    """
    try:
        yield
    except (
        tf.errors.DataLossError,
        tf.errors.NotFoundError,
        tf.errors.PermissionDeniedError,
        tf.errors.FailedPreconditionError,
    ) as error:
        verify_shards(data_dir, manifest, [split])
        raise T2TLiteError(
            f"Cannot read the data in {data_dir}: {in_words(error)}."
        ) from error


def _files_of_epoch(
    data_dir: pathlib.Path,
    record: SplitRecord,
    seed: int,
    epoch: int,
    start: Position,
    portion_size: int,
) -> tuple[np.ndarray, np.int64, np.int64]:
    """The shards of an epoch in its order; those before `start` left out.

    Returns: paths, records to skip in the first of them, the first portion.
    """
    generator = np.random.default_rng([seed, _SHARD_ORDER, epoch])
    order = generator.permutation(len(record.shards))
    portion = start.portion if epoch == start.epoch else 0
    skip = portion * portion_size
    ends = np.cumsum([record.shards[i].examples for i in order])
    whole = int(np.searchsorted(ends, skip, "right"))
    paths = [bytes(data_dir / record.shards[i].file) for i in order[whole:]]
    skip -= ends[whole - 1] if whole else 0
    return np.array(paths, object), np.int64(skip), np.int64(portion)


def _epoch_reader(files: Callable, portion_size: int) -> Callable:
    """A map from an epoch to its portions: (epoch, portion, serialized)."""

    def portions_of_epoch(epoch):
        paths, skip, portion = tf.numpy_function(
            files, [epoch], [tf.string, tf.int64, tf.int64], stateful=False
        )
        paths = tf.ensure_shape(paths, [None])
        return (
            tf.data.TFRecordDataset(paths, buffer_size=READ_BYTES)
            .skip(tf.ensure_shape(skip, []))
            .batch(portion_size)
            .enumerate(tf.ensure_shape(portion, []))
            .map(lambda portion, serialized: (epoch, portion, serialized))
        )

    return portions_of_epoch


def _batch_cutter(
    cut: Callable, start: Position, portions_per_epoch: int
) -> Callable:
    """A map from a planned portion to its batches, from `start` on."""

    def batches_of_portion(epoch, portion, planned):
        is_first = (epoch == start.epoch) & (portion == start.portion)
        first = tf.where(is_first, tf.constant(start.batch, tf.int64), 0)
        count = planned["count"]
        is_last = portion + 1 == portions_per_epoch
        # Where the stream is after the portion.
        after = tf.where(is_last, [epoch + 1, 0, 0], [epoch, portion + 1, 0])

        def batch(index):
            inside = tf.stack([epoch, portion, index + 1])
            position = tf.where(index + 1 < count, inside, after)
            return cut(planned, index) | {"position": position}

        return tf.data.Dataset.range(first, count).map(batch)

    return batches_of_portion
