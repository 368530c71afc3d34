"""TFRecords to padded batches: bounded positions, resumable, in a fixed order.

Records are read in windows; `bucketing` decides from the lengths which pairs of
a window share a batch, or `packing` which ones share a row. Order is a pure
function of seed, epoch and window, so a stream starts anywhere without a replay
of what comes before.
"""

import contextlib
import dataclasses
import functools
import os
import pathlib
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from t2t_lite.data import bucketing
from t2t_lite.data.checks import verify_shards
from t2t_lite.data.manifest import Manifest, SplitRecord
from t2t_lite.data.packing import pack_window, packed_shape
from t2t_lite.data.windows import (
    packed_batch,
    packing_planner,
    padded_batch,
    parsed_sides,
    plan_generator,
    planner,
)
from t2t_lite.errors import T2TLiteError
from t2t_lite.problem import Problem

WINDOW_SIZE = 65_536  # examples planned at once; about 10 MB of text
_READ_BYTES = 8 << 20
_PREFETCHED_BATCHES = 16
_ENDLESS = 1 << 62
# The generator of the order of shards is another than that of plans.
_SHARD_ORDER = 0


class Position(NamedTuple):
    """Where a training stream starts: a batch of a window of an epoch."""

    epoch: int = 0
    window: int = 0
    batch: int = 0


START = Position()


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
    window_size: int = WINDOW_SIZE,
) -> tf.data.Dataset:
    """An endless stream of padded or packed batches of the train split.

    Every epoch holds each pair that is not too long exactly once, in an order
    of its own. A stream that starts at an element's `position` goes on exactly
    as the stream that element came from.

    Args:
      data_dir: where the shards are.
      problem: its reversed copy swaps the sides.
      manifest: of the data in `data_dir`.
      max_positions: bound of rows * padded length on either side, that is
        batch_tokens / micro_batches.
      max_length: longer pairs are left out; tokens a side, EOS counted.
      seed: of the order; at least 0.
      start: where to start.
      packing: several pairs in a row instead of rows of about equal length.
      window_size: examples that are shuffled and bucketed together.

    Returns:
      a dataset of {"inputs": int32 [B, S], "targets": int32 [B, T],
      "position": int64 [3]}: rows end in EOS, then pads; `position` is where
      the next batch starts. Packed ones have all `packing.feature_names`, and
      the shape `packing.packed_shape`.

    Raises:
      T2TLiteError: no pair, or a pair that is too long for one pass.
    """
    record = manifest.split("train")
    _check_lengths(record, max_positions, max_length)
    windows_per_epoch = -(-record.examples // window_size)
    start = Position(*(int(part) for part in start))
    if not 0 <= start.window < windows_per_epoch:
        raise T2TLiteError(
            f"A position in this data has a window below {windows_per_epoch}; "
            f"got {start}. It belongs to other data."
        )
    lengths = (max_positions, max_length)
    if packing:
        planned = packing_planner(problem, *lengths, seed)
        cut = functools.partial(packed_batch, shape=packed_shape(*lengths))
    else:
        planned, cut = planner(problem, *lengths, seed), padded_batch
    return (
        tf.data.Dataset.range(start.epoch, _ENDLESS)
        .flat_map(_epoch_reader(data_dir, record, seed, start, window_size))
        .map(planned)
        .prefetch(1)
        .flat_map(_batch_cutter(cut, start, windows_per_epoch))
        .prefetch(_PREFETCHED_BATCHES)
        .with_options(_in_order())
    )


def eval_batches(
    data_dir: str | os.PathLike,
    problem: Problem,
    manifest: Manifest,
    split: str,
    *,
    max_positions: int,
    max_length: int,
    window_size: int = WINDOW_SIZE,
) -> tf.data.Dataset:
    """Every pair of a split once, in padded batches, the longest ones first.

    Pairs longer than `max_length` are left out; `padding_report` counts them.

    Args: as of `training_batches`.

    Returns:
      a finite dataset of {"inputs": int32 [B, S], "targets": int32 [B, T]}.

    Raises:
      T2TLiteError: no pair, or a pair that is too long for one pass.
    """
    record = manifest.split(split)
    _check_lengths(record, max_positions, max_length)

    def batches_of_window(epoch, window, planned):
        del epoch, window
        return tf.data.Dataset.range(planned["count"]).map(
            lambda index: padded_batch(planned, index)
        )

    zero = tf.constant(0, tf.int64)
    return (
        _records(data_dir, record)
        .batch(window_size)
        .map(lambda serialized: (zero, zero, serialized))
        .map(planner(problem, max_positions, max_length))
        .flat_map(batches_of_window)
        .prefetch(_PREFETCHED_BATCHES)
        .with_options(_in_order())
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
    for sides in _ragged_windows(
        data_dir, problem, manifest.split(split), WINDOW_SIZE
    ):
        yield from zip(
            *(
                np.split(side.values.numpy(), side.row_splits.numpy()[1:-1])
                for side in sides
            ),
            strict=True,
        )


@dataclasses.dataclass(frozen=True)
class PaddingReport:
    """How well a split fits its batches.

    Attributes:
      examples: pairs of the split.
      too_long: of these, those left out for `max_length`; an exact count.
      batches: batches of an epoch, an estimate if `is_sampled`.
      share: real tokens / positions of both sides together, 0-1.
      source_share, target_share: the same of each side.
      shapes: distinct (rows, source, target) shapes seen.
      is_sampled: only the first windows were looked at.
    """

    examples: int
    too_long: int
    batches: int
    share: float
    source_share: float
    target_share: float
    shapes: int
    is_sampled: bool

    def __str__(self):
        left_out = f", {self.too_long:,} too long" if self.too_long else ""
        return (
            f"{self.examples:,} pairs{left_out}; about {self.batches:,} "
            f"batches an epoch, {self.share:.1%} of their positions are real "
            "tokens"
        )


def padding_report(
    data_dir: str | os.PathLike,
    problem: Problem,
    manifest: Manifest,
    *,
    max_positions: int,
    max_length: int,
    seed: int = 0,
    split: str = "train",
    packing: bool = False,
    window_size: int = WINDOW_SIZE,
    most_windows: int = 4,
) -> PaddingReport:
    """Plans the first windows of a split and counts what is real.

    Args: as of `training_batches`, and
      most_windows: how many windows are looked at.
    """
    record = manifest.split(split)
    _check_lengths(record, max_positions, max_length)
    plan_window = pack_window if packing else bucketing.plan_window
    seen, real, shapes = 0, np.zeros(2), []
    for window, sides in enumerate(
        _ragged_windows(data_dir, problem, record, window_size)
    ):
        if window == most_windows:
            break
        lengths = [side.row_lengths().numpy() for side in sides]
        plan = plan_window(
            *lengths,
            max_positions=max_positions,
            max_length=max_length,
            generator=plan_generator(seed, 0, window),
        )
        seen += len(lengths[0])
        real += [side[plan.rows].sum() for side in lengths]
        shapes.append(plan.shapes())
    shapes = np.concatenate(shapes)
    positions = np.maximum((shapes[:, :1] * shapes[:, 1:]).sum(axis=0), 1)
    shares = real / positions
    return PaddingReport(
        examples=record.examples,
        too_long=record.too_long(max_length),
        batches=round(len(shapes) * record.examples / seen),
        share=float(real.sum() / positions.sum()),
        source_share=float(shares[0]),
        target_share=float(shares[1]),
        shapes=len(np.unique(shapes, axis=0)),
        is_sampled=seen < record.examples,
    )


@contextlib.contextmanager
def naming_damaged_shards(
    data_dir: str | os.PathLike, manifest: Manifest, *splits: str
):
    """Turns TensorFlow's reading errors into an error that names the file.

    To be put around what iterates over a dataset of this module.

    Args:
      data_dir: where the shards are.
      manifest: what they should be.
      *splits: those that are read; none means all.

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
        verify_shards(data_dir, manifest, splits or None)
        raise T2TLiteError(
            f"Cannot read the data in {data_dir}: {error.message}"
        ) from error


def _check_lengths(record: SplitRecord, max_positions, max_length):
    if record.examples == record.too_long(max_length):
        raise T2TLiteError(
            f"There is no pair to use: of {record.examples}, "
            f"{record.too_long(max_length)} are longer than "
            f"max_length={max_length} tokens. Raise max_length."
        )
    bucketing.check_longest(record.longest, max_positions, max_length)


def _files_of_epoch(data_dir, record, seed, epoch, start, window_size):
    """The shards of an epoch in its order; those before `start` left out.

    Returns: paths, records to skip in the first of them, the first window.
    """
    generator = np.random.default_rng([seed, _SHARD_ORDER, epoch])
    order = generator.permutation(len(record.shards))
    window = start.window if epoch == start.epoch else 0
    skip = window * window_size
    ends = np.cumsum([record.shards[i].examples for i in order])
    whole = int(np.searchsorted(ends, skip, "right"))
    paths = [str(data_dir / record.shards[i].file) for i in order[whole:]]
    read_before = ends[whole - 1] if whole else 0
    return (
        np.array([path.encode() for path in paths], object),
        np.int64(skip - read_before),
        np.int64(window),
    )


def _epoch_reader(data_dir, record, seed, start, window_size):
    """A map from an epoch to its windows: (epoch, window, serialized)."""

    def files(epoch):
        return _files_of_epoch(
            pathlib.Path(data_dir), record, seed, epoch, start, window_size
        )

    def windows_of_epoch(epoch):
        paths, skip, window = tf.numpy_function(
            files, [epoch], [tf.string, tf.int64, tf.int64], stateful=False
        )
        records = tf.data.TFRecordDataset(
            tf.ensure_shape(paths, [None]), buffer_size=_READ_BYTES
        )
        return (
            records.skip(tf.ensure_shape(skip, []))
            .batch(window_size)
            .enumerate(tf.ensure_shape(window, []))
            .map(lambda window, serialized: (epoch, window, serialized))
        )

    return windows_of_epoch


def _batch_cutter(cut, start, windows_per_epoch):
    """A map from a planned window to its batches, from `start` on."""

    def batches_of_window(epoch, window, planned):
        is_first = (epoch == start.epoch) & (window == start.window)
        first = tf.where(is_first, tf.constant(start.batch, tf.int64), 0)
        count = planned["count"]

        def batch(index):
            position = _next_position(
                epoch, window, index, windows_per_epoch, count
            )
            return cut(planned, index) | {"position": position}

        return tf.data.Dataset.range(first, count).map(batch)

    return batches_of_window


def _next_position(epoch, window, index, windows_per_epoch, count):
    """int64 [3]: the `Position` after batch `index` of `count`."""
    in_window = tf.stack([epoch, window, index + 1])
    in_epoch = tf.stack([epoch, window + 1, 0])
    in_next_epoch = tf.stack([epoch + 1, 0, 0])
    return tf.where(
        index + 1 < count,
        in_window,
        tf.where(window + 1 < windows_per_epoch, in_epoch, in_next_epoch),
    )


def _records(data_dir, record):
    """The serialized records of a split, in file order."""
    paths = [str(pathlib.Path(data_dir) / s.file) for s in record.shards]
    return tf.data.TFRecordDataset(paths, buffer_size=_READ_BYTES)


def _ragged_windows(data_dir, problem, record, window_size):
    """Yields the (inputs, targets) of each window, ragged int64."""
    for serialized in _records(data_dir, record).batch(window_size):
        yield parsed_sides(serialized, problem)


def _in_order():
    """Elements come in order, always: no option may give that up for speed."""
    options = tf.data.Options()
    options.deterministic = True
    return options
