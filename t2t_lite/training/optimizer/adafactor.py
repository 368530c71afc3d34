"""Adafactor: a row and a column of numbers stand for a matrix of squares."""

from collections.abc import Iterable, Sequence

import tensorflow as tf

from t2t_lite.training.optimizer import own_copy

# Algorithms 4 and 5 of the paper, with its values.
_DECAY = -0.8  # of the mean of squares: beta2 = 1 - update ** -0.8
_LEAST_SQUARE = 1e-30  # added to each squared gradient
_LEAST_SCALE = 1e-3  # of a variable
_MOST_CHANGE = 1.0  # root mean square of a change, before it is scaled


class Adafactor:
    """Adafactor (arXiv:1804.04235), without the mean of gradients.

    The learning rate is relative: each variable changes by that share of its
    own root mean square.

    `keras.optimizers.Adafactor` synchronizes replicas in a way that cannot be
    skipped when gradients are not finite. It also keeps every square besides
    the rows and columns, which are there to save that memory, and bounds the
    rate by `update ** -0.5` whatever the schedule says. Below that bound the
    two are equal.

    Args:
      variables: the `tf.Variable`s to train; call within the strategy's scope.

    Attributes:
      applied: how many updates were made.
    """

    def __init__(self, variables: Iterable[tf.Variable]):
        self._variables = list(variables)
        self.applied = tf.Variable(0, dtype=tf.int64, trainable=False)
        self._squares = [_squares_of(v.shape) for v in self._variables]

    def tensors(self, names: Sequence[str]) -> dict[str, tf.Variable]:
        """The state by name, for checkpoints; `names` are the variables'."""
        return {
            "adafactor/applied": self.applied,
            **{
                f"adafactor/{part}/{name}": kept
                for name, squares in zip(names, self._squares, strict=True)
                for part, kept in squares.items()
            },
        }

    def apply(
        self,
        gradients: Iterable[tf.Tensor],
        learning_rate: tf.Tensor,
        made: tf.Tensor | bool = True,
    ) -> None:
        """Updates this replica's copy; call it in a replica context.

        Args: as of `Adam.apply`.
        """
        count = tf.cast(own_copy.read(self.applied) + 1, tf.float32)
        own_copy.add(self.applied, tf.cast(made, tf.int64))
        beta2 = tf.where(made, 1.0 - tf.pow(count, _DECAY), 1.0)
        learning_rate = tf.where(made, learning_rate, 0.0)
        for variable, squares, gradient in zip(
            self._variables, self._squares, gradients, strict=True
        ):
            change = gradient * _inverse_root(
                squares, tf.square(gradient) + _LEAST_SQUARE, beta2
            )
            change /= tf.maximum(1.0, _root_mean_square(change) / _MOST_CHANGE)
            scale = _root_mean_square(own_copy.read(variable))
            rate = learning_rate * tf.maximum(_LEAST_SCALE, scale)
            # Roots of squares that are zero yet are infinite.
            own_copy.subtract(variable, tf.math.multiply_no_nan(change, rate))


def _squares_of(shape: tf.TensorShape) -> dict[str, tf.Variable]:
    """What is kept of a variable's squared gradients, by name."""
    if len(shape) < 2:
        return {"square": own_copy.zeros(shape)}
    return {
        "row": own_copy.zeros(shape[:-1]),
        "column": own_copy.zeros(shape[:-2] + shape[-1:]),
    }


def _inverse_root(
    squares: dict[str, tf.Variable], new: tf.Tensor, beta2: tf.Tensor
) -> tf.Tensor:
    """Takes in new squares; gives 1 / root of the mean of all so far.

    That of a matrix is the product of row and column over their common sum.
    The roots are taken before the product, which could be too small a number.
    """
    axes = {"square": (), "row": -1, "column": -2}
    means = {}
    for part, kept in squares.items():
        mean = tf.reduce_mean(new, axes[part])
        means[part] = beta2 * own_copy.read(kept) + (1.0 - beta2) * mean
        own_copy.assign(kept, means[part])
    if "square" in means:
        return tf.math.rsqrt(means["square"])
    row, column = means["row"], means["column"]
    row /= tf.reduce_mean(row, -1, keepdims=True)
    return tf.math.rsqrt(row)[..., None] * tf.math.rsqrt(column)[..., None, :]


def _root_mean_square(tensor: tf.Tensor) -> tf.Tensor:
    return tf.sqrt(tf.reduce_mean(tf.square(tensor)))
