"""Multi-head attention (arXiv:1706.03762, section 3.2)."""

import keras
from keras import ops

from t2t_lite.layers.dropout import no_dropout
from t2t_lite.layers.feed_forward import project


class MultiHeadAttention(keras.layers.Layer):
    """Scaled dot-product attention in several heads, without biases.

    Args:
      num_heads: H, a divisor of the input's last dimension D; keys and values
        have D / H units a head.
      attention_dropout: share of the attention weights dropped in training.
    """

    def __init__(self, num_heads, attention_dropout=0.0, **kwargs):
        super().__init__(**kwargs)
        self.num_heads = num_heads
        self.attention_dropout = attention_dropout

    def build(self, input_shape):
        size = input_shape[-1]
        self.head_depth = size // self.num_heads

        def kernel(name):
            return self.add_weight(
                shape=(size, size), initializer="glorot_uniform", name=name
            )

        self.query_kernel = kernel("query_kernel")
        self.key_kernel = kernel("key_kernel")
        self.value_kernel = kernel("value_kernel")
        self.output_kernel = kernel("output_kernel")
        self.built = True

    def call(self, x, bias, memory=None, dropout=no_dropout):
        """Attends from every position of `x`.

        Args:
          x: float [B, T, D], what asks.
          bias: float32, broadcast to [B, H, T, S], added to the scores: 0
            where attention is allowed, else a large negative number.
          memory: float [B, S, D], what is attended; None: `x` itself.
          dropout: `DropoutMasks` of this pass, or `no_dropout`.

        Returns: float [B, T, D].
        """
        if memory is None:
            query, keys, values = self.project_self(x)
        else:
            query = self.project_query(x)
            keys, values = self.project_memory(memory)
        context = self.attend(query, keys, values, bias, dropout)
        return self.merge_heads(context)

    def self_kernel(self):
        """The kernels of queries, keys and values, side by side: [D, 3 * D]."""
        return ops.concatenate(
            [self._scaled_query_kernel(), self.key_kernel, self.value_kernel],
            axis=1,
        )

    def project_self(self, x, kernel=None):
        """Queries, keys and values of `x` [B, T, D]: three [B, H, T, d].

        Args:
          x: float [B, T, D].
          kernel: `self_kernel()`, where it is at hand.
        """
        # One product instead of three: wide ones are cheaper per column.
        kernel = self.self_kernel() if kernel is None else kernel
        return self._split_heads(project(x, kernel), 3)

    def project_query(self, x):
        """Scaled queries of `x` [B, T, D]: [B, H, T, d]."""
        kernel = self._scaled_query_kernel()
        (query,) = self._split_heads(project(x, kernel), 1)
        return query

    def project_memory(self, memory):
        """Keys and values of `memory` [B, S, D]: two [B, H, S, d]."""
        kernel = ops.concatenate([self.key_kernel, self.value_kernel], axis=1)
        return self._split_heads(project(memory, kernel), 2)

    def attend(self, query, keys, values, bias, dropout=no_dropout):
        """The weighted values, equation 1: [B, H, T, d].

        Args:
          query: float [B, H, T, d], scaled.
          keys: float [B, H, S, d].
          values: float [B, H, S, d].
          bias: float32, broadcast to [B, H, T, S].
          dropout: `DropoutMasks` of this pass, or `no_dropout`.
        """
        scores = ops.matmul(query, ops.swapaxes(keys, -1, -2))
        # In float32: a bfloat16 softmax over long sources does not sum to 1.
        scores = ops.cast(scores, "float32") + ops.cast(bias, "float32")
        weights = ops.softmax(scores, axis=-1)
        weights = dropout(weights, self.attention_dropout)
        return ops.matmul(ops.cast(weights, values.dtype), values)

    def merge_heads(self, context):
        """[B, H, T, d] to the layer's output [B, T, D]."""
        batch, _, length, _ = ops.shape(context)
        size = self.num_heads * self.head_depth
        context = ops.transpose(context, (0, 2, 1, 3))
        return project(
            ops.reshape(context, (batch, length, size)), self.output_kernel
        )

    def _scaled_query_kernel(self):
        # 1 / sqrt(d_k) of equation 1, on the weights: there are fewer of them.
        return self.query_kernel * self.head_depth**-0.5

    def _split_heads(self, x, parts):
        """[B, T, parts * H * d] to `parts` tensors [B, H, T, d]."""
        batch, length, _ = ops.shape(x)
        x = ops.reshape(
            x, (batch, length, parts, self.num_heads, self.head_depth)
        )
        return ops.unstack(ops.transpose(x, (2, 0, 3, 1, 4)), parts)

    def get_config(self):
        return {
            **super().get_config(),
            "num_heads": self.num_heads,
            "attention_dropout": self.attention_dropout,
        }
