"""Position encodings (arXiv:1706.03762, section 3.5)."""

import math
from typing import Any

import keras
from keras import ops

from t2t_lite.model.layers.backend import Shape, Tensor


def position_signal(
    positions: Tensor, depth: int, layout: str = "interleaved"
) -> Tensor:
    """Sines and cosines of geometrically growing wavelengths.

    Args:
      positions: int [T], counted from 0.
      depth: d_model; even with "interleaved".
      layout: "interleaved": sine at 2i and cosine at 2i + 1 of the angle
        position / 10000 ** (2i / depth), as in section 3.5. "concatenated":
        tensor2tensor's, all sines, then all cosines, the wavelengths reaching
        10000 * 2 pi at the last pair; an odd depth ends in a zero.

    Returns: float32 [T, depth], in float32 under every precision: bfloat16
      cannot tell neighboring positions beyond 256 apart.
    """
    pairs = depth // 2
    steps = pairs if layout == "interleaved" else max(pairs - 1, 1)
    exponents = ops.arange(pairs, dtype="float32") / steps
    frequencies = ops.exp(exponents * -math.log(10000.0))
    angles = ops.cast(positions, "float32")[:, None] * frequencies[None, :]
    if layout == "concatenated":
        signal = ops.concatenate([ops.sin(angles), ops.cos(angles)], axis=-1)
        return ops.pad(signal, ((0, 0), (0, 1))) if depth % 2 else signal
    signal = ops.stack([ops.sin(angles), ops.cos(angles)], axis=-1)
    return ops.reshape(signal, (-1, depth))  # [T, D / 2, 2] -> [T, D]


@keras.saving.register_keras_serializable(package="t2t_lite")
class SinusoidalPositions(keras.layers.Layer):
    """Adds `position_signal`; has no weights and no longest length."""

    def __init__(self, layout: str = "interleaved", **kwargs: Any):
        super().__init__(**kwargs)
        self.layout = layout

    def call(
        self,
        x: Tensor,
        start: int | Tensor = 0,
        positions: Tensor | None = None,
    ) -> Tensor:
        """Float [B, T, D] plus the signal of positions start...start+T-1.

        Args:
          x: float [B, T, D].
          start: an int, or an int32 scalar.
          positions: int [B, T], which of these each one is instead; below T.
        """
        signal = position_signal(
            start + ops.arange(ops.shape(x)[1]), x.shape[-1], self.layout
        )
        if positions is not None:
            signal = ops.take(signal, positions, axis=0)  # -> [B, T, D]
        return ops.cast(ops.cast(x, "float32") + signal, x.dtype)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "layout": self.layout}


def no_positions(
    x: Tensor, start: int | Tensor = 0, positions: Tensor | None = None
) -> Tensor:
    """`x` itself: a model that knows positions by other means, or not."""
    del start, positions
    return x


@keras.saving.register_keras_serializable(package="t2t_lite")
class LearnedPositions(keras.layers.Layer):
    """Adds a learned vector per position (table 3, row E).

    Args:
      max_length: the number of positions; to later ones nothing is added, so
        that a hypothesis may run past it.
    """

    def __init__(self, max_length: int, **kwargs: Any):
        super().__init__(**kwargs)
        self.max_length = max_length

    def build(self, input_shape: Shape) -> None:
        size = input_shape[-1]
        self.table = self.add_weight(
            shape=(self.max_length, size),
            initializer=keras.initializers.RandomNormal(stddev=size**-0.5),
            name="table",
        )
        self.built = True

    def call(
        self,
        x: Tensor,
        start: int | Tensor = 0,
        positions: Tensor | None = None,
    ) -> Tensor:
        """Float [B, T, D] plus the vectors of positions start...start+T-1.

        Args: as in `SinusoidalPositions`.
        """
        if positions is None:
            positions = start + ops.arange(ops.shape(x)[1])
        known = ops.minimum(positions, self.max_length - 1)
        vectors = ops.take(self.table, known, axis=0)
        is_known = ops.equal(known, positions)[..., None]
        return x + ops.where(is_known, vectors, ops.zeros_like(vectors))

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "max_length": self.max_length}
