"""Dropout whose masks are a pure function of a seed.

Keras' own dropout keeps a counter in a variable. That state is in no
checkpoint, and it is the same on every replica, so all of them drop the same
units. Here a training step hands in a seed made of the run, the update and
the micro-batch; nothing needs to be saved, and where a micro-batch is
computed does not change it.
"""

import keras
from keras import ops

# What each backend's random functions take as a seed.
_SEED_DTYPES = {"tensorflow": "int32", "jax": "uint32", "torch": "int32"}


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
        self._dtype = _SEED_DTYPES[keras.backend.backend()]
        self._seed = ops.cast(ops.convert_to_tensor(seed), self._dtype)
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
        seed = self._seed + ops.array([0, self._drawn], self._dtype)
        return keras.random.dropout(x, rate, seed=_GivenSeed(seed))


def no_dropout(x, rate):
    """The dropout of evaluation: `x` itself."""
    del rate
    return x
