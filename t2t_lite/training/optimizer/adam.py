"""Adam, one kernel a variable, skipped where gradients are not finite."""

from collections.abc import Iterable

import tensorflow as tf


class Adam:
    """Adam (arXiv:1412.6980) by TensorFlow's one-pass kernel.

    `keras.optimizers.Adam` writes out the same formula as a dozen operations
    per variable, and synchronizes replicas in a way that cannot be skipped
    when gradients are not finite. Here replicas hold equal gradients already
    and each one updates its own copy.

    Args:
      variables: the `tf.Variable`s to train; call within the strategy's scope.
      beta1: decay of the mean of gradients.
      beta2: decay of the mean of squares.
      epsilon: added to the root of the latter.
    """

    def __init__(
        self,
        variables: Iterable[tf.Variable],
        beta1: float,
        beta2: float,
        epsilon: float,
    ):
        self._variables = list(variables)
        self._beta1, self._beta2, self._epsilon = beta1, beta2, epsilon
        self.applied = tf.Variable(0, dtype=tf.int64, trainable=False)
        self.means = [_zeros_like(v) for v in self._variables]
        self.squares = [_zeros_like(v) for v in self._variables]

    def apply(
        self, gradients: Iterable[tf.Tensor], learning_rate: tf.Tensor
    ) -> None:
        """Updates this replica's copy; call it in a replica context."""
        tf.raw_ops.AssignAddVariableOp(
            resource=self.applied.handle, value=tf.ones([], tf.int64)
        )
        applied = tf.raw_ops.ReadVariableOp(
            resource=self.applied.handle, dtype=tf.int64
        )
        count = tf.cast(applied, tf.float32)
        beta1_power = tf.pow(self._beta1, count)
        beta2_power = tf.pow(self._beta2, count)
        for variable, mean, square, gradient in zip(
            self._variables, self.means, self.squares, gradients, strict=True
        ):
            tf.raw_ops.ResourceApplyAdam(
                var=variable.handle,
                m=mean.handle,
                v=square.handle,
                beta1_power=beta1_power,
                beta2_power=beta2_power,
                lr=learning_rate,
                beta1=self._beta1,
                beta2=self._beta2,
                epsilon=self._epsilon,
                grad=gradient,
            )


def _zeros_like(variable: tf.Variable) -> tf.Variable:
    return tf.Variable(tf.zeros(variable.shape), trainable=False)
