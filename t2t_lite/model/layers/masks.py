"""Masks: bool, True where there is a real token that may be attended."""

from keras import ops

from t2t_lite.model.layers.backend import Tensor

PAD_ID = 0

# Added to the scores of what may not be attended. Finite, so that a row that
# may attend nothing (a sentence of padding) softens to a mean, not to NaN.
MASKED_SCORE = -1e9


def padding_mask(ids: Tensor) -> Tensor:
    """Where `ids`, int [B, S], hold a real token: bool [B, S]."""
    return ops.not_equal(ids, PAD_ID)


def causal_mask(length: int | Tensor) -> Tensor:
    """Mask letting target position t see positions 0..t.

    Returns: bool [1, 1, length, length], True where attention is allowed.
    """
    positions = ops.arange(length)
    return (positions[None, :] <= positions[:, None])[None, None]


def band_mask(
    queries: int | Tensor,
    keys: int | Tensor,
    reach: int,
    causal: bool,
    offset: int = 0,
) -> Tensor:
    """Mask letting a query see the keys at most `reach` positions away.

    Args:
      queries: how many, at positions 0, 1, ...
      keys: how many, at positions `offset`, `offset + 1`, ...
      reach: an int, at least 0.
      causal: whether keys after the query are hidden.
      offset: the first key's position.

    Returns: bool [1, 1, queries, keys], True where attention is allowed.
    """
    distances = (ops.arange(keys) + offset)[None] - ops.arange(queries)[:, None]
    near = ops.logical_and(distances >= -reach, distances <= reach)
    if causal:
        near = ops.logical_and(near, distances <= 0)
    return near[None, None]


def attention_scores_bias(mask: Tensor) -> Tensor:
    """What to add to attention scores so that only `mask` is attended.

    Returns: float32 of its shape: 0 where True, else a large negative number.
    """
    return ops.where(mask, 0.0, MASKED_SCORE)
