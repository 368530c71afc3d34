"""Token embeddings and the softmax matrix (arXiv:1706.03762, section 3.4)."""

import keras
from keras import ops

from t2t_lite.layers.feed_forward import project
from t2t_lite.layers.masks import padding_mask


class TokenEmbedding(keras.layers.Layer):
    """A table [V, D] that embeds tokens and, unscaled, scores them.

    Args:
      vocab_size: V.
      hidden_size: d_model; embeddings are multiplied by its square root.
    """

    def __init__(self, vocab_size, hidden_size, **kwargs):
        super().__init__(**kwargs)
        self.vocab_size = vocab_size
        self.hidden_size = hidden_size

    def build(self, input_shape=None):
        stddev = self.hidden_size**-0.5
        self.table = self.add_weight(
            shape=(self.vocab_size, self.hidden_size),
            initializer=keras.initializers.RandomNormal(stddev=stddev),
            name="table",
            autocast=False,  # the rows that are used are cast, not all
        )
        self.built = True

    def call(self, ids):
        """Int [B, T] to float [B, T, D]; padding is embedded as zero."""
        scale = self.hidden_size**0.5
        real = ops.cast(padding_mask(ids), self.compute_dtype)
        vectors = ops.take(self.table, ids, axis=0)
        vectors = ops.cast(vectors, self.compute_dtype)
        return vectors * (scale * real)[..., None]

    def logits_kernel(self, dtype):
        """The table as the kernel of `logits`: [D, V], of that dtype."""
        return ops.transpose(ops.cast(self.table, dtype))

    def logits(self, hidden, kernel=None):
        """Float [..., D] to float32 [..., V], the input of the softmax.

        Args:
          hidden: float [..., D].
          kernel: `logits_kernel(hidden.dtype)`, where it is at hand.
        """
        if kernel is None:
            kernel = self.logits_kernel(hidden.dtype)
        return ops.cast(project(hidden, kernel), "float32")

    def get_config(self):
        return {
            **super().get_config(),
            "vocab_size": self.vocab_size,
            "hidden_size": self.hidden_size,
        }
