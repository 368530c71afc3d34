"""Matrix products, and softmax, as the backend itself does them best.

- Attention of one row: in TensorFlow oneDNN does products of batches and
  softmax, and takes longer to set out than such a row takes to compute.
- Weights that are fixed: TensorFlow keeps them packed for oneDNN, but only for
  what it makes of a product with a bias.
"""

import keras
from keras import ops

from t2t_lite.model.layers.backend import (
    Tensor,
    after,
    is_for_xla,
    reads_fixed_weights,
    reshape_rows,
    tensorflow_in_a_graph,
)

# Each reads all it is multiplied with again.
_FEW_ROWS = 8
# From so many columns on a kernel's transposition is worth a pass over it.
_WIDE = 512


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
      kernel: [A, C], made of weights alone: where these are fixed, it may be
        read only once.
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


def batch_matmul(x: Tensor, y: Tensor, transpose_y: bool = False) -> Tensor:
    """`ops.matmul(x, y)`, from float [..., A, C] to [..., A, E].

    Args:
      x: float [..., A, C].
      y: of its dtype, [..., C, E]. In four axes, [B, H, C, E], the first two
        are those of `x`; in more they may broadcast.
      transpose_y: whether it comes as [..., E, C].
    """
    tf = tensorflow_in_a_graph()
    if tf is None:
        if transpose_y and is_for_xla():
            # XLA copies what it transposes, and `y`, the cache, is larger.
            return ops.swapaxes(ops.matmul(y, ops.swapaxes(x, -1, -2)), -1, -2)
        return ops.matmul(x, ops.swapaxes(y, -1, -2) if transpose_y else y)
    if _is_one_row(x):
        # Stock TensorFlow Serving has it, and oneDNN has nothing in its place.
        return tf.raw_ops.BatchMatMulV3(
            x=x, y=y, adj_y=transpose_y, Tout=x.dtype
        )
    if len(x.shape) == len(y.shape) == 4:
        return tf.raw_ops.BatchMatMul(x=x, y=y, adj_y=transpose_y)
    return tf.matmul(x, y, transpose_b=transpose_y)


def add_bias(x: Tensor, bias: Tensor) -> Tensor:
    """`x` [..., C] plus `bias` [C], of one dtype."""
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        return tf.nn.bias_add(x, bias)
    return x + bias


def rows_times(
    x: Tensor, kernel: Tensor, bias: Tensor | None, relu: bool
) -> Tensor:
    """`x` [N, A] times [A, C], plus [C] or None, negatives maybe made 0."""
    rows = ops.matmul(x, kernel)
    if bias is None and x.dtype == "bfloat16" and reads_fixed_weights():
        bias = ops.zeros(kernel.shape[1], x.dtype)  # so that they are packed
    if bias is not None:
        rows = add_bias(rows, bias)
    return ops.relu(rows) if relu else rows


def turns_kernel(kernel: Tensor) -> bool:
    """Whether `wide_product` is there, and faster than `rows_times`.

    Args:
      kernel: [A, C].
    """
    rows, columns = kernel.shape
    single = tensorflow_in_a_graph() is not None and kernel.dtype == "float32"
    return single and columns >= max(rows + 1, _WIDE)


def wide_product(
    x: Tensor, kernel: Tensor, bias: Tensor | None, relu: bool
) -> Tensor:
    """`rows_times`, whose gradient by `x` takes a quarter less time.

    A product with a wide kernel transposed on the fly is that much slower in
    oneDNN, and TensorFlow makes a plain transposition part of the product.
    """
    import tensorflow as tf

    @tf.custom_gradient
    def product(x, kernel, bias=None):
        rows = rows_times(x, kernel, bias, relu)

        def gradient(upstream):
            if relu:
                upstream = tf.raw_ops.ReluGrad(
                    gradients=upstream, features=rows
                )
            turned = after(kernel, upstream)
            turned = tf.reshape(turned, (*kernel.shape, 1))
            turned = tf.transpose(turned, (1, 0, 2))
            turned = tf.reshape(turned, kernel.shape[::-1])
            gradients = (
                tf.matmul(upstream, turned),
                tf.matmul(x, upstream, transpose_a=True),
                tf.raw_ops.BiasAddGrad(out_backprop=upstream),
            )
            return gradients[: 2 if bias is None else 3]

        return rows, gradient

    return product(x, kernel) if bias is None else product(x, kernel, bias)


def single_rows_are_faster(rows: int, dtype: str) -> bool:
    """Whether so many rows of `batch_matmul` go faster one by one.

    Args:
      rows: A.
      dtype: the name of a dtype.
    """
    single = tensorflow_in_a_graph() is not None and dtype == "float32"
    return single and rows <= _FEW_ROWS


def attention_dtype(rows: int, dtype: str) -> str:
    """In what dtype so many rows at a time attend the fastest.

    On a processor a single row of bfloat16 takes twice as long as of float32.

    Args:
      rows: A of `batch_matmul`.
      dtype: the name of that of the model.
    """
    tf = tensorflow_in_a_graph()
    if tf is None or rows > 1 or tf.config.list_physical_devices("GPU"):
        return dtype
    return "float32"


def softmax(scores: Tensor) -> Tensor:
    """`ops.softmax` over the last axis, from float [..., A, S] to the same."""
    if tensorflow_in_a_graph() is None or not _is_one_row(scores):
        return ops.softmax(scores, axis=-1)
    return ops.exp(ops.log_softmax(scores, axis=-1))


def _is_one_row(x):
    return x.shape[-2] == 1 and x.dtype == "float32"
