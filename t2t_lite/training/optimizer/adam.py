"""Adam, one kernel a variable, skipped where gradients are not finite."""

from collections.abc import Iterable, Sequence

import tensorflow as tf

from t2t_lite.training.optimizer import own_copy


class Adam:
    """Adam (arXiv:1412.6980) by TensorFlow's one-pass kernel.

    `keras.optimizers.Adam` writes out the same formula as a dozen operations
    per variable, and synchronizes replicas in a way that cannot be skipped
    when gradients are not finite. Here replicas hold equal gradients already
    and each one updates its own copy. AdamW of Keras has the same two traits.

    Args:
      variables: the `tf.Variable`s to train; call within the strategy's scope.
      beta1: decay of the mean of gradients.
      beta2: decay of the mean of squares.
      epsilon: added to the root of the latter.
      weight_decay: AdamW's (arXiv:1711.05101): before each update the
        matrices, embeddings included, lose this share of themselves times the
        learning rate. Biases and norms, the vectors, lose nothing.

    Attributes:
      applied: how many updates were made.
    """

    def __init__(
        self,
        variables: Iterable[tf.Variable],
        beta1: float,
        beta2: float,
        epsilon: float,
        weight_decay: float = 0.0,
    ):
        self._variables = list(variables)
        self._beta1, self._beta2, self._epsilon = beta1, beta2, epsilon
        self._weight_decay = weight_decay
        self.applied = tf.Variable(0, dtype=tf.int64, trainable=False)
        self.means = [own_copy.zeros(v.shape) for v in self._variables]
        self.squares = [own_copy.zeros(v.shape) for v in self._variables]

    def tensors(self, names: Sequence[str]) -> dict[str, tf.Variable]:
        """The state by name, for checkpoints; `names` are the variables'."""
        return {
            "adam/applied": self.applied,
            **_named("adam/mean", names, self.means),
            **_named("adam/square", names, self.squares),
        }

    def apply(
        self,
        gradients: Iterable[tf.Tensor],
        learning_rate: tf.Tensor,
        made: tf.Tensor | bool = True,
    ) -> None:
        """Updates this replica's copy; call it in a replica context.

        Args:
          gradients: one of each variable.
          learning_rate: of this update.
          made: bool; False: gradients are zeros, and nothing changes.
        """
        count = tf.cast(own_copy.read(self.applied) + 1, tf.float32)
        own_copy.add(self.applied, tf.cast(made, tf.int64))
        beta1_power = tf.pow(self._beta1, count)
        beta2_power = tf.pow(self._beta2, count)
        learning_rate = tf.where(made, learning_rate, 0.0)
        beta1 = tf.where(made, self._beta1, 1.0)
        beta2 = tf.where(made, self._beta2, 1.0)
        epsilon = tf.constant(self._epsilon)
        for variable, mean, square, gradient in zip(
            self._variables, self.means, self.squares, gradients, strict=True
        ):
            if self._weight_decay and len(variable.shape) > 1:
                share = learning_rate * self._weight_decay
                own_copy.subtract(variable, share * own_copy.read(variable))
            tf.raw_ops.ResourceApplyAdam(
                var=variable.handle,
                m=mean.handle,
                v=square.handle,
                beta1_power=beta1_power,
                beta2_power=beta2_power,
                lr=learning_rate,
                beta1=beta1,
                beta2=beta2,
                epsilon=epsilon,
                grad=gradient,
            )


def _named(
    prefix: str, names: Sequence[str], variables: Sequence[tf.Variable]
) -> dict[str, tf.Variable]:
    paths = [f"{prefix}/{name}" for name in names]
    return dict(zip(paths, variables, strict=True))
