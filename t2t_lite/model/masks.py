"""Masks: bool, True where a real token may be attended.

A packed row contains several sentences that do not attend to each other. If an
argument is `Segments` or None, None means one sentence per row.
"""

from collections.abc import Mapping
from typing import NamedTuple, Self

from keras import ops

from t2t_lite.ops import Tensor

PAD_ID = 0

# Added to the scores of masked positions. It is finite, so that the softmax of
# a row without a visible position (a sentence of padding) is not NaN.
MASKED_SCORE = -1e9


class Segments(NamedTuple):
    """The sentences of packed rows; both sides of a pair have the same id."""

    segment_ids: Tensor  # int [B, T], from 1; 0 at padding
    positions: Tensor  # int [B, T], the index in the sentence, from 0

    @classmethod
    def from_features(
        cls, features: Mapping[str, Tensor], side: str
    ) -> Self | None:
        """Return the segments of `inputs` or `targets`; None if not packed."""
        if f"{side}_segmentation" not in features:
            return None
        return cls(
            ops.cast(features[f"{side}_segmentation"], "int32"),
            ops.cast(features[f"{side}_position"], "int32"),
        )


def padding_mask(ids: Tensor) -> Tensor:
    """Return bool [B, S], True where `ids`, int [B, S], are real tokens."""
    return ops.not_equal(ids, PAD_ID)


def causal_mask(length: int | Tensor) -> Tensor:
    """Return the mask of positions 0..t for each t, bool [1, 1, T, T]."""
    positions = ops.arange(length)
    return (positions[None, :] <= positions[:, None])[None, None]


def band_mask(
    queries: int | Tensor,
    keys: int | Tensor,
    radius: int,
    causal: bool,
    offset: int = 0,
) -> Tensor:
    """Return the mask of keys at most `radius` away: bool [1, 1, T, S].

    Args:
      queries: T, the number of queries, at the positions 0, 1, ...
      keys: S, the number of keys, at the positions `offset`, `offset + 1`, ...
      radius: largest visible distance, at least 0.
      causal: hide the keys after the query.
      offset: position of the first key.
    """
    distances = (ops.arange(keys) + offset)[None] - ops.arange(queries)[:, None]
    last = 0 if causal else radius
    near = ops.logical_and(distances >= -radius, distances <= last)
    return near[None, None]


def segment_mask(query_ids: Tensor, key_ids: Tensor) -> Tensor:
    """Return the mask of a position's own sentence, bool [B, 1, T, S].

    The arguments are segment ids, int [B, T] of queries and [B, S] of keys.
    """
    return ops.equal(query_ids[:, None, :, None], key_ids[:, None, None])


def attention_scores_bias(mask: Tensor) -> Tensor:
    """Return the float32 bias of a mask: 0 if True, else MASKED_SCORE."""
    return ops.where(mask, 0.0, MASKED_SCORE)


def source_bias(
    mask: Tensor,
    segments: Segments | None = None,
    source_segments: Segments | None = None,
) -> Tensor:
    """Return the bias of attention to the source, given its padding mask.

    The result is float32 [B, 1, 1, S]; with the segments of the queries and of
    the source, it is [B, 1, T, S].
    """
    if segments is None or source_segments is None:
        return attention_scores_bias(mask)[:, None, None, :]
    return attention_scores_bias(
        segment_mask(segments.segment_ids, source_segments.segment_ids)
    )


def causal_bias(
    length: int | Tensor, segments: Segments | None = None
) -> Tensor:
    """Return the causal bias: float32 [1, 1, T, T]; [B, ...] with segments."""
    mask = causal_mask(length)
    if segments is not None:
        ids = segments.segment_ids
        mask = ops.logical_and(mask, segment_mask(ids, ids))
    return attention_scores_bias(mask)


def shift_right(targets: Tensor, segments: Segments | None = None) -> Tensor:
    """Shift targets, int [B, T], right by one; the first one is padding.

    With segments, each sentence of a packed row is shifted separately; without,
    the first target of a sentence follows the end of the previous sentence.
    """
    previous = ops.pad(targets, ((0, 0), (1, 0)))[:, :-1]
    if segments is not None:
        is_first = ops.equal(segments.positions, 0)
        previous = ops.where(is_first, PAD_ID, previous)
    return previous
