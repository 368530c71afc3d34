"""Input pipeline: TFRecords to padded batches, resumable, in a fixed order.

A chain of tf.data transformations: shards -> shuffle windows of records ->
ragged features -> batches. A pure numpy planner (`bucketing`, `packing`)
assigns the pairs of a window to batches by their lengths. The order is a pure
function of seed, epoch and window, so a stream can start at any position. Only
planning runs in Python; TensorFlow's threads do the rest.
"""

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from t2t_lite.data import bucketing, packing
from t2t_lite.data.manifest import Manifest, SplitRecord, check_shards
from t2t_lite.data.packing import FEATURE_SUFFIXES, SIDES, feature_names
from t2t_lite.errors import T2TLiteError, UsageError, format_error
from t2t_lite.files import PathLike
from t2t_lite.problem import Problem

WINDOW_SIZE = 65_536  # records of a shuffle window; about 10 MB of text
_READ_BYTES = 8 << 20
_PREFETCHED_BATCHES = 16
_SAMPLED_BATCHES = 500  # batches of an epoch in the padding report
_ENDLESS = 1 << 62
# Parts of seeds: independent randomness for shard order, plans, segmentations.
_SHARD_ORDER, _PLANS, _SEGMENTATIONS = 0, 1, 2
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


@_no_autograph
def training_batches(
    data_dir: PathLike,
    problem: Problem,
    manifest: Manifest,
    *,
    max_positions: int,
    max_length: int,
    seed: int,
    start: Sequence[int] = Position(),
    packing: bool = False,
    bpe_dropout: float = 0.0,
    encoders: Mapping[str, Any] = {},
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
      start: the `Position` of the first batch.
      packing: pack several pairs into a row instead of bucketing rows by
        length; rows packed by tensor2tensor stay unchanged.
      bpe_dropout: fraction of merges to skip, see `drop_merges`.
      encoders: the encoders of `inputs` and `targets`, for `bpe_dropout`.
      window_size: records that are shuffled and bucketed together.

    Returns:
      A dataset of {"inputs": int32 [B, S], "targets": int32 [B, T],
      "position": int64 [3]}. Rows end in EOS, followed by padding; `position`
      is the position of the next batch. Packed batches have all features of
      `packing.feature_names` and the shape `packing.packed_shape`.

    Raises:
      T2TLiteError: no pair is usable, or a pair is too long for one pass.
      UsageError: the data or its vocabularies do not support `bpe_dropout`.
    """
    record = manifest.split("train")
    keep_rows = packing and record.is_packed
    sizes = {"max_positions": max_positions, "max_length": max_length}
    _check_lengths(record.by_row if keep_rows else record, **sizes)
    windows = -(-record.records // window_size)  # shuffle windows of an epoch
    start = Position(*map(int, start))
    if not 0 <= start.window < windows:
        raise T2TLiteError(
            f"A position in this data must have a window below {windows}; got "
            f"{start}, a position of other data."
        )

    def read_epoch(epoch):
        window = tf.where(epoch == start.epoch, start.window, 0)
        paths, skip = tf.numpy_function(
            partial(_files_of_epoch, data_dir, record, seed),
            [epoch, tf.cast(window, tf.int64) * window_size],
            [tf.string, tf.int64],
            stateful=False,
        )
        paths = tf.ensure_shape(paths, [None])
        dataset = tf.data.TFRecordDataset(paths, buffer_size=_READ_BYTES)
        return dataset.skip(tf.ensure_shape(skip, [])).batch(window_size)

    order = {"seed": seed, "windows": windows}
    options = {"packed": packing, "keep_rows": keep_rows, **order}
    dataset = (
        tf.data.Dataset.range(start.epoch, _ENDLESS)
        .flat_map(read_epoch)
        .map(lambda x: parse_examples(x, problem, record, keep_rows))
        .enumerate(start.epoch * windows + start.window)
    )
    if bpe_dropout and keep_rows:
        raise UsageError(
            "bpe_dropout is not supported for packed shards (got "
            f"{bpe_dropout}): set packing=false."
        )
    if bpe_dropout:
        drop = drop_merges(encoders, bpe_dropout, min(sizes.values()), **order)
        dataset = dataset.map(drop)
    return (
        dataset.apply(lambda x: _split_windows(x, sizes, **options))
        .skip(start.batch)
        .prefetch(_PREFETCHED_BATCHES)
        .with_options(_IN_ORDER)
    )


def _files_of_epoch(folder, record, seed, epoch, skip):
    """Return the paths after `skip` records, and what to skip in the first."""
    generator = np.random.default_rng([seed, _SHARD_ORDER, epoch])
    order = generator.permutation(len(record.shards))
    shards = [record.shards[i] for i in order]
    ends = np.cumsum([0, *(shard.examples for shard in shards)])
    first = int(np.searchsorted(ends, skip, "right")) - 1
    paths = [os.fsencode(os.path.join(folder, x.file)) for x in shards[first:]]
    return np.array(paths, object), np.int64(skip - ends[first])


def drop_merges(
    encoders: Mapping[str, Any],
    rate: float,
    max_length: int,
    seed: int,
    windows: int,
) -> Callable[[tf.Tensor, dict[str, Any]], tuple[tf.Tensor, dict[str, Any]]]:
    """Return a function that segments the texts of shuffle windows at random.

    It maps (number of the window, features). A text keeps its segmentation if
    the old or the new one is longer than `max_length`, so that each epoch has
    the same pairs. Sides with other vocabularies than SentencePiece do not
    change.

    Raises:
      UsageError: neither side has a vocabulary of SentencePiece.
    """
    samplers = {
        side: encoder.drop_merges
        for side, encoder in encoders.items()
        if hasattr(encoder, "drop_merges")
    }
    if not samplers:
        raise UsageError(
            f"bpe_dropout requires a vocabulary of SentencePiece (got {rate})."
        )

    def sample(side, number, values, splits):
        rows = np.split(values.astype(np.int32), splits[1:-1])
        seeds = [seed, _SEGMENTATIONS, *divmod(number, windows)]
        generator = np.random.default_rng([*seeds, SIDES.index(side)])
        new = samplers[side](
            [row[:-1] for row in rows],  # without EOS
            rate,
            int(generator.integers(1, 1 << 31)),
        )
        sampled = [
            np.append(ids, row[-1:])
            if max(len(ids) + 1, len(row)) <= max_length
            else row
            for ids, row in zip(new, rows, strict=True)
        ]
        lengths = np.array([*map(len, sampled)], np.int64)
        return np.concatenate(sampled).astype(np.int64), lengths

    def sample_window(number, features):
        segmented = {}
        for side in samplers:
            values, lengths = tf.numpy_function(
                partial(sample, side),
                [number, features[side].values, features[side].row_splits],
                [tf.int64, tf.int64],
                stateful=False,
            )
            segmented[side] = tf.RaggedTensor.from_row_lengths(
                tf.ensure_shape(values, [None]),
                tf.ensure_shape(lengths, [None]),
                validate=False,
            )
        return number, features | segmented

    return sample_window


def _split_windows(
    dataset, sizes, packed=False, keep_rows=False, seed=None, windows=1
):
    """Split shuffle windows into batches.

    The elements of the dataset are (number of the window, features of
    `parse_examples`). The batches have a `position`, see `training_batches`.
    The planner is `bucketing.plan_batches`, or `packing.plan_rows` for `packed`
    batches; with `keep_rows` the examples are packed rows already. An epoch has
    this number of `windows`; without a seed the order is that of evaluation.
    """
    plan: Any = partial(bucketing.plan_batches, **sizes)
    shape: Any = (None, None)
    if packed:
        plan = partial(packing.plan_rows, keep_rows=keep_rows, **sizes)
        shape = packing.packed_shape(**sizes)

    def plan_window(number, source_lengths, target_lengths):
        generator = None
        if seed is not None:
            seeds = [seed, _PLANS, *divmod(number, windows)]
            generator = np.random.default_rng(seeds)
        return plan(source_lengths, target_lengths, generator=generator)

    def gather_rows(number, features):
        lengths = [features[side].row_lengths() for side in SIDES]
        examples, rows, batches, widths = tf.numpy_function(
            plan_window, [number, *lengths], [tf.int64] * 4, stateful=False
        )
        examples = tf.ensure_shape(examples, [None])
        features = {
            name: tf.cast(tf.gather(values, examples), tf.int32)
            for name, values in features.items()
        }
        if packed and not keep_rows:
            for side in SIDES:
                features |= _join(side, features[side], rows)
        batches = tf.ensure_shape(batches, [None])
        return number, features, batches, tf.ensure_shape(widths, [None, 2])

    def slice_batches(number, features, batches, widths):
        count = tf.size(batches, tf.int64) - 1

        def slice_batch(index):
            first, end = batches[index], batches[index + 1]
            batch = {}
            for name, values in features.items():
                width = widths[index, int(name.startswith(SIDES[1]))]
                size = tf.stack([shape[0] or end - first, width])
                dense = _slice_rows(values, first, end).to_tensor(0, shape=size)
                batch[name] = tf.ensure_shape(dense, shape)
            window = number + (index + 1) // count
            epoch_and_window = window // windows, window % windows
            position = tf.stack([*epoch_and_window, (index + 1) % count])
            return batch | {"position": position}

        return tf.data.Dataset.range(count).map(slice_batch)

    return dataset.map(gather_rows).prefetch(1).flat_map(slice_batches)


def _slice_rows(values, first, end):
    """Return the rows from `first` to `end`, like `values[first:end]`."""
    splits = values.row_splits[first : end + 1]
    tokens = values.values[splits[0] : splits[-1]]
    splits -= splits[0]
    return tf.RaggedTensor.from_row_splits(tokens, splits, validate=False)


def _check_lengths(record, max_positions, max_length):
    too_long = record.too_long(max_length)
    if record.examples == too_long:
        raise T2TLiteError(
            f"No pair is usable: of {record.examples}, {too_long} are longer "
            f"than max_length={max_length} tokens. Raise max_length."
        )
    if min(record.max_length, max_length) > max_positions:
        raise T2TLiteError(
            "batch_tokens / gradient_accumulation_steps must be at least "
            f"min(max_length, longest pair); got {max_positions}, "
            f"max_length={max_length}, longest={record.max_length}. Lower "
            "max_length or gradient_accumulation_steps, or raise batch_tokens."
        )


class PaddingReport(NamedTuple):
    """The padding in the batches of the train split; see `padding_report`."""

    examples: int  # pairs or packed rows of the split
    unit: str  # "pairs" or "packed rows"
    too_long: int  # examples longer than `max_length`
    batches: int  # estimated number of batches of an epoch
    token_fraction: float  # tokens / positions of both sides together, 0-1

    def __str__(self) -> str:
        too_long = f", {self.too_long:,} too long" if self.too_long else ""
        return (
            f"{self.examples:,} {self.unit}{too_long}; about "
            f"{self.batches:,} batches an epoch, {self.token_fraction:.1%} of "
            "their positions are real tokens"
        )


def padding_report(
    data_dir: PathLike,
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
        sides = np.concatenate([batch[name] for name in SIDES], axis=1)
        real += int(np.count_nonzero(sides))
        positions += sides.size
        # [B, S], the number of a token's example in its row
        has_pairs = packing and unit == "pairs"
        numbers = batch["inputs_segmentation"] if has_pairs else sides > 0
        examples += int(numbers.max(axis=1).sum())
        batches += 1
        if batch["position"][0]:  # the epoch is complete
            break
    too_long = record.too_long(max_length)
    used = record.examples - too_long
    share, total = real / positions, round(batches * used / examples)
    return PaddingReport(record.examples, unit, too_long, total, share)


@_no_autograph
def eval_batches(
    data_dir: PathLike,
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
    sizes = {"max_positions": max_positions, "max_length": max_length}
    _check_lengths(record, **sizes)
    return (
        _read_windows(data_dir, record)
        .map(lambda x: parse_examples(x, problem, record))
        .enumerate()
        .apply(lambda x: _split_windows(x, sizes))
        .map(lambda batch: {side: batch[side] for side in SIDES})
        .prefetch(_PREFETCHED_BATCHES)
        .with_options(_IN_ORDER)
    )


def read_pairs(
    data_dir: PathLike, problem: Problem, manifest: Manifest, split: str
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield the (inputs, targets) ids of a split in file order.

    Both are int64 [length] and end in EOS; a reversed problem swaps them.
    """
    record = manifest.split(split)
    for serialized in _read_windows(data_dir, record):
        sides = parse_examples(serialized, problem, record)
        rows = [
            np.split(side.values.numpy(), side.row_splits.numpy()[1:-1])
            for side in sides.values()
        ]
        yield from zip(*rows, strict=True)


def _read_windows(data_dir, record):
    """Return the serialized examples of a split, string [N], in file order."""
    paths = [os.path.join(data_dir, shard.file) for shard in record.shards]
    dataset = tf.data.TFRecordDataset(paths, buffer_size=_READ_BYTES)
    return dataset.batch(WINDOW_SIZE)


@contextlib.contextmanager
def read_errors(
    data_dir: PathLike, problem: Problem, manifest: Manifest
) -> Iterator[None]:
    """Turn TensorFlow's errors while reading data into a T2TLiteError.

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
        check_shards(data_dir, problem, manifest)
        raise T2TLiteError(
            f"Cannot read the data in {data_dir}: {format_error(error)}."
        ) from error


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


def _join(side, texts, rows):
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
