"""Self-attention restricted to a neighborhood (section 4 and table 1).

Queries are split into blocks of L positions, L at least as long as the window
reaches. The queries of a block see only the block before, their own and, unless
attention is causal, the one after, so that time and memory grow with T * 3L
instead of T * T.
"""

from collections.abc import Callable

from keras import ops

from t2t_lite.model.masks import attention_scores_bias, band_mask
from t2t_lite.ops import Tensor

# Blocks of a few positions cost more overhead than arithmetic.
_MIN_BLOCK = 32


def local_attention(
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    segments: Tensor,
    radius: int,
    causal: bool,
    drop: Callable[[Tensor], Tensor],
) -> Tensor:
    """Return the weighted values of the positions at most `radius` away.

    Args:
      query: float [B, H, T, d_k], scaled.
      keys: float [B, H, T, d_k].
      values: float [B, H, T, d_v].
      segments: int [B, T]; a position sees positions of the same number.
      radius: positions seen on either side, at least 0.
      causal: hide the positions after the query.
      drop: applied to the attention weights.

    Returns:
      float [B, H, T, d_v].
    """
    length = ops.shape(query)[2]
    block = max(radius, _MIN_BLOCK)
    count = (length + block - 1) // block  # N blocks
    width = 2 if causal else 3  # blocks that a query sees

    def blocks(x, width, fill=0):
        """[B, h, T, d] -> [B, h, N, width * L, d]: each block's own, or all."""
        room = (width > 1) * block, (count + (width > 2)) * block - length
        x = ops.pad(x, ((0, 0), (0, 0), room, (0, 0)), constant_values=fill)
        batch, heads, size, depth = ops.shape(x)
        x = ops.reshape(x, (batch, heads, size // block, block, depth))
        return ops.concatenate(
            [x[:, :, i : i + count] for i in range(width)], axis=3
        )

    scores = ops.matmul(
        blocks(query, 1), ops.swapaxes(blocks(keys, width), -1, -2)
    )
    segments = segments[:, None, :, None]
    others = ops.swapaxes(blocks(segments, width, -1), -1, -2)
    mask = ops.logical_and(
        ops.equal(blocks(segments, 1), others),  # [B, 1, N, L, width * L]
        band_mask(block, width * block, radius, causal, -block)[:, :, None],
    )
    scores = ops.cast(scores, "float32") + attention_scores_bias(mask)
    weights = ops.cast(drop(ops.softmax(scores, axis=-1)), values.dtype)
    context = ops.matmul(weights, blocks(values, width))
    # [B, H, N, L, d_v] -> [B, H, N * L, d_v] -> [B, H, T, d_v]
    batch, heads, _, _, depth = ops.shape(context)
    context = ops.reshape(context, (batch, heads, count * block, depth))
    return context[:, :, :length]
