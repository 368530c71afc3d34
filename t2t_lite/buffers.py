"""Rows of a buffer written in place: what `keras.ops` lacks for a cache.

In a TensorFlow graph `keras.ops.scatter_update` copies the whole buffer for
every row it writes, which costs a decoding step as much as its arithmetic.
`InplaceUpdate` writes where the rows are; stock TensorFlow Serving has it.
"""

import keras
from keras import ops


def can_grow() -> bool:
    """Whether tensors may change their shape from one loop step to the next."""
    return keras.backend.backend() == "tensorflow"


def new_buffer(shape, dtype):
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


def write_rows(buffer, rows, values):
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


def _tensorflow_in_a_graph():
    """The module `tensorflow` where it is the backend and builds a graph."""
    if keras.backend.backend() != "tensorflow":
        return None
    import tensorflow as tf

    return tf if tf.inside_function() else None
