"""Token embeddings and the softmax matrix (arXiv:1706.03762, section 3.4)."""

from typing import Any

import keras
from keras import ops

from t2t_lite.model.layers.backend import Shape, Tensor
from t2t_lite.model.layers.masks import padding_mask
from t2t_lite.model.layers.product import project

# Columns of a kernel of logits: 257 cache lines in float32, an odd number, so
# that rows do not compete for the same lines.
_KERNEL_WIDTH = 4112


@keras.saving.register_keras_serializable(package="t2t_lite")
class TokenEmbedding(keras.layers.Layer):
    """A table [V, D] that embeds tokens and, unscaled, scores them.

    Args:
      vocab_size: V.
      hidden_size: d_model; embeddings are multiplied by its square root.
    """

    def __init__(self, vocab_size: int, hidden_size: int, **kwargs: Any):
        super().__init__(**kwargs)
        self.vocab_size = vocab_size
        self.hidden_size = hidden_size

    def build(self, input_shape: Shape | None = None) -> None:
        stddev = self.hidden_size**-0.5
        self.table = self.add_weight(
            shape=(self.vocab_size, self.hidden_size),
            initializer=keras.initializers.RandomNormal(stddev=stddev),
            name="table",
            autocast=False,  # the rows that are used are cast, not all
        )
        self.built = True

    def call(self, ids: Tensor) -> Tensor:
        """Int [B, T] to float [B, T, D]; padding is embedded as zero."""
        scale = self.hidden_size**0.5
        real = ops.cast(padding_mask(ids), self.compute_dtype)
        vectors = ops.take(self.table, ids, axis=0)
        vectors = ops.cast(vectors, self.compute_dtype)
        return vectors * (scale * real)[..., None]

    def logits_kernels(self, dtype: str) -> list[Tensor]:
        """The table in the layout that steps of a search multiply with.

        Returns: kernels [D, V'] of that dtype, whose V' add up to V. A product
          with narrow ones is a quarter faster than with one of 32,000 columns,
          and twice as fast as with one whose rows are 2 ** n bytes apart.
        """
        return [
            ops.transpose(
                ops.cast(self.table[start : start + _KERNEL_WIDTH], dtype)
            )
            for start in range(0, self.vocab_size, _KERNEL_WIDTH)
        ]

    def logits(
        self, hidden: Tensor, kernels: list[Tensor] | None = None
    ) -> Tensor:
        """Float [..., D] to float32 [..., V], the input of the softmax.

        Args:
          hidden: float [..., D].
          kernels: `logits_kernels(hidden.dtype)`, where they are at hand.
        """
        if kernels is None:
            kernels = [ops.transpose(ops.cast(self.table, hidden.dtype))]
        parts = [project(hidden, kernel) for kernel in kernels]
        logits = parts[0] if len(parts) == 1 else ops.concatenate(parts, -1)
        return ops.cast(logits, "float32")

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "vocab_size": self.vocab_size,
            "hidden_size": self.hidden_size,
        }
