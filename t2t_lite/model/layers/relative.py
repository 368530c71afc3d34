"""Relative positions in self-attention (Shaw et al., arXiv:1803.02155).

A table has a vector for each distance -k...k from a query to a key; those
farther away share the last one. What a query makes of the distances is a
product with the table, [T, 2k + 1], which one-hot matrices then spread over the
keys: nothing as large as [T, T, d] is ever made.
"""

from keras import ops

from t2t_lite.model.layers.backend import Tensor, reshape
from t2t_lite.model.layers.product import project


def distance_rows(distances: Tensor, reach: int) -> Tensor:
    """The table's row for each distance, int [...], of a key from a query.

    Args:
      distances: int [...].
      reach: k.
    """
    return ops.clip(distances, -reach, reach) + reach


def distance_matrices(length: int | Tensor, rows: int, dtype: str) -> Tensor:
    """One-hot [T, T, 2k + 1]: the table's row for each query and key.

    Args:
      length: T. From one tensor in all layers, so that a graph, which merges
        equal operations, has these matrices once.
      rows: of the table, 2k + 1.
      dtype: of the result.
    """
    positions = ops.arange(length)
    distances = positions[None, :] - positions[:, None]
    return ops.one_hot(distance_rows(distances, rows // 2), rows, dtype=dtype)


def relative_scores(query: Tensor, table: Tensor, matrices: Tensor) -> Tensor:
    """What queries make of how far away each key is, equation 5.

    Args:
      query: float [B, H, T, d_k], scaled.
      table: float [2k + 1, d_k].
      matrices: from `distance_matrices`.

    Returns: float [B, H, T, T], to be added to the scores.
    """
    by_distance = project(query, ops.transpose(table))  # [B, H, T, 2k + 1]
    return _each_query(by_distance, ops.swapaxes(matrices, -1, -2))


def relative_values(weights: Tensor, table: Tensor, matrices: Tensor) -> Tensor:
    """The weighted vectors of how far away each key is, equation 3.

    Args:
      weights: float [B, H, T, T], of the attention.
      table: float [2k + 1, d_v].
      matrices: from `distance_matrices`.

    Returns: float [B, H, T, d_v], to be added to the weighted values.
    """
    return project(_each_query(weights, matrices), table)


def _each_query(x, matrices):
    """`x` [B, H, T, A] by a matrix for each query, [T, A, C]: [B, H, T, C]."""
    batch, heads, length, size = ops.shape(x)
    x = reshape(x, (batch * heads, length, size))
    x = ops.matmul(ops.transpose(x, (1, 0, 2)), matrices)  # [T, B * H, C]
    size = ops.shape(matrices)[-1]
    return reshape(ops.transpose(x, (1, 0, 2)), (batch, heads, length, size))
