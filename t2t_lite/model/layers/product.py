"""Matrix products over positions."""

from keras import ops

from t2t_lite.model.layers.backend import Tensor, add_bias, reshape_rows


def project(x: Tensor, kernel: Tensor, bias: Tensor | None = None) -> Tensor:
    """`x` [..., A] times `kernel` [A, C], plus `bias` [C]: [..., C]."""
    return reshape_rows(project_rows(x, kernel, bias), x)


def project_rows(
    x: Tensor, kernel: Tensor, bias: Tensor | None = None
) -> Tensor:
    """The same as rows, [N, C], for who gives them another shape anyway.

    One matrix product over all positions at once: a batched one with a
    broadcast kernel is several times slower. Weights that are read outside of
    a layer's call come in their own dtype, and are cast to that of `x`.
    """
    rows = ops.matmul(flat(x), ops.cast(kernel, x.dtype))
    if bias is None:
        return rows
    return add_bias(rows, ops.cast(bias, x.dtype))


def flat(x: Tensor) -> Tensor:
    """`x` [..., A] as rows, [N, A]."""
    return x if len(x.shape) == 2 else ops.reshape(x, (-1, x.shape[-1]))
