"""Dropout whose masks are a pure function of a seed.

Keras' own dropout keeps a counter in a variable. That state is in no
checkpoint, and it is the same on every replica, so all of them drop the same
units. Here a training step hands in a seed made of the run, the update and
the micro-batch; nothing needs to be saved, and where a micro-batch is
computed does not change it.
"""

import keras
from keras import ops


class _GivenSeed(keras.random.SeedGenerator):
    """The seed generator that `keras.random` asks for, without its state."""

    def __init__(self, seed):
        # Deliberately without super().__init__, which makes the variable.
        self._seed = seed

    def next(self, ordered=True):
        return self._seed


class DropoutMasks:
    """The dropout of one forward pass: each call draws the next mask.

    Args:
      seed: int32 [2]. Equal seeds give equal masks, call by call.
    """

    def __init__(self, seed):
        self._seed = ops.cast(ops.convert_to_tensor(seed), "int32")
        self._drawn = 0

    def __call__(self, x, rate):
        """`x` with a share `rate` of it zeroed, the rest divided by 1 - rate.

        Args:
          x: float, of any shape.
          rate: a Python float in [0, 1).
        """
        if not rate:
            return x
        self._drawn += 1
        seed = _GivenSeed(self._seed + ops.array([0, self._drawn], "int32"))
        return keras.random.dropout(x, rate, seed=seed)


def no_dropout(x, rate):
    """The dropout of evaluation: `x` itself."""
    del rate
    return x
