"""Input pipeline: TFRecords to padded batches, resumable, in a fixed order.

Records are read in shuffle windows. A pure numpy function of the lengths in a
window assigns its pairs to batches (`bucketing`) or to rows (`packing`). The
order is a pure function of seed, epoch and window, so a stream can start at any
position. Only planning runs in Python; TensorFlow's threads do the rest.
"""

import contextlib
import dataclasses
import os
import pathlib
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from t2t_lite.data import bucketing, packing
from t2t_lite.data.manifest import Manifest, SplitRecord, check_shards
from t2t_lite.data.packing import FEATURE_SUFFIXES, SIDES, feature_names
from t2t_lite.errors import T2TLiteError, format_error
from t2t_lite.problem import Problem

WINDOW_SIZE = 65_536  # records of a shuffle window; about 10 MB of text
_READ_BYTES = 8 << 20
_PREFETCHED_BATCHES = 16
_SAMPLED_BATCHES = 500  # batches of an epoch in the padding report
_ENDLESS = 1 << 62
# Parts of seeds: independent randomness for the shard order and the plans.
_SHARD_ORDER, _PLANS = 0, 1
_IN_ORDER = tf.data.Options()
_IN_ORDER.deterministic = True
# Autotuning has no effect here, and its thread can delay the end of the process
# by up to a minute.
_IN_ORDER.autotune.enabled = False
# The mapped functions have nothing for Autograph to convert.
_no_autograph = tf.autograph.experimental.do_not_convert


class Position(NamedTuple):
    """A position in the training stream: epoch, shuffle window and batch."""

    epoch: int = 0
    window: int = 0
    batch: int = 0


START = Position()


@_no_autograph
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
    """Return an endless stream of padded or packed batches of train.

    Each epoch contains every pair up to `max_length` exactly once, in a new
    order. A stream that starts at the `position` of a batch equals the rest of
    the stream after this batch.

    Args:
      data_dir: the folder of the shards.
      problem: the problem; a reversed problem swaps the sides.
      manifest: the manifest of the data in `data_dir`.
      max_positions: maximum of rows * padded length on either side, which is
        batch_tokens / gradient_accumulation_steps.
      max_length: maximum tokens of a side with EOS; longer pairs are dropped.
      seed: seed of the order; at least 0.
      start: the position of the first batch.
      packing: whether to pack several pairs into a row instead of bucketing
        rows by length; rows packed by tensor2tensor stay unchanged.
      window_size: records that are shuffled and bucketed together.

    Returns:
      A dataset of {"inputs": int32 [B, S], "targets": int32 [B, T],
      "position": int64 [3]}. Rows end in EOS, followed by padding; `position`
      is the position of the next batch. Packed batches have all features of
      `packing.feature_names` and the shape `packing.packed_shape`.

    Raises:
      T2TLiteError: no pair is usable, or a pair is too long for one pass.
    """
    record = manifest.split("train")
    batching = Batching(
        problem, record, max_positions, max_length, packing, seed
    )
    batching.check_lengths()
    windows = -(-record.records // window_size)  # shuffle windows of an epoch
    start = Position(*map(int, start))
    if not 0 <= start.window < windows:
        raise T2TLiteError(
            f"A position in this data must have a window below {windows}; got "
            f"{start}, a position of other data."
        )
    folder = pathlib.Path(data_dir)

    def windows_of_epoch(epoch):
        paths, skip, window = tf.numpy_function(
            lambda epoch: _files_of_epoch(
                folder, record.shards, seed, epoch, start, window_size
            ),
            [epoch],
            [tf.string, tf.int64, tf.int64],
            stateful=False,
        )
        return (
            tf.data.TFRecordDataset(
                tf.ensure_shape(paths, [None]), buffer_size=_READ_BYTES
            )
            .skip(tf.ensure_shape(skip, []))
            .batch(window_size)
            .enumerate(tf.ensure_shape(window, []))
            .map(lambda window, serialized: (epoch, window, serialized))
        )

    return (
        tf.data.Dataset.range(start.epoch, _ENDLESS)
        .flat_map(windows_of_epoch)
        .apply(lambda dataset: batching.apply(dataset, start, windows - 1))
        .prefetch(_PREFETCHED_BATCHES)
        .with_options(_IN_ORDER)
    )


def _files_of_epoch(folder, shards, seed, epoch, start, window_size):
    """Return paths, records to skip in the first file, and first window."""
    generator = np.random.default_rng([seed, _SHARD_ORDER, epoch])
    order = generator.permutation(len(shards))
    window = start.window if epoch == start.epoch else 0
    skip = window * window_size
    ends = np.cumsum([shards[i].examples for i in order])
    whole = int(np.searchsorted(ends, skip, "right"))
    paths = [bytes(folder / shards[i].file) for i in order[whole:]]
    skip -= ends[whole - 1] if whole else 0
    return np.array(paths, object), np.int64(skip), np.int64(window)


class PaddingReport(NamedTuple):
    """The padding in the batches of the train split; see `padding_report`."""

    examples: int  # pairs or packed rows of the split
    unit: str  # "pairs" or "packed rows"
    too_long: int  # examples longer than `max_length`
    batches: int  # estimated number of batches of an epoch
    share: float  # real tokens / positions of both sides together, 0-1

    def __str__(self) -> str:
        too_long = f", {self.too_long:,} too long" if self.too_long else ""
        return (
            f"{self.examples:,} {self.unit}{too_long}; about "
            f"{self.batches:,} batches an epoch, {self.share:.1%} of their "
            "positions are real tokens"
        )


def padding_report(
    data_dir: str | os.PathLike,
    problem: Problem,
    manifest: Manifest,
    *,
    max_length: int,
    packing: bool = False,
    **options: Any,
) -> PaddingReport:
    """Count real tokens in the first batches of an epoch.

    The arguments are explained in `training_batches`.
    """
    record, unit = manifest.split("train"), "pairs"
    if packing and record.is_packed:
        record, unit = record.by_row, "packed rows"
    options |= {"max_length": max_length, "packing": packing}
    dataset = training_batches(data_dir, problem, manifest, **options)
    examples = real = positions = batches = 0
    for batch in dataset.take(_SAMPLED_BATCHES).as_numpy_iterator():
        sides = [batch[name] for name in SIDES]
        real += sum(map(np.count_nonzero, sides))
        positions += sum(side.size for side in sides)
        segments = sides[0] > 0  # [B, S], the number of a token's pair
        if packing and unit == "pairs":
            segments = batch["inputs_segmentation"]
        examples += int(segments.max(axis=1).sum())
        batches += 1
        if batch["position"][0]:  # the epoch is complete
            break
    too_long = record.too_long(max_length)
    used = record.examples - too_long
    share, total = real / positions, round(batches * used / examples)
    return PaddingReport(record.examples, unit, too_long, total, share)


@_no_autograph
def eval_batches(
    data_dir: str | os.PathLike,
    problem: Problem,
    manifest: Manifest,
    split: str,
    *,
    max_positions: int,
    max_length: int,
) -> tf.data.Dataset:
    """Return each pair of a split once in padded batches, longest first.

    The arguments and errors are explained in `training_batches`.

    Returns:
      A finite dataset of {"inputs": int32 [B, S], "targets": int32 [B, T]}.
    """
    record = manifest.split(split)
    batching = Batching(problem, record, max_positions, max_length)
    batching.check_lengths()
    zero = tf.constant(0, tf.int64)
    return (
        serialized_windows(data_dir, record)
        .map(lambda serialized: (zero, zero, serialized))
        .apply(batching.apply)
        .map(lambda batch: {side: batch[side] for side in SIDES})
        .prefetch(_PREFETCHED_BATCHES)
        .with_options(_IN_ORDER)
    )


def read_pairs(
    data_dir: str | os.PathLike,
    problem: Problem,
    manifest: Manifest,
    split: str,
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield the (inputs, targets) ids of a split in file order.

    Both are int64 [length] and end in EOS; a reversed problem swaps them.
    """
    record = manifest.split(split)
    for serialized in serialized_windows(data_dir, record):
        sides = parse_examples(serialized, problem, record)
        rows = [
            np.split(side.values.numpy(), side.row_splits.numpy()[1:-1])
            for side in sides.values()
        ]
        yield from zip(*rows, strict=True)


def serialized_windows(
    data_dir: str | os.PathLike, record: SplitRecord
) -> tf.data.Dataset:
    """Return the serialized examples of a split, string [N], in file order."""
    paths = [str(pathlib.Path(data_dir) / s.file) for s in record.shards]
    dataset = tf.data.TFRecordDataset(paths, buffer_size=_READ_BYTES)
    return dataset.batch(WINDOW_SIZE)


@contextlib.contextmanager
def read_errors(
    data_dir: str | os.PathLike,
    problem: Problem,
    manifest: Manifest,
    split: str,
) -> Iterator[None]:
    """Turn TensorFlow's errors while reading a split into a T2TLiteError.

    The message names the damaged, missing or unreadable shard.
    """
    try:
        yield
    except (
        tf.errors.DataLossError,
        tf.errors.NotFoundError,
        tf.errors.PermissionDeniedError,
        tf.errors.FailedPreconditionError,
    ) as error:
        check_shards(data_dir, problem, manifest, [split])
        raise T2TLiteError(
            f"Cannot read the data in {data_dir}: {format_error(error)}."
        ) from error


@dataclasses.dataclass(frozen=True)
class Batching:
    """A transformation of shuffle windows into batches.

    Attributes:
      problem: the problem; a reversed problem swaps the sides.
      record: the record of the split.
      max_positions, max_length, packing: see `training_batches`.
      seed: seed of the order; None gives the order of evaluation.
    """

    problem: Problem
    record: SplitRecord
    max_positions: int
    max_length: int
    packing: bool = False
    seed: int | None = None

    @property
    def keeps_rows(self) -> bool:
        """Whether the rows of a batch are packed records of the shards."""
        return self.packing and self.record.is_packed

    @property
    def shape(self) -> tuple[int, int]:
        """The (rows, width) of all packed batches."""
        return packing.packed_shape(self.max_positions, self.max_length)

    def check_lengths(self) -> None:
        """Raise T2TLiteError if no pair is usable or a pair is too long."""
        record = self.record.by_row if self.keeps_rows else self.record
        too_long = record.too_long(self.max_length)
        if record.examples == too_long:
            raise T2TLiteError(
                f"No pair is usable: of {record.examples}, {too_long} are "
                f"longer than max_length={self.max_length} tokens. Raise "
                "max_length."
            )
        if min(record.longest, self.max_length) > self.max_positions:
            raise T2TLiteError(
                "batch_tokens / gradient_accumulation_steps must be at least "
                f"min(max_length, longest pair); got {self.max_positions}, "
                f"max_length={self.max_length}, longest={record.longest}. "
                "Lower max_length or gradient_accumulation_steps, or raise "
                "batch_tokens."
            )

    def apply(
        self,
        windows: tf.data.Dataset,
        start: Position = START,
        last: int = 0,
    ) -> tf.data.Dataset:
        """Transform windows into batches, for `tf.data.Dataset.apply`.

        Args:
          windows: elements (epoch, window, serialized examples [N]).
          start: the position of the first batch.
          last: the index of the last window of an epoch.
        """

        def plan(epoch, window, serialized):
            return epoch, window, self._gather(epoch, window, serialized)

        def batches_of_window(epoch, window, rows):
            count = tf.size(rows["splits"], tf.int64) - 1
            is_first = (epoch == start.epoch) & (window == start.window)
            first = tf.where(is_first, tf.constant(start.batch, tf.int64), 0)
            next_window = tf.where(
                window == last, [epoch + 1, 0, 0], [epoch, window + 1, 0]
            )

            def batch(index):
                next_batch = tf.stack([epoch, window, index + 1])
                position = tf.where(index + 1 < count, next_batch, next_window)
                return self._pad(rows, index) | {"position": position}

            return tf.data.Dataset.range(first, count).map(batch)

        return windows.map(plan).prefetch(1).flat_map(batches_of_window)

    def _plan(self, epoch, window, source, target):
        """Return the plan of a window, given its lengths, int64 [N] each."""
        generator = None
        if self.seed is not None:
            seeds = [self.seed, _PLANS, epoch, window]
            generator = np.random.default_rng(seeds)
        limits: dict[str, Any] = {
            "max_positions": self.max_positions,
            "max_length": self.max_length,
            "generator": generator,
        }
        if self.packing:
            limits["keep_rows"] = self.keeps_rows
            return packing.plan_rows(source, target, **limits)
        return bucketing.plan_batches(source, target, **limits)

    def _gather(self, epoch, window, serialized):
        """Return the rows of a window and the plan of its batches."""
        features = parse_examples(
            serialized, self.problem, self.record, self.keeps_rows
        )
        lengths = [features[side].row_lengths() for side in SIDES]
        examples, rows, splits, widths = tf.numpy_function(
            self._plan,
            [epoch, window, *lengths],
            [tf.int64] * 4,
            stateful=False,
        )
        examples = tf.ensure_shape(examples, [None])
        features = {
            name: tf.gather(values, examples)
            for name, values in features.items()
        }
        if self.packing and not self.keeps_rows:
            for side in SIDES:
                features |= _join(side, features[side], rows)
        result = {
            "splits": tf.ensure_shape(splits, [None]),
            "widths": tf.ensure_shape(widths, [None, 2]),
        }
        for name, values in features.items():
            values = tf.cast(values, tf.int32)
            if self.packing:  # all batches have the same shape: pad once
                height, width = self.shape
                count = (tf.size(splits) - 1) * height
                result[name] = values.to_tensor(0, shape=[count, width])
            else:
                result[name] = values.values
                result[f"{name}_splits"] = values.row_splits
        return result

    def _pad(self, rows, index):
        """Return batch `index` of the result of `_gather`, dense."""
        if self.packing:
            height = self.shape[0]
            first = index * height
            return {
                name: tf.ensure_shape(
                    rows[name][first : first + height], self.shape
                )
                for name in feature_names(packing=True)
            }
        first, end = rows["splits"][index], rows["splits"][index + 1]
        batch = {}
        for side, name in enumerate(SIDES):
            splits = rows[f"{name}_splits"][first : end + 1]
            ragged = tf.RaggedTensor.from_row_splits(
                rows[name][splits[0] : splits[-1]],
                splits - splits[0],
                validate=False,
            )
            width = rows["widths"][index, side]
            dense = ragged.to_tensor(0, shape=tf.stack([end - first, width]))
            batch[name] = tf.ensure_shape(dense, [None, None])
        return batch


def parse_examples(
    serialized: tf.Tensor,
    problem: Problem,
    record: SplitRecord,
    keep_rows: bool = False,
) -> dict[str, tf.RaggedTensor]:
    """Parse the `inputs` and `targets`, ragged int64, of examples [N].

    A reversed problem swaps the sides. Packed rows are unpacked, or with
    `keep_rows` returned with all of their features.
    """
    names = feature_names(record.is_packed)
    spec = tf.io.RaggedFeature(tf.int64, row_splits_dtype=tf.int64)
    parsed = tf.io.parse_example(serialized, dict.fromkeys(names, spec))
    if record.is_packed and not keep_rows:
        parsed = {
            side: unpack(parsed[side], parsed[f"{side}_segmentation"])
            for side in SIDES
        }
    sides = zip(SIDES, problem.swap_if_reversed(*SIDES), strict=True)
    suffixes = FEATURE_SUFFIXES if keep_rows else ("",)
    return {a + end: parsed[b + end] for a, b in sides for end in suffixes}


def unpack(rows: tf.RaggedTensor, segments: tf.RaggedTensor) -> tf.RaggedTensor:
    """Split packed rows into texts; padding between texts is dropped.

    Example: rows [[5, 1, 0, 7, 1], [8, 1]] with segments [[1, 1, 0, 2, 2],
    [1, 1]] are the texts [[5, 1], [7, 1], [8, 1]].
    """
    counts = tf.reduce_max(segments, axis=1)  # texts of each row
    offsets = tf.cumsum(counts, exclusive=True)
    indices = tf.gather(offsets, rows.value_rowids()) + segments.values - 1
    kept = segments.values > 0
    return tf.RaggedTensor.from_value_rowids(
        rows.values[kept],
        indices[kept],
        nrows=tf.reduce_sum(counts),
        validate=False,
    )


def _join(
    side: str, texts: tf.RaggedTensor, rows: tf.Tensor
) -> dict[str, tf.RaggedTensor]:
    """Return the features of packed rows: the inverse of `unpack`."""
    splits, *segments_and_positions = tf.numpy_function(
        packing.join_texts,
        [texts.row_lengths(), rows],
        [tf.int64, tf.int32, tf.int32],
        stateful=False,
    )
    splits = tf.ensure_shape(splits, [None])
    features = (texts.values, *segments_and_positions)
    return {
        side + suffix: tf.RaggedTensor.from_row_splits(
            tf.ensure_shape(values, [None]), splits, validate=False
        )
        for suffix, values in zip(FEATURE_SUFFIXES, features, strict=True)
    }
