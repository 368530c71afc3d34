"""Packed rows: several sentences side by side, kept apart.

Where a function takes `Segments` or None, None means one sentence a row.
"""

from collections.abc import Mapping
from typing import NamedTuple, Self

from keras import ops

from t2t_lite.model.layers.backend import Tensor
from t2t_lite.model.layers.masks import (
    PAD_ID,
    attention_scores_bias,
    causal_mask,
)


class Segments(NamedTuple):
    """Where the sentences of packed rows lie.

    Attributes:
      numbers: int [B, T], which of a row's sentences a position belongs to,
        from 1; 0 at padding. A pair has the same number on either side.
      positions: int [B, T], places in the sentence, from 0.
    """

    numbers: Tensor
    positions: Tensor

    @classmethod
    def of(cls, features: Mapping[str, Tensor], side: str) -> Self | None:
        """Those of `inputs` or `targets`; None if rows hold one sentence."""
        if f"{side}_segmentation" not in features:
            return None
        return cls(
            ops.cast(features[f"{side}_segmentation"], "int32"),
            ops.cast(features[f"{side}_position"], "int32"),
        )


def segment_mask(segments: Segments, memory_segments: Segments) -> Tensor:
    """Where those of [B, T] may see those of [B, S]: bool [B, 1, T, S]."""
    asking, asked = segments.numbers, memory_segments.numbers
    return ops.equal(asking[:, None, :, None], asked[:, None, None, :])


def source_bias(
    mask: Tensor,
    segments: Segments | None = None,
    source_segments: Segments | None = None,
) -> Tensor:
    """What attention to the source adds to its scores.

    Args:
      mask: bool [B, S], the real tokens of the source.
      segments: `Segments` of what asks, [B, T], or None.
      source_segments: `Segments` of the source, [B, S], or None.

    Returns: float32 [B, 1, 1, S]; with segments, [B, 1, T, S].
    """
    if segments is None or source_segments is None:
        return attention_scores_bias(mask)[:, None, None, :]
    return attention_scores_bias(segment_mask(segments, source_segments))


def causal_bias(
    length: int | Tensor, segments: Segments | None = None
) -> Tensor:
    """What causal self-attention adds to its scores.

    Returns: float32 [1, 1, T, T]; with segments, [B, 1, T, T].
    """
    mask = causal_mask(length)
    if segments is not None:
        mask = ops.logical_and(mask, segment_mask(segments, segments))
    return attention_scores_bias(mask)


def previous_targets(
    targets: Tensor, segments: Segments | None = None
) -> Tensor:
    """The target before each one; padding before the first: int [B, T].

    Without segments a packed row is shifted as a whole: before the first target
    of a later sentence is whatever lies there.
    """
    previous = ops.pad(targets, ((0, 0), (1, 0)))[:, :-1]
    if segments is not None:
        is_first = ops.equal(segments.positions, 0)
        previous = ops.where(is_first, PAD_ID, previous)
    return previous
