"""Optimizers with skippable updates, the moving average, and frozen weights.

All replicas have equal gradients, so each replica updates its own copy of a
variable without the cross-replica merge of `tf.Variable.assign`. The optimizers
of Keras synchronize the replicas in a way that cannot be skipped when gradients
are not finite.
"""

import fnmatch
from collections.abc import Iterable, Sequence

import tensorflow as tf

from t2t_lite.errors import UsageError, did_you_mean
from t2t_lite.hparam import HParams

# Names for weights to freeze; embeddings are the token tables and the softmax.
GROUPS = {
    "encoder": ("encoder_*",),
    "decoder": ("decoder_*",),
    "embeddings": ("*_embedding/*", "softmax/*"),
}
# Constants of Adafactor, algorithms 4 and 5 of arXiv:1804.04235.
_DECAY_EXPONENT = -0.8  # beta2 = 1 - update ** -0.8
_EPSILON_1 = 1e-30  # added to each squared gradient
_EPSILON_2 = 1e-3  # minimum scale of a variable
_CLIPPING_THRESHOLD = 1.0  # maximum root mean square of an unscaled change


def read(variable: tf.Variable) -> tf.Tensor:
    """Return this replica's value, after all preceding writes."""
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
    return tf.Variable(tf.zeros(shape), trainable=False)


class Optimizer:
    """An optimizer whose updates can be skipped.

    Create it within the strategy's scope. `applied` is the number of updates
    that were not skipped.
    """

    name: str
    state: list[dict[str, tf.Variable]]  # of each variable, by name

    def __init__(self, variables: Iterable[tf.Variable]):
        self._variables = list(variables)
        self.applied = tf.Variable(0, dtype=tf.int64, trainable=False)

    def tensors(self, names: Sequence[str]) -> dict[str, tf.Variable]:
        """Return the state for checkpoints, given the variables' names."""
        tensors = {f"{self.name}/applied": self.applied}
        for path, state in zip(names, self.state, strict=True):
            for key, tensor in state.items():
                tensors[f"{self.name}/{key}/{path}"] = tensor
        return tensors

    def apply(
        self,
        gradients: Sequence[tf.Tensor],
        learning_rate: tf.Tensor,
        finite: tf.Tensor | bool = True,
    ) -> None:
        """Update this replica's variables, in a replica context.

        If `finite` is false, gradients must be zeros, and nothing changes.
        """
        count = tf.cast(read(self.applied) + 1, tf.float32)
        add(self.applied, tf.cast(finite, tf.int64))
        rate = tf.where(finite, learning_rate, 0.0)
        self._apply(gradients, count, rate, finite)

    def _apply(self, gradients, count, learning_rate, finite) -> None:
        raise NotImplementedError


class Adam(Optimizer):
    """Adam (arXiv:1412.6980) with TensorFlow's fused kernel.

    `keras.optimizers.Adam` computes the same formula with a dozen operations
    per variable.

    The weight decay is AdamW's (arXiv:1711.05101): each update first multiplies
    matrices, embeddings included, by 1 - learning_rate * weight_decay. Biases
    and norms have no weight decay.
    """

    name = "adam"

    def __init__(self, variables: Iterable[tf.Variable], hparams: HParams):
        super().__init__(variables)
        self._hparams = hparams
        self.state = [
            {"mean": _zeros(v.shape), "square": _zeros(v.shape)}
            for v in self._variables
        ]

    def _apply(self, gradients, count, learning_rate, finite):
        hparams = self._hparams
        scalars = {
            "beta1_power": tf.pow(hparams.adam_beta1, count),
            "beta2_power": tf.pow(hparams.adam_beta2, count),
            "lr": learning_rate,
            "beta1": tf.where(finite, hparams.adam_beta1, 1.0),
            "beta2": tf.where(finite, hparams.adam_beta2, 1.0),
            "epsilon": tf.constant(hparams.adam_epsilon),
        }
        updates = zip(self._variables, self.state, gradients, strict=True)
        for variable, state, gradient in updates:
            if hparams.weight_decay and len(variable.shape) > 1:
                decay = learning_rate * hparams.weight_decay
                subtract(variable, decay * read(variable))
            tf.raw_ops.ResourceApplyAdam(
                var=variable.handle,
                m=state["mean"].handle,
                v=state["square"].handle,
                grad=gradient,
                **scalars,
            )


class Adafactor(Optimizer):
    """Adafactor (arXiv:1804.04235) without momentum.

    The learning rate is relative to the root mean square of each variable. A
    matrix stores the means of its squared gradients by row and by column.

    `keras.optimizers.Adafactor` also stores every squared gradient, and limits
    any schedule to `update ** -0.5`. Below this limit both give equal results.
    """

    name = "adafactor"

    def __init__(self, variables: Iterable[tf.Variable]):
        super().__init__(variables)
        self.state = [_squares_of(v.shape) for v in self._variables]

    def _apply(self, gradients, count, learning_rate, finite):
        beta2 = tf.where(finite, 1.0 - tf.pow(count, _DECAY_EXPONENT), 1.0)
        updates = zip(self._variables, self.state, gradients, strict=True)
        for variable, squares, gradient in updates:
            square = tf.square(gradient) + _EPSILON_1
            change = gradient * _inverse_root(squares, square, beta2)
            norm = _root_mean_square(change)
            change /= tf.maximum(1.0, norm / _CLIPPING_THRESHOLD)
            scale = _root_mean_square(read(variable))
            rate = learning_rate * tf.maximum(_EPSILON_2, scale)
            # Inverse roots of initial squares, which are zero, are infinite.
            subtract(variable, tf.math.multiply_no_nan(change, rate))


def _squares_of(shape):
    if len(shape) < 2:
        return {"square": _zeros(shape)}
    return {
        "row": _zeros(shape[:-1]),
        "column": _zeros(shape[:-2] + shape[-1:]),
    }


def _inverse_root(squares, new, beta2):
    """Update the means of squares; return the inverse root of the mean.

    The mean of a matrix is approximated by row * column / mean(row). The roots
    are computed first, because the product can underflow.
    """
    axes = {"square": (), "row": -1, "column": -2}
    means = {}
    for key, stored in squares.items():
        mean = tf.reduce_mean(new, axes[key])
        means[key] = beta2 * read(stored) + (1.0 - beta2) * mean
        assign(stored, means[key])
    if "square" in means:
        return tf.math.rsqrt(means["square"])
    row, column = means["row"], means["column"]
    row /= tf.reduce_mean(row, -1, keepdims=True)
    return tf.math.rsqrt(row)[..., None] * tf.math.rsqrt(column)[..., None, :]


def _root_mean_square(tensor):
    return tf.sqrt(tf.reduce_mean(tf.square(tensor)))


def make_optimizer(hparams: HParams, variables: list[tf.Variable]) -> Optimizer:
    """Return the optimizer named by the hparam `optimizer`."""
    if hparams.optimizer == "adafactor":
        return Adafactor(variables)
    return Adam(variables, hparams)


class MovingAverage:
    """An exponential moving average of variables, in `averages`.

    The decay after update n is min(decay, (1 + n) / (10 + n)), the warm-up of
    `tf.train.ExponentialMovingAverage`, so that initial weights have little
    effect. Create it within the strategy's scope.
    """

    def __init__(self, variables: Iterable[tf.Variable], decay: float):
        self._decay = decay
        self._pairs = [(_zeros(v.shape), v) for v in variables]
        self.averages = [average for average, _ in self._pairs]
        self.reset()

    def reset(self) -> None:
        """Set the averages to the variables, outside a replica context."""
        for average, variable in self._pairs:
            average.assign(variable)

    def update(
        self, applied: tf.Variable, finite: tf.Tensor | bool = True
    ) -> None:
        """Update the averages in a replica context, if `finite`."""
        n = tf.cast(read(applied), tf.float32)
        weight = 1.0 - tf.minimum(self._decay, (1.0 + n) / (10.0 + n))
        weight = tf.where(finite, weight, 0.0)
        for average, variable in self._pairs:
            subtract(average, weight * (read(average) - read(variable)))


def frozen_paths(paths: Iterable[str], patterns: Sequence[str]) -> set[str]:
    """Return the paths of the weights that match a pattern.

    A path is "transformer/encoder_layer_0/...". A pattern is a key of `GROUPS`,
    or a glob on the path after the model's name; "*" also matches "/".

    Raises:
      UsageError: a pattern matches no weight, or the patterns match all.
    """
    names = {path.partition("/")[2]: path for path in paths}
    frozen: set[str] = set()
    for pattern in patterns:
        globs = GROUPS.get(pattern, (pattern,))
        found = {n for glob in globs for n in fnmatch.filter(names, glob)}
        if not found:
            layers = {name.partition("/")[0] + "/*" for name in names}
            known = [*GROUPS, *sorted(layers), *names]
            raise UsageError(
                f"freeze: {pattern!r} matches no weight; use "
                f"{', '.join(GROUPS)}, or a pattern such as "
                f"encoder_layer_0/*.{did_you_mean(pattern, known)}"
            )
        frozen |= found
    if names and frozen == set(names):
        raise UsageError(f"freeze: {','.join(patterns)} freezes all weights.")
    return {names[name] for name in frozen}
