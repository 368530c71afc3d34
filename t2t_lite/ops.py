"""Operations that `keras.ops` lacks, or that a backend has in a better form.

This is the only file of the model core that depends on the backend.

- In a TensorFlow graph `keras.ops.scatter_update` copies the whole buffer for
  every row that it writes, which costs a decoding step as much as its
  arithmetic. `InplaceUpdate` writes in place; stock TensorFlow Serving has it.
- `keras.random` makes integers from 64-bit ones, with a division each.
- `keras.ops.segment_sum` makes an array as large as the sum.
"""

import contextlib
import contextvars
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias, TypeVar

import keras
from keras import ops

from t2t_lite.runtime import weights_are_fixed

# A tensor of the Keras backend in use.
Tensor: TypeAlias = Any
# The shape of a layer's input: ints, and None for any size.
Shape: TypeAlias = tuple[Any, ...]
Made = TypeVar("Made")

# From so many columns on, transposing a kernel is worth a pass over it.
_WIDE = 512

_for_xla = contextvars.ContextVar("for_xla", default=False)


@contextlib.contextmanager
def for_xla() -> Iterator[None]:
    """Build a TensorFlow graph in this block that XLA can compile.

    XLA does not support writing in place, nor shapes that change in a loop.
    """
    token = _for_xla.set(True)
    try:
        yield
    finally:
        _for_xla.reset(token)


def tensorflow_in_a_graph() -> Any:
    """Return the module `tensorflow` if it builds a graph, but not for XLA."""
    if keras.backend.backend() != "tensorflow" or _for_xla.get():
        return None
    import tensorflow as tf

    return tf if tf.inside_function() else None


def uninitialized(shape: Sequence[int], dtype: str) -> Tensor:
    """Return a tensor of any values, for a caller that sets them all.

    TensorFlow does not touch its memory, which would take longer than to fill
    it.
    """
    if keras.backend.backend() != "tensorflow":
        return ops.zeros(shape, dtype)
    import tensorflow as tf

    return tf.raw_ops.Empty(shape=tuple(shape), dtype=dtype)


def new_buffer(
    shape: Sequence[int | Tensor], dtype: str, growing_axis: int
) -> Tensor:
    """Return zeros for `write_rows`.

    In a TensorFlow graph the static size of `growing_axis` is unknown.

    Args:
      shape: ints or int32 scalars.
      dtype: the name of a dtype.
      growing_axis: the axis that a loop may lengthen.
    """
    tf = tensorflow_in_a_graph()
    if tf is None:
        return ops.zeros(shape, dtype)
    # Not `zeros`: a graph merges equal constants, and a write into one buffer
    # would then change all of them.
    buffer = tf.raw_ops.Empty(shape=tf.stack(shape), dtype=dtype, init=True)
    known = [size if isinstance(size, int) else None for size in shape]
    known[growing_axis] = None
    return tf.raw_ops.PlaceholderWithDefault(input=buffer, shape=known)


def write_rows(buffer: Tensor, rows: Tensor, values: Tensor) -> Tensor:
    """Return the buffer with `values` in some rows.

    A TensorFlow graph writes in place: after the call, only the returned
    tensor may be read. Elsewhere the buffer does not change.

    Args:
      buffer: [N, A], from `new_buffer` or reshaped from it.
      rows: int32 [M].
      values: [M, A].
    """
    tf = tensorflow_in_a_graph()
    if tf is None:
        return ops.scatter_update(buffer, rows[:, None], values)
    return tf.raw_ops.InplaceUpdate(x=buffer, i=rows, v=values)


def gather_rows(x: Tensor, rows: Tensor) -> Tensor:
    """Return `x[b, rows[b, n]]`: [*B, M, ...] -> [*B, N, ...].

    Args:
      x: [*B, M, ...].
      rows: int32 [*B, N]; B may be several axes.
    """
    axis = len(rows.shape) - 1
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        # One kernel; `ops.take_along_axis` computes indices by ten.
        return tf.gather(x, rows, batch_dims=axis)
    more = (1,) * (len(x.shape) - len(rows.shape))
    return ops.take_along_axis(
        x, ops.reshape(rows, (*ops.shape(rows), *more)), axis
    )


def add_rows(x: Tensor, rows: Tensor, values: Tensor) -> Tensor:
    """Return `x` with `values` added to some rows; rows may repeat.

    Args:
      x: [N, A].
      rows: int32 [M].
      values: of its dtype, [M, A].
    """
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        # In place if `x` is not read again: M rows are touched, not N.
        return tf.tensor_scatter_nd_add(x, rows[:, None], values)
    return x + ops.segment_sum(values, rows, num_segments=x.shape[0])


def of_weights(make: Callable[[], Made]) -> Made:
    """Return `make()`, a function of weights only.

    Where weights are fixed, a TensorFlow graph computes it once.
    """
    if not _reads_fixed_weights():
        return make()
    import tensorflow as tf

    with tf.init_scope():
        return make()


def _reads_fixed_weights():
    """Return whether this is a TensorFlow graph for a CPU, of fixed weights."""
    tf = tensorflow_in_a_graph()
    fixed = tf is not None and weights_are_fixed()
    return fixed and not tf.config.list_physical_devices("GPU")


def after(x: Tensor, other: Tensor) -> Tensor:
    """Return `x`; a TensorFlow graph computes `other` first.

    TensorFlow computes a cheap operation as early as it can, and its result
    then keeps its memory until it is used.
    """
    tf = tensorflow_in_a_graph()
    if tf is None:
        return x
    with tf.control_dependencies([other]):
        return tf.identity(x)


def add_same_shape(x: Tensor, y: Tensor) -> Tensor:
    """Return `x + y`, of the same shape and dtype.

    The gradient of TensorFlow's `+` has a dozen operations that find out what
    was broadcast: 5 % of the CPU time until the first update.
    """
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        return tf.raw_ops.AddN(inputs=[x, y])
    return x + y


def sizes(x: Tensor) -> tuple[int | Tensor, ...]:
    """Return `ops.shape(x)`, in a TensorFlow graph with fewer operations.

    With `reshape` and `reshape_rows` below, this saves a sixth of the CPU time
    until the first update of a model of six layers.
    """
    tf = tensorflow_in_a_graph()
    if tf is None or None not in x.shape:
        return ops.shape(x)
    unknown = tf.unstack(tf.shape(x))
    return tuple(
        scalar if size is None else size
        for size, scalar in zip(x.shape, unknown, strict=True)
    )


def reshape(x: Tensor, shape: Sequence[int | Tensor]) -> Tensor:
    """Return `ops.reshape(x, shape)`, without computing a single unknown size.

    Args:
      x: of any shape.
      shape: ints, at most one of them -1, and int32 scalars.
    """
    known = [size if isinstance(size, int) else -1 for size in shape]
    return ops.reshape(x, known if known.count(-1) == 1 else shape)


def reshape_like(x: Tensor, other: Tensor) -> Tensor:
    """Return `x` in the shape of `other`."""
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        return tf.reshape(x, tf.shape(other))
    return ops.reshape(x, ops.shape(other))


def flat(x: Tensor) -> Tensor:
    """[..., A] -> rows [N, A]."""
    return x if len(x.shape) == 2 else ops.reshape(x, (-1, x.shape[-1]))


def reshape_rows(rows: Tensor, other: Tensor) -> Tensor:
    """Rows [N, C] -> [..., C], where `other` is [..., A] of N rows."""
    if len(other.shape) == 2:
        return rows
    if rows.shape[-1] == other.shape[-1]:
        return reshape_like(rows, other)
    return reshape(rows, (*sizes(other)[:-1], rows.shape[-1]))


def project(x: Tensor, kernel: Tensor) -> Tensor:
    """Multiply `x` [..., A] by `kernel` [A, C]: [..., C]."""
    return reshape_rows(project_rows(x, kernel), x)


def project_rows(
    x: Tensor,
    kernel: Tensor,
    bias: Tensor | None = None,
    relu: bool = False,
) -> Tensor:
    """Multiply `x` [..., A] by `kernel` [A, C]: rows [N, C].

    One matrix product over all positions: a batched one with a broadcast
    kernel is several times slower on a CPU. Weights are cast to the dtype of
    `x`.

    Args:
      x: [..., A].
      kernel: [A, C].
      bias: [C], or None.
      relu: replace negative results by 0.
    """
    kernel = ops.cast(kernel, x.dtype)
    bias = None if bias is None else ops.cast(bias, x.dtype)
    # The rows of a decoding step, [N, A], need no gradient.
    is_wide = len(x.shape) > 2 and _is_wide(kernel)
    product = _wide_product if is_wide else _product
    return product(flat(x), kernel, bias, relu)


def _product(x, kernel, bias, relu):
    rows = ops.matmul(x, kernel)
    if bias is None and x.dtype == "bfloat16" and _reads_fixed_weights():
        # oneDNN keeps a fixed kernel packed only in a product with a bias.
        bias = ops.zeros(kernel.shape[1], x.dtype)
    if bias is not None:
        rows = _add_bias(rows, bias)
    return ops.relu(rows) if relu else rows


def _is_wide(kernel):
    """Return whether `_wide_product` exists, and is faster than `_product`."""
    tf = tensorflow_in_a_graph()
    if tf is None or tf.config.list_physical_devices("GPU"):
        return False
    rows, columns = kernel.shape
    return kernel.dtype == "float32" and columns >= max(rows + 1, _WIDE)


def _wide_product(x, kernel, bias, relu):
    """Return `_product`, whose gradient by `x` takes a quarter less time.

    oneDNN is that much slower where it transposes a wide kernel itself, and
    TensorFlow makes a plain transposition part of the product. A training step
    of the base model takes 4 % less time (`benchmarks/versions.py`, AMD EPYC
    with AVX-512).
    """
    import tensorflow as tf

    @tf.custom_gradient
    def product(x, kernel, bias=None):
        rows = _product(x, kernel, bias, relu)

        def gradient(upstream):
            if relu:
                upstream = tf.raw_ops.ReluGrad(
                    gradients=upstream, features=rows
                )
            transposed = after(kernel, upstream)
            transposed = tf.reshape(transposed, (*kernel.shape, 1))
            transposed = tf.transpose(transposed, (1, 0, 2))
            transposed = tf.reshape(transposed, kernel.shape[::-1])
            gradients = (
                tf.matmul(upstream, transposed),
                tf.matmul(x, upstream, transpose_a=True),
                tf.raw_ops.BiasAddGrad(out_backprop=upstream),
            )
            return gradients[: 2 if bias is None else 3]

        return rows, gradient

    return product(x, kernel) if bias is None else product(x, kernel, bias)


def _add_bias(x, bias):
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        return tf.nn.bias_add(x, bias)  # fused with the product
    return x + bias


def batch_matmul(
    x: Tensor, y: Tensor, transpose_y: bool = False, few_rows: bool = False
) -> Tensor:
    """Multiply float [B, H, A, C] by [B, H, C, E], or by [B, H, E, C].

    Args:
      x: float [B, H, A, C].
      y: of its dtype, [B, H, C, E].
      transpose_y: `y` is [B, H, E, C].
      few_rows: A is small, as in a decoding step, and no gradient is taken.
        On a CPU TensorFlow's kernel without broadcasting takes 5 % less time
        for an update at d 128, and 5 % more for a long search. Up to 8 rows
        are faster one by one: oneDNN takes longer to set up their product
        than to compute it.
    """
    if transpose_y and _for_xla.get():
        # XLA copies the tensor that it transposes; `y`, the cache, is larger.
        return ops.swapaxes(ops.matmul(y, ops.swapaxes(x, -1, -2)), -1, -2)
    tf = tensorflow_in_a_graph()
    if tf is None:
        return ops.matmul(x, ops.swapaxes(y, -1, -2) if transpose_y else y)
    if few_rows and x.dtype == "float32" and (x.shape[2] or 9) <= 8:
        product = tf.raw_ops.BatchMatMulV3(
            x=x[:, :, :, None], y=y[:, :, None], adj_y=transpose_y, Tout=x.dtype
        )
        return tf.squeeze(product, 3)
    if few_rows:
        return tf.matmul(x, y, transpose_b=transpose_y)
    return tf.raw_ops.BatchMatMul(x=x, y=y, adj_y=transpose_y)


def softmax_of_few_rows(scores: Tensor) -> Tensor:
    """Return the softmax over the last axis, in a decoding step.

    oneDNN takes longer to set up a softmax of few rows than to compute it.
    """
    if tensorflow_in_a_graph() is None:
        return ops.softmax(scores, axis=-1)
    return ops.exp(ops.log_softmax(scores, axis=-1))


def random_int16(
    like: Tensor,
    seed: Tensor,
    skip: Sequence[int | Tensor] | None = None,
) -> Tensor:
    """Return uniform int16 of a tensor's shape, a pure function of the seed.

    Args:
      like: a tensor of the shape.
      seed: int32 [2].
      skip: factors of the count of numbers to skip; None: none.
    """
    count = ops.size(like)
    if skip is not None:
        return reshape_like(_skipped_int16(count, seed, skip), like)
    words = (count + 1) // 2
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        bits = tf.random.stateless_uniform(
            tf.reshape(words, [1]), seed, None, None, tf.int32
        )
        bits = tf.bitcast(bits, tf.int16)
    else:
        import jax

        key = ops.cast(seed, "uint32")
        bits = jax.random.bits(key, (words,), "uint32")
        bits = jax.lax.bitcast_convert_type(bits, "int16")
    if not (like.shape and (like.shape[-1] or 1) % 2 == 0):
        bits = ops.reshape(bits, (-1,))[:count]
    return reshape_like(bits, like)


def _skipped_int16(count, seed, skip):
    """Return `count` numbers of `random_int16` after the skipped ones."""
    if keras.backend.backend() != "tensorflow":
        before = math.prod(map(int, skip))
        return random_int16(ops.zeros((before + count,)), seed)[before:]
    import tensorflow as tf

    # They may be too many for 32 bits.
    before = tf.reduce_prod([tf.cast(factor, tf.int64) for factor in skip])
    key, counter = tf.raw_ops.StatelessRandomGetKeyCounter(seed=seed)
    bits = tf.raw_ops.StatelessRandomUniformFullIntV2(
        shape=tf.reshape(count // 2 + 4, [1]),
        key=key,
        # Each count of the generator, Philox, gives 128 bits.
        counter=counter + tf.stack([tf.cast(before // 8, tf.uint64), 0]),
        alg=tf.random.Algorithm.AUTO_SELECT.value,
        dtype=tf.int32,
    )
    bits = tf.reshape(tf.bitcast(bits, tf.int16), [-1])
    first = tf.cast(before % 8, tf.int32)
    return bits[first : first + count]
