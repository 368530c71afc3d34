"""Restricted self-attention (arXiv:1706.03762, section 4 and table 1).

Queries are split into blocks of L positions, where L is at least the radius of
the window. The queries of a block attend to the previous block, their own block
and, unless attention is causal, the next block. Time and memory grow with
T * 3L instead of T * T.
"""

from collections.abc import Callable

from keras import ops

from t2t_lite.model.masks import attention_scores_bias, band_mask
from t2t_lite.ops import Tensor, shape_list

# In smaller blocks the overhead exceeds the arithmetic.
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
    """Return the attention to positions at most `radius` away, [B, H, T, d_v].

    Args:
      query: float [B, H, T, d_k], scaled.
      keys: float [B, H, T, d_k].
      values: float [B, H, T, d_v].
      segments: int [B, T], the segment ids; a position attends to its segment.
      radius: visible positions on either side, at least 0.
      causal: hide the positions after the query.
      drop: dropout of the attention weights.
    """
    length = shape_list(query)[2]
    block = max(radius, _MIN_BLOCK)
    count = (length + block - 1) // block  # N blocks
    width = 2 if causal else 3  # blocks visible to a query

    def blocks(x, width, fill=0):
        """[B, h, T, d] -> [B, h, N, width * L, d], `width` adjacent blocks."""
        padding = (width > 1) * block, (count + (width > 2)) * block - length
        x = ops.pad(x, ((0, 0), (0, 0), padding, (0, 0)), constant_values=fill)
        batch, heads, size, depth = shape_list(x)
        # [B, h, T', d] -> [B, h, T' / L, L, d]
        x = ops.reshape(x, (batch, heads, size // block, block, depth))
        return ops.concatenate(
            [x[:, :, i : i + count] for i in range(width)], axis=3
        )

    scores = ops.matmul(  # [B, H, N, L, width * L]
        blocks(query, 1), ops.swapaxes(blocks(keys, width), -1, -2)
    )
    segments = segments[:, None, :, None]  # [B, 1, T, 1]
    key_segments = ops.swapaxes(blocks(segments, width, -1), -1, -2)
    mask = ops.logical_and(
        ops.equal(blocks(segments, 1), key_segments),  # as `scores`, H = 1
        band_mask(block, width * block, radius, causal, -block)[:, :, None],
    )
    scores = ops.cast(scores, "float32") + attention_scores_bias(mask)
    weights = ops.cast(drop(ops.softmax(scores, axis=-1)), values.dtype)
    context = ops.matmul(weights, blocks(values, width))
    # [B, H, N, L, d_v] -> [B, H, N * L, d_v] -> [B, H, T, d_v]
    batch, heads, _, _, depth = shape_list(context)
    context = ops.reshape(context, (batch, heads, count * block, depth))
    return context[:, :, :length]
