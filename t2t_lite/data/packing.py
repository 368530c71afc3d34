"""Packing: assign several pairs to each row of a batch, in plain numpy.

Packing is the alternative to `bucketing`. A row is as wide as the longest
allowed pair and contains consecutive pairs, which the model keeps separate.
All batches have the same shape. This module does not import TensorFlow.
"""

import math

import numpy as np

from t2t_lite.data.bucketing import Plan, length_filter

SIDES = ("inputs", "targets")
# Features of a side in a packed batch: ids, pair numbers and positions.
FEATURE_SUFFIXES = ("", "_segmentation", "_position")
# Initial bins relative to the minimum for all tokens. With less, each of the
# last pairs would need a bin of its own.
_SPARE = 1.01
# Pairs and bins are matched by the difference of their sides in groups of
# similar size. Larger groups match better, but long pairs fit less often.
_GROUP_SIZE = 64


def feature_names(packing: bool) -> list[str]:
    """Return the names of the features of a batch, as in tensor2tensor.

    They are `inputs` and `targets`. For packing, each side also has
    `SIDE_segmentation`, the number of a token's pair in its row, from 1, and
    `SIDE_position`, its index in the text, from 0. Both are 0 at padding.
    """
    if not packing:
        return list(SIDES)
    return [side + suffix for side in SIDES for suffix in FEATURE_SUFFIXES]


def packed_shape(max_positions: int, max_length: int) -> tuple[int, int]:
    """Return the (rows, width) of all packed batches, for either side.

    Example: 4096 positions and pairs of up to 256 tokens give 16 rows.
    """
    width = min(max_length, max_positions)
    return max_positions // width, width


def plan_rows(
    source_lengths: np.ndarray,
    target_lengths: np.ndarray,
    *,
    max_positions: int,
    max_length: int,
    generator: np.random.Generator | None = None,
    keep_rows: bool = False,
) -> Plan:
    """Pack a shuffle window into few rows by a fast heuristic.

    The arguments are explained in `bucketing.plan_batches`; with `keep_rows`
    the examples are packed rows already.

    Returns:
      A `Plan`, a pure function of the arguments. The last rows of its last
      batch may be empty.
    """
    height, width = packed_shape(max_positions, max_length)
    examples = length_filter(source_lengths, target_lengths, width)
    if keep_rows:
        if generator is not None:
            examples = generator.permutation(examples)
        rows = np.arange(len(examples) + 1)
    else:
        lengths = np.stack([source_lengths[examples], target_lengths[examples]])
        noise = 0 if generator is None else generator.random(len(examples))
        # Longest first; the order of equal lengths is random.
        order = np.argsort(noise - lengths.max(axis=0), kind="stable")
        bins, count = _assign_bins(lengths, order, height, width)
        if generator is not None:
            bins = generator.permutation(count)[bins]
        by_bin = np.argsort(bins, kind="stable")
        rows = np.searchsorted(bins[by_bin], np.arange(count + 1))
        examples = examples[by_bin]
    count = len(rows) - 1
    batches = np.minimum(np.arange(0, count + height, height), count)
    widths = np.full((len(batches) - 1, 2), width)
    return Plan(examples, rows, batches, widths)


def join_texts(
    lengths: np.ndarray, rows: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the features of texts in shared rows, for one side.

    Example: texts of 2, 2 and 1 tokens with row splits [0, 2, 3] give the token
    splits [0, 4, 5], segments [1, 1, 2, 2, 1] and positions [0, 1, 0, 1, 0].

    Args:
      lengths: int64 [texts], tokens of each text.
      rows: int64 [rows + 1], the splits of the texts into rows.

    Returns:
      int64 [rows + 1], the splits of the tokens into rows; int32 [tokens] each,
      the values of `SIDE_segmentation` and `SIDE_position`.
    """
    starts = np.concatenate([[0], np.cumsum(lengths)])
    segments = np.arange(1, len(lengths) + 1, dtype=np.int32)
    segments -= np.repeat(rows[:-1], np.diff(rows)).astype(np.int32)
    positions = np.arange(starts[-1], dtype=np.int32)
    positions -= np.repeat(starts[:-1].astype(np.int32), lengths)
    return starts[rows], np.repeat(segments, lengths), positions


def _assign_bins(lengths, order, height, width):
    """Assign each pair to a bin, that is a row of `width` tokens on each side.

    Each round assigns the longest remaining pairs to the bins with most room,
    at most one pair per bin. Pairs that do not fit remain for the next round.
    If no pair fits, bins for whole batches of `height` rows are added.

    `lengths` are int64 [2, pairs]; `order` are the pairs by decreasing length.
    Returns the bin of each pair, int64 [pairs], and the number of bins.
    """
    bins = np.full(len(order), -1)
    free = np.empty((2, 0), np.int64)  # free tokens of each bin, either side
    progress = False
    while len(order):
        if not progress:
            tokens = lengths[:, order].sum(axis=1).max()
            extra = int(math.ceil(tokens / width) * _SPARE)
            extra = math.ceil(extra / height) * height
            free = np.pad(free, ((0, 0), (0, extra)), constant_values=width)
        count = min(len(order), free.shape[1])
        indices = np.argsort(-free.min(axis=0), kind="stable")[:count]
        # Pairs with a longer source get bins with more room for the source.
        pairs = _sort_by_difference(order[:count], lengths)
        indices = _sort_by_difference(indices, free)
        fits = (lengths[:, pairs] <= free[:, indices]).all(axis=0)
        pairs, indices = pairs[fits], indices[fits]
        bins[pairs] = indices
        free[:, indices] -= lengths[:, pairs]
        order = order[bins[order] < 0]
        progress = len(pairs) > 0
    # Keep fewer empty bins than `height`, so that no batch is empty.
    used, bins = np.unique(bins, return_inverse=True)
    return bins, math.ceil(len(used) / height) * height


def _sort_by_difference(indices: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """Sort each group of _GROUP_SIZE indices by the difference of the sides."""
    groups = np.arange(len(indices)) // _GROUP_SIZE
    differences = sizes[0, indices] - sizes[1, indices]
    return indices[np.lexsort((differences, groups))]
