"""Dropout whose masks are a pure function of a seed.

Keras' own dropout keeps a counter in a variable. That state is in no
checkpoint, and it is the same on every replica, so all of them drop the same
units. Here a training step hands in a seed made of the run, the update and
the micro-batch; nothing needs to be saved, and where a micro-batch is
computed does not change it.

It also draws a float32 for each unit and leaves the gradient to automatic
differentiation. Sixteen random bits are enough, and the gradient is the same
mask again.
"""

from collections.abc import Callable

from keras import ops

from t2t_lite.model.layers.backend import Tensor, random_int16

# Drops a share of a tensor: `DropoutMasks` of a pass, or `no_dropout`.
Dropout = Callable[[Tensor, float], Tensor]

# Random numbers have so many values.
_VALUES = 1 << 16


class DropoutMasks:
    """The dropout of one forward pass: each call draws the next mask.

    Args:
      seed: int32 [2]. Equal seeds give equal masks, call by call. A third
        number says how many rows of a batch lie before those here, which then
        lose what they lose in that batch.

    Attributes:
      drawn: masks so far. Set back, it gives the same ones again.
    """

    def __init__(self, seed: Tensor):
        seed = ops.cast(ops.convert_to_tensor(seed), "int32")
        self._seed = seed[:2] if seed.shape[0] == 3 else seed
        self._rows_before = seed[2] if seed.shape[0] == 3 else None
        self.drawn = 0

    def __call__(self, x: Tensor, rate: float) -> Tensor:
        """`x` with a share `rate` of it zeroed, the rest scaled up for it.

        The share is rounded to a multiple of 2 ** -16, and what is left is
        divided by what is really kept: the mean is exact.
        """
        dropped = min(round(rate * _VALUES), _VALUES - 1)
        if not dropped:
            return x
        self.drawn += 1
        seed = self._seed + ops.array([0, self.drawn], "int32")
        skip = None
        if self._rows_before is not None:
            skip = (self._rows_before, ops.size(x) // ops.shape(x)[0])
        bits = random_int16(x, seed, skip)
        keep = bits >= dropped - _VALUES // 2
        scale = _VALUES / (_VALUES - dropped)

        def drop(x):
            def gradient(upstream):
                return ops.where(keep, upstream * scale, 0.0)

            return ops.where(keep, x * scale, 0.0), gradient

        return ops.custom_gradient(drop)(x)


def no_dropout(x: Tensor, rate: float) -> Tensor:
    """The dropout of evaluation: `x` itself."""
    del rate
    return x
