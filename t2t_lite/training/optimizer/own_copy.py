"""A replica's own copy of a variable, read and written by itself.

`assign` on a mirrored variable merges all replicas. What is the same on every
replica needs no merging, nor the operations that do it.
"""

import tensorflow as tf

from t2t_lite.model.layers import initial


def read(variable: tf.Variable) -> tf.Tensor:
    """The value; within a function, after all writes before this line."""
    return tf.raw_ops.ReadVariableOp(
        resource=variable.handle, dtype=variable.dtype
    )


def assign(variable: tf.Variable, value: tf.Tensor) -> None:
    """Sets the value."""
    tf.raw_ops.AssignVariableOp(resource=variable.handle, value=value)


def add(variable: tf.Variable, value: tf.Tensor) -> None:
    """Adds to the value."""
    tf.raw_ops.AssignAddVariableOp(resource=variable.handle, value=value)


def subtract(variable: tf.Variable, value: tf.Tensor) -> None:
    """Takes from the value."""
    tf.raw_ops.AssignSubVariableOp(resource=variable.handle, value=value)


def zeros(shape: tf.TensorShape) -> tf.Variable:
    """A float32 variable of zeros, for what an optimizer keeps.

    Of any values within `initial.unset()`.
    """
    values = initial.drawn(tf.zeros)(shape, tf.float32)
    return tf.Variable(values, trainable=False)
