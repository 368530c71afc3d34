"""Several pairs in one row: which ones share it, in plain numpy.

The alternative to `bucketing`. A row of a batch is as wide as the longest pair
may be, and pairs are put into it one after the other until none fits; the model
keeps them apart. Every batch has the same shape. Nothing here reads a file or
imports TensorFlow.
"""

import math
from typing import NamedTuple

import numpy as np

from t2t_lite.data.bucketing import usable

SIDES = ("inputs", "targets")
# What a packed batch has of each side: its ids, and where the pairs lie.
PARTS = ("", "_segmentation", "_position")
# Bins to start with, relative to what the tokens would fill without gaps. With
# none to spare the last pairs fit nowhere, and each needs a bin of its own.
_SPARE = 1.01
# Pairs and bins of about equal size, which are then matched by how their sides
# differ: larger groups match better, and give long pairs less of the room.
_MATCHED = 64


class PackedPlan(NamedTuple):
    """The packed rows of one portion, here called bins, in the order of use.

    Bin i holds examples `rows[splits[i]:splits[i + 1]]` of the portion, side by
    side. A batch is the next `height` bins; the last ones may be empty.

    Attributes:
      rows: int64 [kept examples], indices into the portion.
      splits: int64 [bins + 1].
      height: rows of a batch.
      width: positions of a row, either side.
    """

    rows: np.ndarray
    splits: np.ndarray
    height: int
    width: int

    def shapes(self) -> np.ndarray:
        """Rows, source and target width of each batch: int64 [batches, 3]."""
        batches = (len(self.splits) - 1) // self.height
        return np.tile([self.height, self.width, self.width], (batches, 1))


def feature_names(packing: bool) -> list[str]:
    """What a batch has for the model; packed ones have tensor2tensor's names.

    Returns:
      `inputs` and `targets`; packed: for each SIDE of them `SIDE_segmentation`,
      the number of a token's pair in its row, from 1, and `SIDE_position`, its
      place in the sentence, from 0. Both are 0 at padding.
    """
    if not packing:
        return list(SIDES)
    return [side + part for side in SIDES for part in PARTS]


def packed_shape(max_positions: int, max_length: int) -> tuple[int, int]:
    """The (rows, width) of every packed batch, of either side.

    Example: 4096 positions of pairs up to 256 long are 16 rows.

    Args:
      max_positions: bound of rows * width.
      max_length: longer pairs are dropped.
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
) -> PackedPlan:
    """Packs a portion into as few rows as can be found quickly.

    Args: as in `bucketing.plan_batches`.

    Returns:
      A `PackedPlan`, a pure function of the arguments.
    """
    height, width = packed_shape(max_positions, max_length)
    kept = usable(source_lengths, target_lengths, max_length)
    lengths = np.stack([source_lengths[kept], target_lengths[kept]])
    noise = 0 if generator is None else generator.random(len(kept))
    # Longest first, ties at random.
    order = np.argsort(noise - lengths.max(axis=0), kind="stable")
    bins, count = _bins_of(lengths, order, height, width)
    if generator is not None:
        bins = generator.permutation(count)[bins]
    by_bin = np.argsort(bins, kind="stable")
    splits = np.searchsorted(bins[by_bin], np.arange(count + 1))
    return PackedPlan(kept[by_bin], splits, height, width)


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
    """The bin of each pair, int64 [pairs], and how many bins there are.

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
        places = np.argsort(-room.min(axis=0), kind="stable")[:count]
        # A longer source goes where the sources have more room.
        pairs = _matched(order[:count], lengths)
        places = _matched(places, room)
        fits = (lengths[:, pairs] <= room[:, places]).all(axis=0)
        pairs, places = pairs[fits], places[fits]
        bins[pairs] = places
        room[:, places] -= lengths[:, pairs]
        order = order[bins[order] < 0]
        progress = len(pairs) > 0
    # Fewer empty bins than a batch has, so that no batch is all empty.
    used, bins = np.unique(bins, return_inverse=True)
    return bins, math.ceil(len(used) / height) * height


def _matched(indices: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """Sorted, in each group of neighbors, by the difference of the sides."""
    groups = np.arange(len(indices)) // _MATCHED
    differences = sizes[0, indices] - sizes[1, indices]
    return indices[np.lexsort((differences, groups))]
