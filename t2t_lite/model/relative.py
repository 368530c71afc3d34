"""Relative positions in self-attention (Shaw et al., arXiv:1803.02155).

A table has a vector for each distance -k...k from a query to a key; longer
distances are clipped. One-hot matrices distribute the products of queries with
the table, [T, 2k + 1], to the keys, so no array of [T, T, d] is needed.
"""

from keras import ops

from t2t_lite.ops import Tensor, dense, reshape, shape_list, unflatten_rows


def relative_position_ids(distances: Tensor, max_distance: int) -> Tensor:
    """Return the table row for each distance, from a query to a key."""
    return ops.clip(distances, -max_distance, max_distance) + max_distance


def distance_matrices(length: int | Tensor, rows: int, dtype: str) -> Tensor:
    """Return the one-hot table row for each query and key: [T, T, 2k + 1].

    If all layers pass the same length T, a graph computes the matrices once.
    `rows` is 2k + 1.
    """
    positions = ops.arange(length)
    distances = positions[None, :] - positions[:, None]
    ids = relative_position_ids(distances, rows // 2)
    return ops.one_hot(ids, rows, dtype=dtype)


def relative_scores(query: Tensor, table: Tensor, matrices: Tensor) -> Tensor:
    """Return the scores of relative positions (eq. 5), float [B, H, T, T].

    The query is [B, H, T, d_k], scaled, the table [2k + 1, d_k].
    """
    by_distance = dense(query, ops.transpose(table))  # [B * H * T, 2k + 1]
    by_distance = unflatten_rows(by_distance, query)  # [B, H, T, 2k + 1]
    return _multiply_by_query(by_distance, ops.swapaxes(matrices, -1, -2))


def relative_values(weights: Tensor, table: Tensor, matrices: Tensor) -> Tensor:
    """Return the relative-position term of the output (eq. 3), [B, H, T, d_v].

    The attention weights are [B, H, T, T], the table is [2k + 1, d_v].
    """
    by_distance = _multiply_by_query(weights, matrices)  # [B, H, T, 2k + 1]
    return unflatten_rows(dense(by_distance, table), by_distance)


def _multiply_by_query(x, matrices):
    """Multiply [B, H, T, A] by the matrix of each query: [T, A, C]."""
    batch, heads, length, size = shape_list(x)
    x = reshape(x, (batch * heads, length, size))  # [B * H, T, A]
    x = ops.matmul(ops.transpose(x, (1, 0, 2)), matrices)  # [T, B * H, C]
    shape = (batch, heads, length, shape_list(matrices)[-1])
    return reshape(ops.transpose(x, (1, 0, 2)), shape)  # [B, H, T, C]
