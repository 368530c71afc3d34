"""The moving average of weights, which often translates better than they do."""

from collections.abc import Iterable

import tensorflow as tf

from t2t_lite.training.optimizer import own_copy


class MovingAverage:
    """An exponential moving average of variables, kept beside them.

    It begins as they are. After update n it keeps min(decay, (1 + n) / (10 +
    n)) of itself, so that early weights are soon forgotten; that is the warm-up
    of `tf.train.ExponentialMovingAverage`.

    Args:
      variables: the `tf.Variable`s; call within the strategy's scope.
      decay: the share that it keeps of itself, in the long run.

    Attributes:
      averages: one of each variable.
    """

    def __init__(self, variables: Iterable[tf.Variable], decay: float):
        self._variables = list(variables)
        self._decay = decay
        self.averages = [own_copy.zeros(v.shape) for v in self._variables]
        self.begin()

    def begin(self) -> None:
        """Makes it equal to the variables, outside of replicas."""
        for variable, average in zip(
            self._variables, self.averages, strict=True
        ):
            average.assign(variable)

    def update(
        self, applied: tf.Variable, made: tf.Tensor | bool = True
    ) -> None:
        """Takes in the variables; call it in a replica context.

        Args:
          applied: n, how many updates were made.
          made: bool; False: nothing changes.
        """
        n = tf.cast(own_copy.read(applied), tf.float32)
        taken = 1.0 - tf.minimum(self._decay, (1.0 + n) / (10.0 + n))
        taken = tf.where(made, taken, 0.0)
        for variable, average in zip(
            self._variables, self.averages, strict=True
        ):
            behind = own_copy.read(average) - own_copy.read(variable)
            own_copy.subtract(average, taken * behind)
