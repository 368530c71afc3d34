"""Plan which examples share a batch: length classes, in plain numpy.

A portion of examples is planned at once, from its lengths alone: pairs of about
the same source and target length go together, so that little of a batch is
padding. Nothing here reads a file or imports TensorFlow.
"""

from typing import NamedTuple

import numpy as np

GROWTH = 1.05  # of boundaries, where that is more than one token
_ROW_MULTIPLE = 8  # full batches have so many rows, or a multiple
# Random part of the sorting key, in tokens: up to 1 it shuffles pairs whose
# sides differ alike; more would mix neighbors too, and cost padding.
_JITTER = 1.0


class Plan(NamedTuple):
    """The batches of one portion, in the order they are used.

    Row r holds examples `examples[rows[r]:rows[r + 1]]`: one, unless they are
    packed. Batch i holds rows `batches[i]` to `batches[i + 1] - 1`.

    Attributes:
      examples: int64 [kept examples], indices into the portion.
      rows: int64 [rows + 1], splits of the examples.
      batches: int64 [batches + 1], splits of the rows.
      widths: int64 [batches, 2], padded lengths of source and target.
    """

    examples: np.ndarray
    rows: np.ndarray
    batches: np.ndarray
    widths: np.ndarray


def length_boundaries(max_length: int, growth: float = GROWTH) -> np.ndarray:
    """Return the padded lengths of batches, the last one `max_length`.

    Example: `length_boundaries(30, growth=1.1)` is 1, 2, ... 20, 22, 24, 26,
    28, 30: each integer until a step of `growth` is more than that.

    Returns:
      int64 [classes], increasing.
    """
    boundaries = [1]
    while boundaries[-1] < max_length:
        last = boundaries[-1]
        boundaries.append(min(max(last + 1, int(last * growth)), max_length))
    return np.array(boundaries, np.int64)


def bucket_batch_size(boundary: int, max_positions: int) -> int:
    """Return the number of rows of a padded length in a batch; at least one.

    Example: of 15 in 2048 positions: 136, which is 17 times 8.
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
    """Split a portion into batches of pairs that are alike in both lengths.

    A pair belongs to the smallest boundary that its longer side fits. Inside a
    class pairs are sorted by the difference of their sides, with some noise,
    and cut into full batches. What is left over of a class (a random choice) is
    carried into the next larger one; at most one batch a portion is not full.

    Args:
      source_lengths: int [examples], tokens of each source, EOS counted.
      target_lengths: int [examples], of each target.
      max_positions: bound of rows * padded length, on either side.
      max_length: pairs with a longer side are dropped, as are empty ones.
      generator: source of all randomness; None keeps the order of the portion
        inside a length and puts the longest batches first.

    Returns:
      A `Plan`, a pure function of the arguments.
    """
    kept = length_filter(source_lengths, target_lengths, max_length)
    longest = np.maximum(source_lengths, target_lengths)
    boundaries = length_boundaries(min(max_length, max_positions))
    keys = source_lengths - target_lengths
    if generator is not None:  # noise mixes ties
        keys = keys + generator.uniform(0, _JITTER, len(keys))
    batches = _cut(
        kept,
        np.searchsorted(boundaries, longest[kept]),
        keys,
        [bucket_batch_size(boundary, max_positions) for boundary in boundaries],
        generator,
    )
    if generator is None:
        batches.reverse()
    else:
        batches = [batches[i] for i in generator.permutation(len(batches))]
    batches = [batch for batch in batches if len(batch)]
    examples = np.concatenate([kept[:0], *batches])
    splits = np.cumsum([0, *map(len, batches)], dtype=np.int64)
    widths = np.zeros((len(batches), 2), np.int64)  # as the longest rows need
    for side, lengths in enumerate((source_lengths, target_lengths)):
        if batches:
            longest = np.maximum.reduceat(lengths[examples], splits[:-1])
            widths[:, side] = boundaries[np.searchsorted(boundaries, longest)]
    return Plan(examples, np.arange(len(examples) + 1), splits, widths)


def length_filter(
    source_lengths: np.ndarray, target_lengths: np.ndarray, max_length: int
) -> np.ndarray:
    """Return the indices of examples neither empty nor too long: int64."""
    shortest = np.minimum(source_lengths, target_lengths)
    longest = np.maximum(source_lengths, target_lengths)
    return np.flatnonzero((shortest > 0) & (longest <= max_length))


def _cut(
    kept: np.ndarray,
    classes: np.ndarray,
    keys: np.ndarray,
    rows_of: list[int],
    generator: np.random.Generator | None,
) -> list[np.ndarray]:
    """Return the batches, arrays of examples, from the shortest class on."""
    by_class = np.argsort(classes, kind="stable")
    ends = np.searchsorted(classes[by_class], np.arange(len(rows_of)), "right")
    batches: list[np.ndarray] = []
    carried, start = kept[:0], 0
    for rows, end in zip(rows_of, ends, strict=True):
        if start == end:
            continue
        members = np.concatenate([carried, kept[by_class[start:end]]])
        start = end
        if generator is not None:
            members = generator.permutation(members)
        full = len(members) - len(members) % rows
        carried, members = members[full:], members[:full]
        members = members[np.argsort(keys[members], kind="stable")]
        batches.extend(np.split(members, np.arange(rows, full, rows)))
    return batches + [carried] * bool(len(carried))
