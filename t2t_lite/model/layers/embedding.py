"""Token embeddings and the softmax matrix (arXiv:1706.03762, section 3.4)."""

from typing import Any

import keras
from keras import ops

from t2t_lite.model.layers.backend import Shape, Tensor
from t2t_lite.model.layers.initial import drawn
from t2t_lite.model.layers.masks import padding_mask
from t2t_lite.model.layers.product import project


@keras.saving.register_keras_serializable(package="t2t_lite")
class TokenEmbedding(keras.layers.Layer):
    """A table [V, D] that embeds tokens and, unscaled, scores them.

    Args:
      vocab_size: V.
      hidden_size: d_model.
      scaled: whether embeddings are multiplied by its square root.
    """

    def __init__(
        self,
        vocab_size: int,
        hidden_size: int,
        scaled: bool = True,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        self.vocab_size = vocab_size
        self.hidden_size = hidden_size
        self.scaled = scaled

    def build(self, input_shape: Shape | None = None) -> None:
        stddev = self.hidden_size**-0.5
        self.table = self.add_weight(
            shape=(self.vocab_size, self.hidden_size),
            initializer=drawn(keras.initializers.RandomNormal(stddev=stddev)),
            name="table",
            autocast=False,  # the rows that are used are cast, not all
        )
        self.built = True

    def call(self, ids: Tensor) -> Tensor:
        """Int [B, T] to float [B, T, D]; padding is embedded as zero."""
        real = ops.cast(padding_mask(ids), self.compute_dtype)
        vectors = ops.take(self.table, ids, axis=0)
        vectors = ops.cast(vectors, self.compute_dtype)
        return vectors * (self.scale * real)[..., None]

    @property
    def scale(self) -> float:
        """What embeddings are multiplied by."""
        return self.hidden_size**0.5 if self.scaled else 1.0

    def logits_kernel(self, dtype: str) -> Tensor:
        """The table as [D, V], of that dtype.

        The steps of a search multiply with it: a product of a few rows with
        [V, D] transposed on the fly takes up to twice as long.
        """
        return ops.transpose(ops.cast(self.table, dtype))

    def logits(self, hidden: Tensor, kernel: Tensor | None = None) -> Tensor:
        """Float [..., D] to float32 [..., V], the input of the softmax.

        `kernel` is a `logits_kernel(hidden.dtype)` made before.
        """
        if kernel is None:
            kernel = self.logits_kernel(hidden.dtype)
        return ops.cast(project(hidden, kernel), "float32")

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "vocab_size": self.vocab_size,
            "hidden_size": self.hidden_size,
            "scaled": self.scaled,
        }


@keras.saving.register_keras_serializable(package="t2t_lite")
class SourceVector(keras.layers.Layer):
    """Adds one vector to every embedded source token.

    tensor2tensor has one for each kind of target. It begins as zero.
    """

    def build(self, input_shape: Shape) -> None:
        self.vector = self.add_weight(
            shape=(input_shape[-1],), initializer="zeros", name="vector"
        )
        self.built = True

    def call(self, x: Tensor) -> Tensor:
        """Float [B, S, D] to float [B, S, D]."""
        return x + self.vector
