"""The layers that the encoder and the decoder stack (section 3.1)."""

from collections.abc import Callable
from typing import Any, Self

import keras

from t2t_lite.hparam import ModelHParams
from t2t_lite.model.layers.attention import MultiHeadAttention
from t2t_lite.model.layers.backend import Shape, Tensor, add_alike
from t2t_lite.model.layers.dropout import Dropout, no_dropout
from t2t_lite.model.layers.feed_forward import FeedForward
from t2t_lite.model.layers.normalization import LayerNormalization


class _Block(keras.layers.Layer):
    """Sublayers with a residual connection and normalization around each.

    Post-norm, the paper's: `norm(x + dropout(sublayer(x)))`. Pre-norm:
    `x + dropout(sublayer(norm(x)))`, the stack ending in one more norm.
    """

    def __init__(self, hparams: ModelHParams, **kwargs: Any):
        super().__init__(**kwargs)
        self.hparams = hparams

    def _attention(self, name, **options):
        return MultiHeadAttention(
            self.hparams.num_heads,
            self.hparams.key_depth,
            self.hparams.value_depth,
            self.hparams.attention_dropout,
            **options,
            name=name,
            dtype=self.dtype_policy,
        )

    def _self_attention(self, causal):
        return self._attention(
            "self_attention",
            window=self.hparams.attention_window,
            causal=causal,
            max_relative_position=self.hparams.max_relative_position,
        )

    def _norm(self, name):
        return LayerNormalization(
            self.hparams.norm_epsilon, name=name, dtype=self.dtype_policy
        )

    def _build_with_feed_forward(self, input_shape):
        """Adds the last sublayer of every block, then builds them all."""
        self.feed_forward = FeedForward(
            self.hparams.filter_size,
            self.hparams.relu_dropout,
            name="feed_forward",
            dtype=self.dtype_policy,
        )
        self.feed_forward_norm = self._norm("feed_forward_norm")
        for layer in self._flatten_layers(include_self=False, recursive=False):
            layer.build(input_shape)
        self.built = True

    def with_attentions(
        self,
        x: Tensor,
        *attend: Callable[[Tensor], Tensor],
        feed_forward: Callable[[Tensor], Tensor] | None = None,
        dropout: Dropout = no_dropout,
    ) -> Tensor:
        """The layer around functions that attend, each [B, T, D] -> same.

        A full pass and a cached step differ in these functions only, and in
        that a step may bring a `feed_forward` with weights cast before.
        """
        for norm, function in zip(self._attention_norms, attend, strict=True):
            x = self._residual(x, norm, function, dropout)
        return self._residual(
            x,
            self.feed_forward_norm,
            feed_forward or (lambda y: self.feed_forward(y, dropout=dropout)),
            dropout,
        )

    def _residual(self, x, norm, sublayer, dropout):
        rate = self.hparams.residual_dropout
        if self.hparams.norm_placement == "pre":
            return add_alike(x, dropout(sublayer(norm(x)), rate))
        return norm(add_alike(x, dropout(sublayer(x), rate)))

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "hparams": self.hparams.model_part()}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        hparams = ModelHParams(**config["hparams"])
        return super().from_config({**config, "hparams": hparams})


@keras.saving.register_keras_serializable(package="t2t_lite")
class EncoderLayer(_Block):
    """Self-attention, then the feed-forward network.

    Args:
      hparams: the sizes, the dropout and where the norms go.
    """

    def build(self, input_shape: Shape) -> None:
        self.self_attention = self._self_attention(causal=False)
        self.self_attention_norm = self._norm("self_attention_norm")
        self._build_with_feed_forward(input_shape)

    def call(
        self,
        x: Tensor,
        bias: Tensor,
        dropout: Dropout = no_dropout,
        segments: Tensor | None = None,
    ) -> Tensor:
        """Float [B, S, D] to float [B, S, D].

        Args:
          x: float [B, S, D].
          bias: float32 [B, 1, 1 or S, S], which source positions are seen.
          dropout: `DropoutMasks` of this pass, or `no_dropout`.
          segments: int [B, S], or None; for a window, see `MultiHeadAttention`.
        """
        return self.with_attentions(
            x,
            lambda y: self.self_attention(
                y, bias, dropout=dropout, segments=segments
            ),
            dropout=dropout,
        )

    @property
    def _attention_norms(self):
        return [self.self_attention_norm]


@keras.saving.register_keras_serializable(package="t2t_lite")
class DecoderLayer(_Block):
    """Self-attention, attention to the source, the feed-forward network.

    Args: as `EncoderLayer`.
    """

    def build(self, input_shape: Shape) -> None:
        self.self_attention = self._self_attention(causal=True)
        self.self_attention_norm = self._norm("self_attention_norm")
        self.cross_attention = self._attention("cross_attention")
        self.cross_attention_norm = self._norm("cross_attention_norm")
        self._build_with_feed_forward(input_shape)

    def call(
        self,
        x: Tensor,
        memory: Tensor,
        self_bias: Tensor | None,
        cross_bias: Tensor,
        dropout: Dropout = no_dropout,
        segments: Tensor | None = None,
    ) -> Tensor:
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
            dropout=dropout,
        )

    @property
    def _attention_norms(self):
        return [self.self_attention_norm, self.cross_attention_norm]
