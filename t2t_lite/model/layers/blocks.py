"""The layers that the encoder and the decoder stack (section 3.1)."""

import keras

from t2t_lite.model.layers.attention import MultiHeadAttention
from t2t_lite.model.layers.dropout import no_dropout
from t2t_lite.model.layers.feed_forward import FeedForward
from t2t_lite.model.layers.normalization import LayerNormalization


class _Block(keras.layers.Layer):
    """Sublayers with a residual connection and normalization around each.

    Post-norm, the paper's: `norm(x + dropout(sublayer(x)))`. Pre-norm:
    `x + dropout(sublayer(norm(x)))`, the stack ending in one more norm.
    """

    def __init__(
        self,
        num_heads,
        filter_size,
        key_depth=None,
        value_depth=None,
        attention_window=None,
        norm_placement="post",
        residual_dropout=0.0,
        attention_dropout=0.0,
        relu_dropout=0.0,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.num_heads = num_heads
        self.filter_size = filter_size
        self.key_depth = key_depth
        self.value_depth = value_depth
        self.attention_window = attention_window
        self.norm_placement = norm_placement
        self.residual_dropout = residual_dropout
        self.attention_dropout = attention_dropout
        self.relu_dropout = relu_dropout

    def _build_each(self, input_shape, *sublayers):
        for sublayer in sublayers:
            sublayer.build(input_shape)
        self.built = True

    def _attention(self, name, window=None, causal=False):
        return MultiHeadAttention(
            self.num_heads,
            self.key_depth,
            self.value_depth,
            self.attention_dropout,
            window=window,
            causal=causal,
            name=name,
            dtype=self.dtype_policy,
        )

    def _feed_forward(self):
        return FeedForward(
            self.filter_size,
            self.relu_dropout,
            name="feed_forward",
            dtype=self.dtype_policy,
        )

    def _norm(self, name):
        return LayerNormalization(name=name, dtype=self.dtype_policy)

    def residual(self, x, norm, sublayer, dropout=no_dropout):
        """`sublayer`, a function of [B, T, D], with what goes around it."""
        if self.norm_placement == "pre":
            return x + dropout(sublayer(norm(x)), self.residual_dropout)
        return norm(x + dropout(sublayer(x), self.residual_dropout))

    def get_config(self):
        return {
            **super().get_config(),
            "num_heads": self.num_heads,
            "filter_size": self.filter_size,
            "key_depth": self.key_depth,
            "value_depth": self.value_depth,
            "attention_window": self.attention_window,
            "norm_placement": self.norm_placement,
            "residual_dropout": self.residual_dropout,
            "attention_dropout": self.attention_dropout,
            "relu_dropout": self.relu_dropout,
        }


class EncoderLayer(_Block):
    """Self-attention, then the feed-forward network.

    Args:
      num_heads: H.
      filter_size: d_ff.
      key_depth: d_k; None: D / H.
      value_depth: d_v; None: D / H.
      attention_window: r of self-attention; None: it sees all positions.
      norm_placement: "post" or "pre".
      residual_dropout: share dropped from each sublayer's output.
      attention_dropout: share dropped from the attention weights.
      relu_dropout: share dropped inside the feed-forward network.
    """

    def build(self, input_shape):
        self.self_attention = self._attention(
            "self_attention", self.attention_window
        )
        self.self_attention_norm = self._norm("self_attention_norm")
        self.feed_forward = self._feed_forward()
        self.feed_forward_norm = self._norm("feed_forward_norm")
        self._build_each(
            input_shape,
            self.self_attention,
            self.self_attention_norm,
            self.feed_forward,
            self.feed_forward_norm,
        )

    def call(self, x, bias, dropout=no_dropout, segments=None):
        """Float [B, S, D] to float [B, S, D].

        Args:
          x: float [B, S, D].
          bias: float32 [B, 1, 1 or S, S], which source positions are seen.
          dropout: `DropoutMasks` of this pass, or `no_dropout`.
          segments: int [B, S], or None; for a window, see `MultiHeadAttention`.
        """
        return self.with_attention(
            x,
            lambda y: self.self_attention(
                y, bias, dropout=dropout, segments=segments
            ),
            dropout,
        )

    def with_attention(self, x, attend_self, dropout=no_dropout):
        """The layer around a function that attends, [B, S, D] -> same."""
        x = self.residual(x, self.self_attention_norm, attend_self, dropout)
        return self.residual(
            x,
            self.feed_forward_norm,
            lambda y: self.feed_forward(y, dropout=dropout),
            dropout,
        )


class DecoderLayer(_Block):
    """Self-attention, attention to the source, the feed-forward network.

    Args: as `EncoderLayer`.
    """

    def build(self, input_shape):
        self.self_attention = self._attention(
            "self_attention", self.attention_window, causal=True
        )
        self.self_attention_norm = self._norm("self_attention_norm")
        self.cross_attention = self._attention("cross_attention")
        self.cross_attention_norm = self._norm("cross_attention_norm")
        self.feed_forward = self._feed_forward()
        self.feed_forward_norm = self._norm("feed_forward_norm")
        self._build_each(
            input_shape,
            self.self_attention,
            self.self_attention_norm,
            self.cross_attention,
            self.cross_attention_norm,
            self.feed_forward,
            self.feed_forward_norm,
        )

    def call(
        self,
        x,
        memory,
        self_bias,
        cross_bias,
        dropout=no_dropout,
        segments=None,
    ):
        """Float [B, T, D] to float [B, T, D].

        Args:
          x: float [B, T, D].
          memory: float [B, S, D], the encoder's output.
          self_bias: float32 [1 or B, 1, T, T], causal; None with a window.
          cross_bias: float32 [B, 1, 1 or T, S], which source positions are
            seen.
          dropout: `DropoutMasks` of this pass, or `no_dropout`.
          segments: int [B, T], or None; for a window, see `MultiHeadAttention`.
        """
        return self.with_attentions(
            x,
            lambda y: self.self_attention(
                y, self_bias, dropout=dropout, segments=segments
            ),
            lambda y: self.cross_attention(
                y, cross_bias, memory=memory, dropout=dropout
            ),
            dropout,
        )

    def with_attentions(
        self, x, attend_self, attend_source, dropout=no_dropout
    ):
        """The layer around two functions that attend, each [B, T, D] -> same.

        A full pass and a cached step differ in these two functions only.
        """
        x = self.residual(x, self.self_attention_norm, attend_self, dropout)
        x = self.residual(x, self.cross_attention_norm, attend_source, dropout)
        return self.residual(
            x,
            self.feed_forward_norm,
            lambda y: self.feed_forward(y, dropout=dropout),
            dropout,
        )
