"""Matrix products over positions."""

from keras import ops

from t2t_lite.model.layers.backend import Tensor, reshape


def project(x: Tensor, kernel: Tensor, bias: Tensor | None = None) -> Tensor:
    """`x` [..., A] times `kernel` [A, C], plus `bias` [C]: [..., C].

    One matrix product over all positions at once: a batched one with a
    broadcast kernel is several times slower. Weights that are read outside of
    a layer's call come in their own dtype, and are cast to that of `x`.
    """
    rows = ops.reshape(x, (-1, kernel.shape[0]))
    rows = ops.matmul(rows, ops.cast(kernel, x.dtype))
    if bias is not None:
        rows = rows + ops.cast(bias, x.dtype)
    return reshape(rows, (*ops.shape(x)[:-1], kernel.shape[1]))
