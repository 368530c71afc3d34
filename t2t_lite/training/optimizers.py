"""Optimizers whose updates can be skipped, and which weights they train.

Replicas hold equal gradients, so each one updates its own copy of a variable:
`assign` on a mirrored variable would merge the replicas first. Keras'
optimizers synchronize replicas in a way that cannot be skipped when gradients
are not finite.
"""

import fnmatch
from collections.abc import Iterable, Sequence

import tensorflow as tf

from t2t_lite.errors import UsageError, did_you_mean
from t2t_lite.hparam import HParams

# Groups of weights to freeze. Embeddings are the token tables and the softmax.
GROUPS = {
    "encoder": ("encoder_*",),
    "decoder": ("decoder_*",),
    "embeddings": ("*_embedding/*", "softmax/*"),
}
# Adafactor's constants, algorithms 4 and 5 of its paper.
_DECAY = -0.8  # of the mean of squares: beta2 = 1 - update ** -0.8
_LEAST_SQUARE = 1e-30  # added to each squared gradient
_LEAST_SCALE = 1e-3  # of a variable
_MOST_CHANGE = 1.0  # root mean square of a change, before it is scaled


def read(variable: tf.Variable) -> tf.Tensor:
    """Return this replica's value, after all writes before this line."""
    return tf.raw_ops.ReadVariableOp(
        resource=variable.handle, dtype=variable.dtype
    )


def assign(variable: tf.Variable, value: tf.Tensor) -> None:
    """Set this replica's value."""
    tf.raw_ops.AssignVariableOp(resource=variable.handle, value=value)


def add(variable: tf.Variable, value: tf.Tensor) -> None:
    """Add to this replica's value."""
    tf.raw_ops.AssignAddVariableOp(resource=variable.handle, value=value)


def subtract(variable: tf.Variable, value: tf.Tensor) -> None:
    """Subtract from this replica's value."""
    tf.raw_ops.AssignSubVariableOp(resource=variable.handle, value=value)


def _zeros(shape: tf.TensorShape) -> tf.Variable:
    """Return a float32 variable of zeros."""
    return tf.Variable(tf.zeros(shape), trainable=False)


class Optimizer:
    """Updates variables by their gradients, or skips an update.

    Make it within the strategy's scope.

    Attributes:
      applied: number of updates made.
      state: of each variable, by name.
    """

    name: str
    state: list[dict[str, tf.Variable]]

    def __init__(self, variables: Iterable[tf.Variable]):
        self._variables = list(variables)
        self.applied = tf.Variable(0, dtype=tf.int64, trainable=False)

    def tensors(self, names: Sequence[str]) -> dict[str, tf.Variable]:
        """Return the state for checkpoints, by the names of the variables."""
        tensors = {f"{self.name}/applied": self.applied}
        for path, state in zip(names, self.state, strict=True):
            for part, tensor in state.items():
                tensors[f"{self.name}/{part}/{path}"] = tensor
        return tensors

    def apply(
        self,
        gradients: Sequence[tf.Tensor],
        learning_rate: tf.Tensor,
        made: tf.Tensor | bool = True,
    ) -> None:
        """Update this replica's copy; call it in a replica context.

        If `made` is false, the gradients are zeros, and nothing changes.
        """
        count = tf.cast(read(self.applied) + 1, tf.float32)
        add(self.applied, tf.cast(made, tf.int64))
        self._apply(gradients, count, tf.where(made, learning_rate, 0.0), made)

    def _apply(self, gradients, count, learning_rate, made) -> None:
        raise NotImplementedError


class Adam(Optimizer):
    """Adam (arXiv:1412.6980) by TensorFlow's one-pass kernel.

    `keras.optimizers.Adam` writes out the same formula as a dozen operations
    per variable.

    The weight decay is AdamW's (arXiv:1711.05101): before each update the
    matrices, embeddings included, lose this share of themselves times the
    learning rate. Biases and norms, the vectors, lose nothing.
    """

    name = "adam"

    def __init__(
        self,
        variables: Iterable[tf.Variable],
        beta1: float,
        beta2: float,
        epsilon: float,
        weight_decay: float = 0.0,
    ):
        super().__init__(variables)
        self._beta1, self._beta2, self._epsilon = beta1, beta2, epsilon
        self._weight_decay = weight_decay
        self.state = [
            {"mean": _zeros(v.shape), "square": _zeros(v.shape)}
            for v in self._variables
        ]

    def _apply(self, gradients, count, learning_rate, made):
        beta1_power = tf.pow(self._beta1, count)
        beta2_power = tf.pow(self._beta2, count)
        beta1 = tf.where(made, self._beta1, 1.0)
        beta2 = tf.where(made, self._beta2, 1.0)
        epsilon = tf.constant(self._epsilon)
        for variable, state, gradient in zip(
            self._variables, self.state, gradients, strict=True
        ):
            if self._weight_decay and len(variable.shape) > 1:
                share = learning_rate * self._weight_decay
                subtract(variable, share * read(variable))
            tf.raw_ops.ResourceApplyAdam(
                var=variable.handle,
                m=state["mean"].handle,
                v=state["square"].handle,
                beta1_power=beta1_power,
                beta2_power=beta2_power,
                lr=learning_rate,
                beta1=beta1,
                beta2=beta2,
                epsilon=epsilon,
                grad=gradient,
            )


class Adafactor(Optimizer):
    """Adafactor (arXiv:1804.04235), without the mean of gradients.

    The learning rate is relative: each variable changes by that share of its
    own root mean square. A matrix keeps means of its squares by row and column.

    `keras.optimizers.Adafactor` also keeps every square, and bounds the rate by
    `update ** -0.5` whatever the schedule says. Below that bound the two are
    equal.
    """

    name = "adafactor"

    def __init__(self, variables: Iterable[tf.Variable]):
        super().__init__(variables)
        self.state = [_squares_of(v.shape) for v in self._variables]

    def _apply(self, gradients, count, learning_rate, made):
        beta2 = tf.where(made, 1.0 - tf.pow(count, _DECAY), 1.0)
        for variable, squares, gradient in zip(
            self._variables, self.state, gradients, strict=True
        ):
            change = gradient * _inverse_root(
                squares, tf.square(gradient) + _LEAST_SQUARE, beta2
            )
            change /= tf.maximum(1.0, _root_mean_square(change) / _MOST_CHANGE)
            scale = _root_mean_square(read(variable))
            rate = learning_rate * tf.maximum(_LEAST_SCALE, scale)
            # Inverse roots of squares that are still zero are infinite.
            subtract(variable, tf.math.multiply_no_nan(change, rate))


def _squares_of(shape):
    if len(shape) < 2:
        return {"square": _zeros(shape)}
    return {
        "row": _zeros(shape[:-1]),
        "column": _zeros(shape[:-2] + shape[-1:]),
    }


def _inverse_root(squares, new, beta2):
    """Update the means with new squares; return 1 / root of the mean.

    The mean of a matrix is the product of row and column over their common
    mean. The roots are taken before the product, which could underflow.
    """
    axes = {"square": (), "row": -1, "column": -2}
    means = {}
    for part, kept in squares.items():
        mean = tf.reduce_mean(new, axes[part])
        means[part] = beta2 * read(kept) + (1.0 - beta2) * mean
        assign(kept, means[part])
    if "square" in means:
        return tf.math.rsqrt(means["square"])
    row, column = means["row"], means["column"]
    row /= tf.reduce_mean(row, -1, keepdims=True)
    return tf.math.rsqrt(row)[..., None] * tf.math.rsqrt(column)[..., None, :]


def _root_mean_square(tensor):
    return tf.sqrt(tf.reduce_mean(tf.square(tensor)))


def make_optimizer(hparams: HParams, variables: list[tf.Variable]) -> Optimizer:
    """Return the optimizer that the hparams name."""
    if hparams.optimizer == "adafactor":
        return Adafactor(variables)
    return Adam(
        variables,
        hparams.adam_beta1,
        hparams.adam_beta2,
        hparams.adam_epsilon,
        hparams.weight_decay,  # 0 without AdamW, see the rules of hparams
    )


class MovingAverage:
    """An exponential moving average of variables, in `averages`.

    It begins as they are. After update n it keeps min(decay, (1 + n) / (10 +
    n)) of itself, so that early weights are soon forgotten; that is the warm-up
    of `tf.train.ExponentialMovingAverage`. Make it within the strategy's scope.
    """

    def __init__(self, variables: Iterable[tf.Variable], decay: float):
        self._variables = list(variables)
        self._decay = decay
        self.averages = [_zeros(v.shape) for v in self._variables]
        self.begin()

    def begin(self) -> None:
        """Set it to the variables, outside of replicas."""
        for variable, average in zip(
            self._variables, self.averages, strict=True
        ):
            average.assign(variable)

    def update(
        self, applied: tf.Variable, made: tf.Tensor | bool = True
    ) -> None:
        """Include the variables, unless `made` is false, in a replica."""
        n = tf.cast(read(applied), tf.float32)
        taken = 1.0 - tf.minimum(self._decay, (1.0 + n) / (10.0 + n))
        taken = tf.where(made, taken, 0.0)
        for variable, average in zip(
            self._variables, self.averages, strict=True
        ):
            subtract(average, taken * (read(average) - read(variable)))


def frozen_paths(paths: Iterable[str], patterns: Sequence[str]) -> set[str]:
    """Return the paths of weights that match a pattern.

    A path is "transformer/encoder_layer_0/...". A pattern is a word of `GROUPS`
    or a glob on the part after the model's name; "*" also stands for "/".

    Raises:
      UsageError: a pattern matches nothing, or nothing is left to train.
    """
    names = {path.partition("/")[2]: path for path in paths}
    frozen: set[str] = set()
    for pattern in patterns:
        globs = GROUPS.get(pattern, (pattern,))
        found = {n for glob in globs for n in fnmatch.filter(names, glob)}
        if not found:
            parts = {name.partition("/")[0] + "/*" for name in names}
            known = [*GROUPS, *sorted(parts), *names]
            raise UsageError(
                f"freeze: {pattern!r} matches no weight; it is one of "
                f"{', '.join(GROUPS)}, or a pattern such as "
                f"encoder_layer_0/*.{did_you_mean(pattern, known)}"
            )
        frozen |= found
    if names and frozen == set(names):
        raise UsageError(
            f"freeze: {','.join(patterns)} leaves no weight to train."
        )
    return {names[name] for name in frozen}
