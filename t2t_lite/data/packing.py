"""Several pairs in one row: which ones share it, in plain numpy.

The alternative to `bucketing`. A row of a batch is as wide as the longest pair
may be, and pairs are put into it one after the other until none fits; the model
keeps them apart. Every batch has the same shape. Nothing here reads a file or
imports TensorFlow.
"""

import math

import numpy as np

from t2t_lite.data.bucketing import Plan, length_filter

SIDES = ("inputs", "targets")
# What a packed batch has of each side: its ids, and where the pairs lie.
PARTS = ("", "_segmentation", "_position")
# Bins to start with, relative to what the tokens would fill without gaps. With
# none to spare the last pairs fit nowhere, and each needs a bin of its own.
_SPARE = 1.01
# Pairs and bins of about equal size, which are then matched by how their sides
# differ: larger groups match better, and give long pairs less of the room.
_MATCHED = 64


def feature_names(packing: bool) -> list[str]:
    """Return the features of a batch; packed ones have tensor2tensor's names.

    They are `inputs` and `targets`; packed also for each `SIDE_segmentation`,
    the number of a token's pair in its row, from 1, and `SIDE_position`, its
    index in the text, from 0. Both are 0 at padding.
    """
    if not packing:
        return list(SIDES)
    return [side + part for side in SIDES for part in PARTS]


def packed_shape(max_positions: int, max_length: int) -> tuple[int, int]:
    """Return the (rows, width) of every packed batch, of either side.

    Example: 4096 positions of pairs up to 256 long are 16 rows.
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
    """Pack a portion into as few rows as can be found quickly.

    Args: as in `bucketing.plan_batches`; `keep_rows` says that the examples are
      packed rows already.

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
        # Longest first, ties at random.
        order = np.argsort(noise - lengths.max(axis=0), kind="stable")
        bins, count = _bins_of(lengths, order, height, width)
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
    """Return the features of texts that share rows, for one side.

    Example: texts of 2, 2 and 1 tokens with row splits [0, 2, 3] give the token
    splits [0, 4, 5], segments [1, 1, 2, 2, 1] and positions [0, 1, 0, 1, 0].

    Args:
      lengths: int64 [texts].
      rows: int64 [rows + 1], the splits of the texts into rows.

    Returns:
      int64 [rows + 1], the splits of the tokens into rows; int32 [tokens] each,
      the number of a token's text in its row, from 1, and its position in it.
    """
    starts = np.concatenate([[0], np.cumsum(lengths)])
    segments = np.arange(1, len(lengths) + 1, dtype=np.int32)
    segments -= np.repeat(rows[:-1], np.diff(rows)).astype(np.int32)
    positions = np.arange(starts[-1], dtype=np.int32)
    positions -= np.repeat(starts[:-1].astype(np.int32), lengths)
    return starts[rows], np.repeat(segments, lengths), positions


def _bins_of(
    lengths: np.ndarray, order: np.ndarray, height: int, width: int
) -> tuple[np.ndarray, int]:
    """Return the bin, a row, of each pair, int64 [pairs]; and their number.

    Every round gives the longest pairs that wait, one each, to the bins with
    most room. A pair that does not fit waits for the next round; if none fits,
    there are more bins, in whole batches.

    Args:
      lengths: int64 [2, pairs], tokens of either side.
      order: int64 [pairs], the longest pair first.
      height: bins are a multiple of it.
      width: of a bin, either side.
    """
    bins = np.full(len(order), -1)
    room = np.empty((2, 0), np.int64)  # left in each bin, of either side
    progress = False
    while len(order):
        if not progress:
            tokens = lengths[:, order].sum(axis=1).max()
            more = int(math.ceil(tokens / width) * _SPARE)
            more = math.ceil(more / height) * height
            room = np.pad(room, ((0, 0), (0, more)), constant_values=width)
        count = min(len(order), room.shape[1])
        indices = np.argsort(-room.min(axis=0), kind="stable")[:count]
        # A longer source goes where the sources have more room.
        pairs = _matched(order[:count], lengths)
        indices = _matched(indices, room)
        fits = (lengths[:, pairs] <= room[:, indices]).all(axis=0)
        pairs, indices = pairs[fits], indices[fits]
        bins[pairs] = indices
        room[:, indices] -= lengths[:, pairs]
        order = order[bins[order] < 0]
        progress = len(pairs) > 0
    # Fewer empty bins than a batch has, so that no batch is all empty.
    used, bins = np.unique(bins, return_inverse=True)
    return bins, math.ceil(len(used) / height) * height


def _matched(indices: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """Sort each group of neighbors by the difference of the sides."""
    groups = np.arange(len(indices)) // _MATCHED
    differences = sizes[0, indices] - sizes[1, indices]
    return indices[np.lexsort((differences, groups))]
