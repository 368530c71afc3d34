"""Self-attention restricted to a neighborhood (section 4 and table 1).

Queries are cut into blocks of L positions, L at least as long as the window
reaches. A block's queries then see nothing beyond the block before it and the
one behind it, so that time and memory grow with T * 3L instead of T * T.
"""

from collections.abc import Callable

from keras import ops

from t2t_lite.model.layers.backend import Tensor
from t2t_lite.model.layers.masks import (
    MASKED_SCORE,
    attention_scores_bias,
    band_mask,
)

# Blocks of a few positions would make more of the overhead than of the work.
_SHORTEST_BLOCK = 32


def attend_window(
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    bias: Tensor | None,
    reach: int,
    causal: bool,
    drop: Callable[[Tensor], Tensor] = lambda weights: weights,
    segments: Tensor | None = None,
) -> Tensor:
    """The weighted values of the positions at most `reach` away.

    Args:
      query: float [B, H, T, d_k], scaled.
      keys: float [B, H, T, d_k].
      values: float [B, H, T, d_v].
      bias: float [B, 1, 1, T], added to the scores of each key; None: 0.
      reach: positions seen on either side; an int, at least 0.
      causal: whether positions after the query's are hidden.
      drop: applied to the attention weights.
      segments: int [B, T]; a position sees those of the same number. None:
        all are of one.

    Returns: float [B, H, T, d_v].
    """
    batch, heads, length, _ = ops.shape(query)
    block = max(reach, _SHORTEST_BLOCK)
    count = (length + block - 1) // block
    before, behind = (1, 0) if causal else (1, 1)
    padding = count * block - length

    def neighbors(x, fill=0):
        """[B, h, T, d] to [B, h, N, (1 + before + behind) L, d]."""
        room = (before * block, padding + behind * block)
        x = ops.pad(x, ((0, 0), (0, 0), room, (0, 0)), constant_values=fill)
        parts = [
            x[:, :, i * block : (i + count) * block]
            for i in range(1 + before + behind)
        ]
        return ops.concatenate([_blocks(part, block) for part in parts], axis=3)

    def own(x):
        """[B, h, T, d] to [B, h, N, L, d]."""
        x = ops.pad(x, ((0, 0), (0, 0), (0, padding), (0, 0)))
        return _blocks(x, block)

    scores = ops.matmul(
        own(query), ops.swapaxes(neighbors(keys), -1, -2)
    )  # [B, H, N, L, 3L]
    if bias is None:
        bias = ops.zeros((1, 1, 1, length))
    bias = ops.cast(bias, "float32")  # a layer's call makes it bfloat16
    bias = neighbors(ops.swapaxes(bias, -1, -2), MASKED_SCORE)
    band = band_mask(
        block, (1 + before + behind) * block, reach, causal, -before * block
    )
    scores = (
        ops.cast(scores, "float32")
        + attention_scores_bias(band)[:, :, None]
        + ops.swapaxes(bias, -1, -2)  # [B, 1, N, 1, 3L]
    )
    if segments is not None:
        segments = segments[:, None, :, None]
        others = ops.swapaxes(neighbors(segments), -1, -2)  # [B, 1, N, 1, 3L]
        same = ops.equal(own(segments), others)
        scores = scores + attention_scores_bias(same)  # [B, 1, N, L, 3L]
    weights = drop(ops.softmax(scores, axis=-1))
    context = ops.matmul(ops.cast(weights, values.dtype), neighbors(values))
    context = ops.reshape(
        context, (batch, heads, count * block, values.shape[-1])
    )
    return context[:, :, :length]


def _blocks(x, block):
    """[B, h, N * L, d] to [B, h, N, L, d]."""
    batch, heads, length, depth = ops.shape(x)
    return ops.reshape(x, (batch, heads, length // block, block, depth))
