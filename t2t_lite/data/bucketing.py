"""Bucketing by length: assign examples to batches, in plain numpy.

Pairs with similar source and target lengths share a batch, so that a batch has
little padding. The plan of a shuffle window depends only on the lengths of its
examples. This module reads no files and does not import TensorFlow.
"""

from typing import NamedTuple

import numpy as np

GROWTH = 1.05  # minimum ratio of boundaries, if that exceeds one token
_ROW_MULTIPLE = 8  # the number of rows of full batches is a multiple of it
# Random part of the sorting key, in tokens. Up to 1 it shuffles pairs with the
# same length difference; more would mix differences and add padding.
_JITTER = 1.0


class Plan(NamedTuple):
    """The batches of one shuffle window, in the order of training.

    Row r contains `examples[rows[r]:rows[r + 1]]`: several if packed, else one.
    Batch i contains the rows from `batches[i]` to `batches[i + 1] - 1`.
    """

    examples: np.ndarray  # int64 [kept examples], indices into the window
    rows: np.ndarray  # int64 [rows + 1], splits of the examples into rows
    batches: np.ndarray  # int64 [batches + 1], splits of the rows into batches
    widths: np.ndarray  # int64 [batches, 2], padded source and target lengths


def length_boundaries(max_length: int, growth: float = GROWTH) -> np.ndarray:
    """Return the padded lengths of batches up to `max_length`.

    Example: `length_boundaries(30, growth=1.1)` is 1, 2, ... 20, 22, 24, 26,
    28, 30: consecutive integers until a factor of `growth` adds more than one.

    Returns:
      int64 [classes], increasing.
    """
    boundaries = [1]
    while boundaries[-1] < max_length:
        last = boundaries[-1]
        boundaries.append(min(max(last + 1, int(last * growth)), max_length))
    return np.array(boundaries, np.int64)


def bucket_batch_size(boundary: int, max_positions: int) -> int:
    """Return the number of rows in a batch of a padded length; at least one.

    Example: length 15 and 2048 positions give 136 rows, which is 17 * 8.
    """
    rows = max_positions // boundary
    if rows >= _ROW_MULTIPLE:
        rows -= rows % _ROW_MULTIPLE
    return max(rows, 1)


def plan_batches(
    source_lengths: np.ndarray,
    target_lengths: np.ndarray,
    *,
    max_positions: int,
    max_length: int,
    generator: np.random.Generator | None = None,
) -> Plan:
    """Split a shuffle window into batches of pairs with similar lengths.

    The bucket of a pair has the smallest boundary that fits its longer side.
    Pairs of a bucket are sorted by the difference of their sides, with some
    noise, and split into full batches. The remainder of a bucket, selected at
    random, moves to the next larger bucket, so at most one batch is not full.

    Args:
      source_lengths: int [examples], tokens of each source, EOS included.
      target_lengths: int [examples], tokens of each target, EOS included.
      max_positions: maximum of rows * padded length on either side.
      max_length: maximum tokens of a side; longer and empty pairs are dropped.
      generator: source of all randomness; None keeps the order of the examples
        within a bucket and puts the longest batches first.

    Returns:
      A `Plan`, a pure function of the arguments.
    """
    kept = length_filter(source_lengths, target_lengths, max_length)
    lengths = np.maximum(source_lengths, target_lengths)
    boundaries = length_boundaries(min(max_length, max_positions))
    keys = source_lengths - target_lengths
    if generator is not None:  # noise mixes ties
        keys = keys + generator.uniform(0, _JITTER, len(keys))
    buckets = np.searchsorted(boundaries, lengths[kept])
    sizes = [bucket_batch_size(x, max_positions) for x in boundaries]
    batches = _split_buckets(kept, buckets, keys, sizes, generator)
    if generator is None:
        batches.reverse()
    else:
        batches = [batches[i] for i in generator.permutation(len(batches))]
    batches = [batch for batch in batches if len(batch)]
    examples = np.concatenate([kept[:0], *batches])
    splits = np.cumsum([0, *map(len, batches)], dtype=np.int64)
    widths = np.zeros((len(batches), 2), np.int64)  # for the longest rows
    for side, lengths in enumerate((source_lengths, target_lengths)):
        if batches:
            max_lengths = np.maximum.reduceat(lengths[examples], splits[:-1])
            indices = np.searchsorted(boundaries, max_lengths)
            widths[:, side] = boundaries[indices]
    return Plan(examples, np.arange(len(examples) + 1), splits, widths)


def length_filter(
    source_lengths: np.ndarray, target_lengths: np.ndarray, max_length: int
) -> np.ndarray:
    """Return the indices, int64, of examples neither empty nor too long."""
    lengths = np.stack([source_lengths, target_lengths])
    return np.flatnonzero(((lengths > 0) & (lengths <= max_length)).all(axis=0))


def _split_buckets(kept, buckets, keys, batch_sizes, generator):
    """Return the examples of each batch, from the shortest bucket on.

    The arrays are int64: the kept examples, their buckets, and sort keys.
    """
    order = np.argsort(buckets, kind="stable")
    ends = np.searchsorted(buckets[order], np.arange(len(batch_sizes)), "right")
    batches: list[np.ndarray] = []
    carried, start = kept[:0], 0
    for size, end in zip(batch_sizes, ends, strict=True):
        if start == end:
            continue
        bucket = np.concatenate([carried, kept[order[start:end]]])
        start = end
        if generator is not None:
            bucket = generator.permutation(bucket)
        full = len(bucket) - len(bucket) % size
        carried, bucket = bucket[full:], bucket[:full]
        bucket = bucket[np.argsort(keys[bucket], kind="stable")]
        batches.extend(np.split(bucket, np.arange(size, full, size)))
    return batches + [carried] * bool(len(carried))
