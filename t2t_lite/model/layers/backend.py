"""What `keras.ops` lacks, by the backend itself: buffers and random bits.

The one place in the model core that asks what it runs on.

- Rows written in place: in a TensorFlow graph `keras.ops.scatter_update`
  copies the whole buffer for every row it writes, which costs a decoding step
  as much as its arithmetic. `InplaceUpdate` writes where the rows are; stock
  TensorFlow Serving has it.
- Random bits: the integers of `keras.random` are made from 64-bit ones, by a
  division each.
"""

from collections.abc import Sequence
from typing import Any, TypeAlias

import keras
from keras import ops

# A tensor of whatever backend Keras runs on.
Tensor: TypeAlias = Any
# Of a layer's input: ints, and None where any size will do.
Shape: TypeAlias = tuple[Any, ...]


def can_grow() -> bool:
    """Whether tensors may change their shape from one loop step to the next."""
    return keras.backend.backend() == "tensorflow"


def new_buffer(shape: Sequence[int | Tensor], dtype: str) -> Tensor:
    """Zeros [N, ...] for `write_rows`.

    In a graph N is left open, for the buffer may grow.

    Args:
      shape: ints or int32 scalars.
      dtype: the name of a dtype.
    """
    tf = _tensorflow_in_a_graph()
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
    tf = _tensorflow_in_a_graph()
    if tf is None:
        return ops.scatter_update(buffer, rows[:, None], values)
    return tf.raw_ops.InplaceUpdate(x=buffer, i=rows, v=values)


def random_int16(count: int | Tensor, seed: Tensor) -> Tensor:
    """Uniform int16 [count], a pure function of the seed.

    Args:
      count: how many; an int, or an int32 scalar in a TensorFlow graph.
      seed: int32 [2].
    """
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
    return ops.reshape(bits, (-1,))[:count]


def _tensorflow_in_a_graph():
    """The module `tensorflow` where it is the backend and builds a graph."""
    if keras.backend.backend() != "tensorflow":
        return None
    import tensorflow as tf

    return tf if tf.inside_function() else None
