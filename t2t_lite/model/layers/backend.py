"""What `keras.ops` lacks, by the backend itself.

This and `product` are the only places in the model core that ask what it runs
on.

- Rows written in place: in a TensorFlow graph `keras.ops.scatter_update`
  copies the whole buffer for every row it writes, which costs a decoding step
  as much as its arithmetic. `InplaceUpdate` writes where the rows are; stock
  TensorFlow Serving has it.
- Random bits: the integers of `keras.random` are made from 64-bit ones, by a
  division each.
- Rows added: `keras.ops` has `segment_sum`, as large as what it is added to.
- Few operations: thousands of them take seconds to trace. `keras.ops.shape`
  takes shapes apart by four for each size, and the gradient of what broadcasts
  has a dozen that find out what was broadcast.
"""

import contextlib
import contextvars
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias, TypeVar

import keras
from keras import ops

from t2t_lite.runtime import weights_are_fixed

# A tensor of whatever backend Keras runs on.
Tensor: TypeAlias = Any
# Of a layer's input: ints, and None where any size will do.
Shape: TypeAlias = tuple[Any, ...]
Made = TypeVar("Made")

_for_xla = contextvars.ContextVar("for_xla", default=False)


@contextlib.contextmanager
def for_xla() -> Iterator[None]:
    """XLA compiles the TensorFlow graph that is made in here.

    It knows no writing in place and no shapes that change in a loop, and needs
    no help with small products.
    """
    token = _for_xla.set(True)
    try:
        yield
    finally:
        _for_xla.reset(token)


def is_for_xla() -> bool:
    """Whether `for_xla` holds."""
    return _for_xla.get()


def can_grow() -> bool:
    """Whether tensors may change their shape from one loop step to the next."""
    return keras.backend.backend() == "tensorflow" and not _for_xla.get()


def unset_values(shape: Sequence[int], dtype: str) -> Tensor:
    """A tensor of any values, for who sets them all.

    In TensorFlow its memory is not touched, which takes longer than to fill it.
    """
    if keras.backend.backend() != "tensorflow":
        return ops.zeros(shape, dtype)
    import tensorflow as tf

    return tf.raw_ops.Empty(shape=tuple(shape), dtype=dtype)


def new_buffer(shape: Sequence[int | Tensor], dtype: str) -> Tensor:
    """Zeros [N, ...] for `write_rows`.

    In a graph N is left open, for the buffer may grow.

    Args:
      shape: ints or int32 scalars.
      dtype: the name of a dtype.
    """
    tf = tensorflow_in_a_graph()
    if tf is None:
        return ops.zeros(shape, dtype)
    # Not `zeros`: equal constants of a graph are merged into one, and a write
    # into one buffer would then show in all.
    buffer = tf.raw_ops.Empty(shape=tf.stack(shape), dtype=dtype, init=True)
    known = [size if isinstance(size, int) else None for size in shape[1:]]
    return tf.raw_ops.PlaceholderWithDefault(input=buffer, shape=[None, *known])


def write_rows(buffer: Tensor, rows: Tensor, values: Tensor) -> Tensor:
    """The buffer with `values` in place of some rows.

    In a TensorFlow graph this uses up the buffer given: only what is returned
    may be read afterwards. Elsewhere it is left as it was.

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
    """`x[b, rows[b, n]]`: from [*B, M, ...] by int32 [*B, N] to [*B, N, ...].

    B may be several axes.
    """
    axis = len(rows.shape) - 1
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        # One kernel; `ops.take` works out where each row lies by ten.
        return tf.gather(x, rows, batch_dims=axis)
    more = (1,) * (len(x.shape) - len(rows.shape))
    return ops.take_along_axis(
        x, ops.reshape(rows, (*ops.shape(rows), *more)), axis
    )


def add_rows(x: Tensor, rows: Tensor, values: Tensor) -> Tensor:
    """`x` with `values` added to some rows; a row may be named several times.

    Args:
      x: [N, A].
      rows: int32 [M].
      values: of its dtype, [M, A].
    """
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        # In place, where `x` is not read again: M rows are touched, not N.
        return tf.tensor_scatter_nd_add(x, rows[:, None], values)
    return x + ops.segment_sum(values, rows, num_segments=x.shape[0])


def of_weights(make: Callable[[], Made]) -> Made:
    """What `make` computes of weights; where these are fixed, only once.

    A TensorFlow graph then has the values, and does not compute them each time.
    """
    if not reads_fixed_weights():
        return make()
    import tensorflow as tf

    with tf.init_scope():
        return make()


def reads_fixed_weights() -> bool:
    """Whether this is a TensorFlow graph for a processor, of fixed weights."""
    tf = tensorflow_in_a_graph()
    fixed = tf is not None and weights_are_fixed()
    return fixed and not tf.config.list_physical_devices("GPU")


def add_alike(x: Tensor, y: Tensor) -> Tensor:
    """`x + y`, of two of one shape and dtype."""
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        return tf.raw_ops.AddN(inputs=[x, y])
    return x + y


def after(x: Tensor, other: Tensor) -> Tensor:
    """`x`, and in a TensorFlow graph not before there is `other`.

    What needs little is computed at once there, and what comes of it keeps its
    memory until it is used.
    """
    tf = tensorflow_in_a_graph()
    if tf is None:
        return x
    with tf.control_dependencies([other]):
        return tf.identity(x)


def sizes(x: Tensor) -> tuple[int | Tensor, ...]:
    """`ops.shape`: ints, and int32 scalars for what a graph does not know."""
    tf = tensorflow_in_a_graph()
    if tf is None or None not in x.shape:
        return ops.shape(x)
    unknown = tf.unstack(tf.shape(x))
    return tuple(
        scalar if size is None else size
        for size, scalar in zip(x.shape, unknown, strict=True)
    )


def reshape(x: Tensor, shape: Sequence[int | Tensor]) -> Tensor:
    """`ops.reshape`; no kernel works out a size that is the only unknown one.

    Args:
      x: of any shape.
      shape: ints, at most one of them -1, and int32 scalars.
    """
    known = [size if isinstance(size, int) else -1 for size in shape]
    return ops.reshape(x, known if known.count(-1) == 1 else shape)


def reshape_like(x: Tensor, other: Tensor) -> Tensor:
    """`x` in the shape of `other`.

    In a TensorFlow graph the sizes stay together.
    """
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        return tf.reshape(x, tf.shape(other))
    return ops.reshape(x, ops.shape(other))


def reshape_rows(rows: Tensor, other: Tensor) -> Tensor:
    """`rows` [N, C] as [..., C], where `other` is [..., A] of N rows."""
    if len(other.shape) == 2:
        return rows
    if rows.shape[-1] == other.shape[-1]:
        return reshape_like(rows, other)
    return reshape(rows, (*sizes(other)[:-1], rows.shape[-1]))


def random_int16(
    like: Tensor,
    seed: Tensor,
    skip: Sequence[int | Tensor] | None = None,
) -> Tensor:
    """Uniform int16 in the shape of a tensor, a pure function of the seed.

    Args:
      like: has that shape.
      seed: int32 [2].
      skip: factors of how many come before; None: from the first.
    """
    count = ops.size(like)
    if skip is not None:
        return reshape_like(_skipped_int16(count, seed, skip), like)
    even = bool(like.shape) and (like.shape[-1] or 1) % 2 == 0
    words = count // 2 if even else (count + 1) // 2
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
    if not even:
        bits = ops.reshape(bits, (-1,))[:count]
    return reshape_like(bits, like)


def _skipped_int16(count, seed, skip):
    """As many as `count` of `random_int16`, behind those that are skipped."""
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


def tensorflow_in_a_graph() -> Any:
    """The module `tensorflow` where it is the backend and runs the graph."""
    if keras.backend.backend() != "tensorflow" or _for_xla.get():
        return None
    import tensorflow as tf

    return tf if tf.inside_function() else None
