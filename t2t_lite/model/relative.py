"""Relative positions in self-attention (Shaw et al., arXiv:1803.02155).

A table has a vector for each distance -k...k from a query to a key; longer
distances use the last one. The product of a query with the table, [T, 2k + 1],
is spread over the keys by one-hot matrices, so that no array of [T, T, d] is
made.
"""

from keras import ops

from t2t_lite.ops import Tensor, dense, reshape, unflatten_rows


def relative_position_ids(distances: Tensor, max_distance: int) -> Tensor:
    """Return the row of the table for each distance of a key from a query.

    Args:
      distances: int [...].
      max_distance: k.
    """
    return ops.clip(distances, -max_distance, max_distance) + max_distance


def distance_matrices(length: int | Tensor, rows: int, dtype: str) -> Tensor:
    """Return the row of the table for each query and key, one-hot.

    Args:
      length: T. Pass the same tensor in all layers: a graph merges equal
        operations, and then makes these matrices once.
      rows: of the table, 2k + 1.
      dtype: of the result.

    Returns:
      [T, T, 2k + 1].
    """
    positions = ops.arange(length)
    distances = positions[None, :] - positions[:, None]
    return ops.one_hot(
        relative_position_ids(distances, rows // 2), rows, dtype=dtype
    )


def relative_scores(query: Tensor, table: Tensor, matrices: Tensor) -> Tensor:
    """Return the scores of the distances (equation 5): float [B, H, T, T].

    Args:
      query: float [B, H, T, d_k], scaled.
      table: float [2k + 1, d_k].
      matrices: from `distance_matrices`.
    """
    by_distance = dense(query, ops.transpose(table))
    by_distance = unflatten_rows(by_distance, query)  # [B, H, T, 2k + 1]
    return _each_query(by_distance, ops.swapaxes(matrices, -1, -2))


def relative_values(weights: Tensor, table: Tensor, matrices: Tensor) -> Tensor:
    """Return the weighted vectors of the distances (equation 3).

    Args:
      weights: float [B, H, T, T], of the attention.
      table: float [2k + 1, d_v].
      matrices: from `distance_matrices`.

    Returns:
      float [B, H, T, d_v], to be added to the weighted values.
    """
    by_distance = _each_query(weights, matrices)  # [B, H, T, 2k + 1]
    return unflatten_rows(dense(by_distance, table), by_distance)


def _each_query(x, matrices):
    """Multiply `x` [B, H, T, A] by a matrix for each query, [T, A, C]."""
    batch, heads, length, size = ops.shape(x)
    x = reshape(x, (batch * heads, length, size))
    x = ops.matmul(ops.transpose(x, (1, 0, 2)), matrices)  # [T, B * H, C]
    shape = (batch, heads, length, ops.shape(matrices)[-1])
    return reshape(ops.transpose(x, (1, 0, 2)), shape)  # [B, H, T, C]
