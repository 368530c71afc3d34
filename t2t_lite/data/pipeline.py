"""TFRecords to padded batches: bounded positions, resumable, in a fixed order.

Records are read in portions. A pure numpy planner decides from the lengths of a
portion which pairs share a batch (`bucketing`) or a row (`packing`). The order
is a pure function of seed, epoch and portion, so a stream starts anywhere
without reading what comes before. TensorFlow's threads run all but the plan.
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
from t2t_lite.data.packing import PARTS, SIDES, feature_names
from t2t_lite.errors import T2TLiteError, format_error
from t2t_lite.problem import Problem

PORTION_SIZE = 65_536  # records; about 10 MB of text
_READ_BYTES = 8 << 20
_PREFETCHED_BATCHES = 16
_SAMPLED_BATCHES = 500  # of an epoch, for its padding
_ENDLESS = 1 << 62
# Keep the randomness of the order of shards apart from that of the plans.
_SHARD_ORDER, _PLANS = 0, 1
_IN_ORDER = tf.data.Options()
_IN_ORDER.deterministic = True
# There is nothing to tune, and the thread that tunes may miss its end: then the
# process waits for it, up to a minute.
_IN_ORDER.autotune.enabled = False
# Autograph would look for something to convert in each mapped function.
_no_autograph = tf.autograph.experimental.do_not_convert


class Position(NamedTuple):
    """The start of a training stream: a batch of a portion of an epoch."""

    epoch: int = 0
    portion: int = 0
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
    portion_size: int = PORTION_SIZE,
) -> tf.data.Dataset:
    """Return an endless stream of padded or packed batches of train.

    Every epoch has each pair that is not too long exactly once, in an order of
    its own. A stream that starts at the `position` of a batch continues exactly
    like the stream of that batch.

    Args:
      data_dir: the folder of the shards.
      problem: its reversed copy swaps the sides.
      manifest: of the data in `data_dir`.
      max_positions: bound of rows * padded length on either side, that is
        batch_tokens / gradient_accumulation_steps.
      max_length: longer pairs are left out; tokens a side, EOS included.
      seed: of the order; at least 0.
      start: where to start.
      packing: several pairs in a row instead of rows of about equal length;
        rows that tensor2tensor packed stay unchanged.
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
    batching = Batching(
        problem, record, max_positions, max_length, packing, seed
    )
    batching.check_lengths()
    portions = -(-record.records // portion_size)  # of an epoch
    start = Position(*map(int, start))
    if not 0 <= start.portion < portions:
        raise T2TLiteError(
            f"A position in this data has a portion below {portions}; got "
            f"{start}. It belongs to other data."
        )
    folder = pathlib.Path(data_dir)

    def portions_of_epoch(epoch):
        paths, skip, portion = tf.numpy_function(
            lambda epoch: _files_of_epoch(
                folder, record.shards, seed, epoch, start, portion_size
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
            .batch(portion_size)
            .enumerate(tf.ensure_shape(portion, []))
            .map(lambda portion, serialized: (epoch, portion, serialized))
        )

    return (
        tf.data.Dataset.range(start.epoch, _ENDLESS)
        .flat_map(portions_of_epoch)
        .apply(lambda dataset: batching.apply(dataset, start, portions - 1))
        .prefetch(_PREFETCHED_BATCHES)
        .with_options(_IN_ORDER)
    )


def _files_of_epoch(folder, shards, seed, epoch, start, portion_size):
    """Return paths, records to skip in the first file, first portion."""
    generator = np.random.default_rng([seed, _SHARD_ORDER, epoch])
    order = generator.permutation(len(shards))
    portion = start.portion if epoch == start.epoch else 0
    skip = portion * portion_size
    ends = np.cumsum([shards[i].examples for i in order])
    whole = int(np.searchsorted(ends, skip, "right"))
    paths = [bytes(folder / shards[i].file) for i in order[whole:]]
    skip -= ends[whole - 1] if whole else 0
    return np.array(paths, object), np.int64(skip), np.int64(portion)


class PaddingReport(NamedTuple):
    """The padding of the train split in its batches; see `padding_report`."""

    examples: int  # pairs of the split, or packed rows of pairs
    unit: str  # of the examples
    too_long: int  # number of these left out for `max_length`
    batches: int  # of an epoch; an estimate from its first ones
    share: float  # real tokens / positions of both sides together, 0-1

    def __str__(self) -> str:
        left_out = f", {self.too_long:,} too long" if self.too_long else ""
        return (
            f"{self.examples:,} {self.unit}{left_out}; about "
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
    """Count the real tokens of the first batches of an epoch.

    Args: as in `training_batches`.
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
        numbers = sides[0] > 0  # [B, S], of the example of a token in its row
        if packing and unit == "pairs":
            numbers = batch["inputs_segmentation"]
        examples += int(numbers.max(axis=1).sum())
        batches += 1
        if batch["position"][0]:  # the next batch is of the next epoch
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
    """Return each pair of a split once, in padded batches, the longest first.

    Args and Raises: as in `training_batches`.

    Returns:
      a finite dataset of {"inputs": int32 [B, S], "targets": int32 [B, T]}.
    """
    record = manifest.split(split)
    batching = Batching(problem, record, max_positions, max_length)
    batching.check_lengths()
    zero = tf.constant(0, tf.int64)
    return (
        serialized_portions(data_dir, record)
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
    """Yield the (inputs, targets) ids of a split, EOS last, in file order.

    Each is int64 [length]; a reversed problem has its sides swapped.
    """
    record = manifest.split(split)
    for serialized in serialized_portions(data_dir, record):
        sides = parse_examples(serialized, problem, record)
        rows = [
            np.split(side.values.numpy(), side.row_splits.numpy()[1:-1])
            for side in sides.values()
        ]
        yield from zip(*rows, strict=True)


def serialized_portions(
    data_dir: str | os.PathLike, record: SplitRecord
) -> tf.data.Dataset:
    """Return the serialized examples of a split, string [N], in file order."""
    paths = [str(pathlib.Path(data_dir) / s.file) for s in record.shards]
    dataset = tf.data.TFRecordDataset(paths, buffer_size=_READ_BYTES)
    return dataset.batch(PORTION_SIZE)


@contextlib.contextmanager
def read_errors(
    data_dir: str | os.PathLike,
    problem: Problem,
    manifest: Manifest,
    split: str,
) -> Iterator[None]:
    """Turn TensorFlow's errors of reading a split into a T2TLiteError.

    It names the shard that is damaged, missing or unreadable.
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
    """Makes batches of portions: parse, plan, gather, pad.

    Attributes:
      problem: its reversed copy swaps the sides.
      record: of the split.
      max_positions, max_length, packing: as in `training_batches`.
      seed: of the order; None gives the order of evaluation.
    """

    problem: Problem
    record: SplitRecord
    max_positions: int
    max_length: int
    packing: bool = False
    seed: int | None = None

    @property
    def keeps_rows(self) -> bool:
        """Return whether the rows of a batch are records that were packed."""
        return self.packing and self.record.is_packed

    @property
    def shape(self) -> tuple[int, int]:
        """The (rows, width) of all packed batches."""
        return packing.packed_shape(self.max_positions, self.max_length)

    def check_lengths(self) -> None:
        """Refuse a split without a usable pair, or with one too long."""
        record = self.record.by_row if self.keeps_rows else self.record
        too_long = record.too_long(self.max_length)
        if record.examples == too_long:
            raise T2TLiteError(
                f"There is no pair to use: of {record.examples}, {too_long} "
                f"are longer than max_length={self.max_length} tokens. Raise "
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
        portions: tf.data.Dataset,
        start: Position = START,
        last: int = 0,
    ) -> tf.data.Dataset:
        """Transform portions into batches, for `tf.data.Dataset.apply`.

        Args:
          portions: elements (epoch, portion, serialized examples [N]).
          start: where the stream starts.
          last: the last portion of an epoch.
        """

        def plan(epoch, portion, serialized):
            return epoch, portion, self._gather(epoch, portion, serialized)

        def batches_of_portion(epoch, portion, planned):
            count = tf.size(planned["splits"], tf.int64) - 1
            is_first = (epoch == start.epoch) & (portion == start.portion)
            first = tf.where(is_first, tf.constant(start.batch, tf.int64), 0)
            after = tf.where(
                portion == last, [epoch + 1, 0, 0], [epoch, portion + 1, 0]
            )

            def batch(index):
                inside = tf.stack([epoch, portion, index + 1])
                position = tf.where(index + 1 < count, inside, after)
                return self._pad(planned, index) | {"position": position}

            return tf.data.Dataset.range(first, count).map(batch)

        return portions.map(plan).prefetch(1).flat_map(batches_of_portion)

    def _plan(self, epoch, portion, source, target):
        """Return the plan of a portion, given its lengths, int64 [N]."""
        generator = None
        if self.seed is not None:
            seeds = [self.seed, _PLANS, epoch, portion]
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

    def _gather(self, epoch, portion, serialized):
        """Return the rows of a portion and the plan of its batches."""
        features = parse_examples(
            serialized, self.problem, self.record, self.keeps_rows
        )
        lengths = [features[side].row_lengths() for side in SIDES]
        examples, rows, splits, widths = tf.numpy_function(
            self._plan,
            [epoch, portion, *lengths],
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
        planned = {
            "splits": tf.ensure_shape(splits, [None]),
            "widths": tf.ensure_shape(widths, [None, 2]),
        }
        for name, values in features.items():
            values = tf.cast(values, tf.int32)
            if self.packing:  # a batch is a slice: all have the same shape
                height, width = self.shape
                count = (tf.size(splits) - 1) * height
                planned[name] = values.to_tensor(0, shape=[count, width])
            else:
                planned[name] = values.values
                planned[f"{name}_splits"] = values.row_splits
        return planned

    def _pad(self, planned, index):
        """Return batch `index` of a portion, dense."""
        if self.packing:
            height = self.shape[0]
            first = index * height
            return {
                name: tf.ensure_shape(
                    planned[name][first : first + height], self.shape
                )
                for name in feature_names(packing=True)
            }
        first, end = planned["splits"][index], planned["splits"][index + 1]
        batch = {}
        for side, name in enumerate(SIDES):
            splits = planned[f"{name}_splits"][first : end + 1]
            rows = tf.RaggedTensor.from_row_splits(
                planned[name][splits[0] : splits[-1]],
                splits - splits[0],
                validate=False,
            )
            width = planned["widths"][index, side]
            dense = rows.to_tensor(0, shape=tf.stack([end - first, width]))
            batch[name] = tf.ensure_shape(dense, [None, None])
        return batch


def parse_examples(
    serialized: tf.Tensor,
    problem: Problem,
    record: SplitRecord,
    keep_rows: bool = False,
) -> dict[str, tf.RaggedTensor]:
    """Return `inputs` and `targets` of serialized examples, ragged int64.

    They are in the direction of the problem. Packed rows are unpacked unless
    `keep_rows`, which returns all their features.
    """
    names = feature_names(record.is_packed)
    form = tf.io.RaggedFeature(tf.int64, row_splits_dtype=tf.int64)
    found = tf.io.parse_example(serialized, dict.fromkeys(names, form))
    if record.is_packed and not keep_rows:
        found = {
            side: unpack(found[side], found[f"{side}_segmentation"])
            for side in SIDES
        }
    sides = zip(SIDES, problem.swap_if_reversed(*SIDES), strict=True)
    parts = PARTS if keep_rows else PARTS[:1]
    return {a + part: found[b + part] for a, b in sides for part in parts}


def unpack(rows: tf.RaggedTensor, segments: tf.RaggedTensor) -> tf.RaggedTensor:
    """Return the texts of packed rows, without what separates them.

    Example: rows [[5, 1, 0, 7, 1], [8, 1]] with segments [[1, 1, 0, 2, 2],
    [1, 1]] are the texts [[5, 1], [7, 1], [8, 1]].
    """
    counts = tf.reduce_max(segments, axis=1)  # texts of each row
    before = tf.cumsum(counts, exclusive=True)
    text = tf.gather(before, rows.value_rowids()) + segments.values - 1
    kept = segments.values > 0
    return tf.RaggedTensor.from_value_rowids(
        rows.values[kept],
        text[kept],
        nrows=tf.reduce_sum(counts),
        validate=False,
    )


def _join(
    side: str, texts: tf.RaggedTensor, rows: tf.Tensor
) -> dict[str, tf.RaggedTensor]:
    """Return the features of packed rows: the inverse of `unpack`."""
    splits, *parts = tf.numpy_function(
        packing.join_texts,
        [texts.row_lengths(), rows],
        [tf.int64, tf.int32, tf.int32],
        stateful=False,
    )
    splits = tf.ensure_shape(splits, [None])
    return {
        side + part: tf.RaggedTensor.from_row_splits(
            tf.ensure_shape(values, [None]), splits, validate=False
        )
        for part, values in zip(PARTS, (texts.values, *parts), strict=True)
    }
