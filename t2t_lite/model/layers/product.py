"""Matrix products over positions."""

from keras import ops

from t2t_lite.model.layers.backend import (
    Tensor,
    reshape_rows,
    rows_times,
    turns_kernel,
    wide_product,
)


def project(x: Tensor, kernel: Tensor) -> Tensor:
    """`x` [..., A] times `kernel` [A, C]: [..., C]."""
    return reshape_rows(project_rows(x, kernel), x)


def project_rows(
    x: Tensor,
    kernel: Tensor,
    bias: Tensor | None = None,
    relu: bool = False,
) -> Tensor:
    """The same as rows, [N, C], for who gives them another shape anyway.

    One matrix product over all positions at once: a batched one with a
    broadcast kernel is several times slower. Weights that are read outside of
    a layer's call come in their own dtype, and are cast to that of `x`.

    Args:
      x: [..., A]. The rows of a decoding step, [N, A], need no gradient.
      kernel: [A, C].
      bias: [C], or None.
      relu: whether negative results become 0.
    """
    kernel = ops.cast(kernel, x.dtype)
    bias = None if bias is None else ops.cast(bias, x.dtype)
    turns = len(x.shape) > 2 and turns_kernel(kernel)
    product = wide_product if turns else rows_times
    return product(flat(x), kernel, bias, relu)


def flat(x: Tensor) -> Tensor:
    """`x` [..., A] as rows, [N, A]."""
    return x if len(x.shape) == 2 else ops.reshape(x, (-1, x.shape[-1]))
