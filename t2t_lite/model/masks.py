"""Masks: bool, True at a real token that may be attended.

A packed row holds several sentences, which do not see one another. Where a
function takes `Segments` or None, None means one sentence a row.
"""

from collections.abc import Mapping
from typing import NamedTuple, Self

from keras import ops

from t2t_lite.ops import Tensor

PAD_ID = 0

# Added to the scores of positions that may not be attended. Finite, so that the
# softmax of a row without any visible position (a sentence of padding) is a
# mean, not NaN.
MASKED_SCORE = -1e9


class Segments(NamedTuple):
    """The sentences of packed rows.

    Attributes:
      numbers: int [B, T], the number of the sentence that a position belongs
        to, from 1; 0 at padding. A pair has the same number on both sides.
      positions: int [B, T], the index of a token in its sentence, from 0.
    """

    numbers: Tensor
    positions: Tensor

    @classmethod
    def of(cls, features: Mapping[str, Tensor], side: str) -> Self | None:
        """Return the segments of `inputs` or `targets`; None if not packed."""
        if f"{side}_segmentation" not in features:
            return None
        return cls(
            ops.cast(features[f"{side}_segmentation"], "int32"),
            ops.cast(features[f"{side}_position"], "int32"),
        )


def padding_mask(ids: Tensor) -> Tensor:
    """Return bool [B, S], True where `ids`, int [B, S], is a real token."""
    return ops.not_equal(ids, PAD_ID)


def causal_mask(length: int | Tensor) -> Tensor:
    """Return the mask that lets target position t see positions 0..t.

    Returns:
      bool [1, 1, length, length], True where attention is allowed.
    """
    positions = ops.arange(length)
    return (positions[None, :] <= positions[:, None])[None, None]


def band_mask(
    queries: int | Tensor,
    keys: int | Tensor,
    radius: int,
    causal: bool,
    offset: int = 0,
) -> Tensor:
    """Return the mask that lets a query see keys at most `radius` away.

    Args:
      queries: number of queries, at positions 0, 1, ...
      keys: number of keys, at positions `offset`, `offset + 1`, ...
      radius: largest visible distance, at least 0.
      causal: hide the keys after the query.
      offset: position of the first key.

    Returns:
      bool [1, 1, queries, keys], True where attention is allowed.
    """
    distances = (ops.arange(keys) + offset)[None] - ops.arange(queries)[:, None]
    last = 0 if causal else radius
    near = ops.logical_and(distances >= -radius, distances <= last)
    return near[None, None]


def segment_mask(numbers: Tensor, source_numbers: Tensor) -> Tensor:
    """Return the mask that lets a position see its own sentence.

    Args:
      numbers: int [B, T], the sentence of each query.
      source_numbers: int [B, S], the sentence of each key.

    Returns:
      bool [B, 1, T, S], True where attention is allowed.
    """
    return ops.equal(numbers[:, None, :, None], source_numbers[:, None, None])


def attention_scores_bias(mask: Tensor) -> Tensor:
    """Return the float32 that hides all but `mask`: 0 where it is True."""
    return ops.where(mask, 0.0, MASKED_SCORE)


def source_bias(
    mask: Tensor,
    segments: Segments | None = None,
    source_segments: Segments | None = None,
) -> Tensor:
    """Return the bias of attention to the source.

    Args:
      mask: bool [B, S], the real tokens of the source.
      segments: of the queries, [B, T], or None.
      source_segments: of the source, [B, S], or None.

    Returns:
      float32 [B, 1, 1, S]; with segments, [B, 1, T, S].
    """
    if segments is None or source_segments is None:
        return attention_scores_bias(mask)[:, None, None, :]
    return attention_scores_bias(
        segment_mask(segments.numbers, source_segments.numbers)
    )


def causal_bias(
    length: int | Tensor, segments: Segments | None = None
) -> Tensor:
    """Return the bias of causal self-attention.

    Returns:
      float32 [1, 1, T, T]; with segments, [B, 1, T, T].
    """
    mask = causal_mask(length)
    if segments is not None:
        same = segment_mask(segments.numbers, segments.numbers)
        mask = ops.logical_and(mask, same)
    return attention_scores_bias(mask)


def shift_right(targets: Tensor, segments: Segments | None = None) -> Tensor:
    """Shift targets right: int [B, T], padding before the first.

    Without segments a packed row is shifted as a whole: the first target of a
    later sentence follows the last position before it.
    """
    previous = ops.pad(targets, ((0, 0), (1, 0)))[:, :-1]
    if segments is not None:
        is_first = ops.equal(segments.positions, 0)
        previous = ops.where(is_first, PAD_ID, previous)
    return previous
