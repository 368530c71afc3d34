"""Multi-head attention (arXiv:1706.03762, section 3.2)."""

from typing import Any

import keras
from keras import ops

from t2t_lite.model.layers.backend import (
    Shape,
    Tensor,
    reshape,
    reshape_rows,
    sizes,
)
from t2t_lite.model.layers.dropout import Dropout, no_dropout
from t2t_lite.model.layers.initial import drawn
from t2t_lite.model.layers.masks import attention_scores_bias, band_mask
from t2t_lite.model.layers.product import (
    batch_matmul,
    project_rows,
    softmax,
)
from t2t_lite.model.layers.relative import (
    distance_matrices,
    relative_scores,
    relative_values,
)
from t2t_lite.model.layers.window import attend_window


@keras.saving.register_keras_serializable(package="t2t_lite")
class MultiHeadAttention(keras.layers.Layer):
    """Scaled dot-product attention in several heads, without biases.

    Args:
      num_heads: H.
      key_depth: d_k, units a head of queries and keys; None: D / H, of the
        input's last dimension D.
      value_depth: d_v, units a head of values; None: D / H.
      attention_dropout: share of the attention weights dropped in training.
      window: r; a position attends to those at most r // 2 away from it
        (section 4, restricted self-attention). None: to all.
      causal: whether a window reaches back only.
      max_relative_position: k; keys and values know how far away they are, in
        self-attention, up to k positions (arXiv:1803.02155). None: they do not.
    """

    def __init__(
        self,
        num_heads: int,
        key_depth: int | None = None,
        value_depth: int | None = None,
        attention_dropout: float = 0.0,
        window: int | None = None,
        causal: bool = False,
        max_relative_position: int | None = None,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        self.num_heads = num_heads
        # Whole numbers once the layer is built.
        self.key_depth: Any = key_depth
        self.value_depth: Any = value_depth
        self.attention_dropout = attention_dropout
        self.window = window
        self.causal = causal
        self.max_relative_position = max_relative_position

    def build(self, input_shape: Shape) -> None:
        size = input_shape[-1]
        self.key_depth = self.key_depth or size // self.num_heads
        self.value_depth = self.value_depth or size // self.num_heads
        keys = self.num_heads * self.key_depth
        values = self.num_heads * self.value_depth
        self.query_kernel = self._kernel("query_kernel", size, keys)
        self.key_kernel = self._kernel("key_kernel", size, keys)
        self.value_kernel = self._kernel("value_kernel", size, values)
        self.output_kernel = self._kernel("output_kernel", values, size)
        if self.max_relative_position is not None:  # shared by the heads
            rows = 2 * self.max_relative_position + 1
            self.relative_keys = self._kernel(
                "relative_keys", rows, self.key_depth
            )
            self.relative_values = self._kernel(
                "relative_values", rows, self.value_depth
            )
        self.built = True

    def _kernel(self, name, rows, columns):
        return self.add_weight(
            shape=(rows, columns),
            initializer=drawn("glorot_uniform"),
            name=name,
        )

    @property
    def reach(self) -> int | None:
        """How many positions away a window ends; None without a window."""
        return None if self.window is None else self.window // 2

    def call(
        self,
        x: Tensor,
        bias: Tensor | None,
        memory: Tensor | None = None,
        dropout: Dropout = no_dropout,
        segments: Tensor | None = None,
    ) -> Tensor:
        """Attends from every position of `x`.

        Args:
          x: float [B, T, D], what asks.
          bias: float32, broadcast to [B, H, T, S], added to the scores: 0
            where attention is allowed, else a large negative number. With a
            window: [B, 1, 1, S], or None.
          memory: float [B, S, D], what is attended; None: `x` itself.
          dropout: `DropoutMasks` of this pass, or `no_dropout`.
          segments: int [B, T], or None; a window hides the positions of
            another number. Without a window the bias has to.

        Returns: float [B, T, D].
        """
        query, keys, values = self._project(x, memory)
        if self.reach is None:
            context = self.attend(query, keys, values, bias, dropout)
        else:
            context = attend_window(
                query,
                keys,
                values,
                bias,
                self.reach,
                self.causal,
                lambda weights: dropout(weights, self.attention_dropout),
                segments,
            )
        return reshape_rows(self.merge_heads(context), x)

    def weights_of(
        self, x: Tensor, bias: Tensor | None, memory: Tensor | None = None
    ) -> Tensor:
        """The attention weights of a call: float32 [B, H, T, S]."""
        query, keys, _ = self._project(x, memory)
        if self.reach is not None:
            length = ops.shape(x)[1]
            band = attention_scores_bias(
                band_mask(length, length, self.reach, self.causal)
            )
            bias = band if bias is None else bias + band
        return self._weights(query, keys, bias)

    def _weights(self, query, keys, bias):
        """The attention weights, with what distances add: [B, H, T, S]."""
        if self.max_relative_position is not None:
            scores = relative_scores(
                query, self.relative_keys, self._distances(query, bias)
            )
            bias = ops.cast(bias, "float32") + ops.cast(scores, "float32")
        return attention_weights(query, keys, bias)

    def _distances(self, x, bias):
        rows = self.relative_keys.shape[0]
        return distance_matrices(ops.shape(bias)[-1], rows, x.dtype)

    def _project(self, x, memory):
        if memory is None:
            return self.project_self(x)
        return self.project_query(x), *self.project_memory(memory)

    def self_kernel(self) -> Tensor:
        """The kernels of queries, keys and values, side by side."""
        return ops.concatenate(
            [self.scaled_query_kernel(), self.key_kernel, self.value_kernel],
            axis=1,
        )

    def project_self(
        self,
        x: Tensor,
        kernel: Tensor | None = None,
        dtype: str | None = None,
    ) -> list[Tensor]:
        """Queries, keys and values of `x` [B, T, D], each [B, H, T, d].

        Args:
          x: float [B, T, D].
          kernel: a `self_kernel()` made before; None makes it here.
          dtype: of what is returned; None: that of `x`.
        """
        # One product instead of three: wide ones are cheaper per column.
        kernel = self.self_kernel() if kernel is None else kernel
        depths = (self.key_depth, self.key_depth, self.value_depth)
        rows = ops.cast(project_rows(x, kernel), dtype or x.dtype)
        return self._split_heads(rows, x, depths)

    def project_query(
        self,
        x: Tensor,
        kernel: Tensor | None = None,
        dtype: str | None = None,
    ) -> Tensor:
        """Scaled queries of `x` [B, T, D]: [B, H, T, d_k].

        `kernel` is a `scaled_query_kernel()`; see `project_self`.
        """
        kernel = self.scaled_query_kernel() if kernel is None else kernel
        rows = ops.cast(project_rows(x, kernel), dtype or x.dtype)
        (query,) = self._split_heads(rows, x, (self.key_depth,))
        return query

    def project_memory(self, memory: Tensor) -> list[Tensor]:
        """Keys [B, H, S, d_k] and values [B, H, S, d_v] of [B, S, D]."""
        kernel = ops.concatenate([self.key_kernel, self.value_kernel], axis=1)
        depths = (self.key_depth, self.value_depth)
        return self._split_heads(project_rows(memory, kernel), memory, depths)

    def attend(
        self,
        query: Tensor,
        keys: Tensor,
        values: Tensor,
        bias: Tensor,
        dropout: Dropout = no_dropout,
    ) -> Tensor:
        """The weighted values of a full pass, equation 1: [B, H, T, d_v].

        Args:
          query: float [B, H, T, d_k], scaled.
          keys: float [B, H, S, d_k].
          values: float [B, H, S, d_v].
          bias: float32, broadcast to [B, H, T, S].
          dropout: `DropoutMasks` of this pass, or `no_dropout`.
        """
        weights = self._weights(query, keys, bias)
        weights = dropout(weights, self.attention_dropout)
        weights = ops.cast(weights, values.dtype)
        context = batch_matmul(weights, values)
        if self.max_relative_position is None:
            return context
        return context + relative_values(
            weights, self.relative_values, self._distances(values, bias)
        )

    def merge_heads(
        self, context: Tensor, kernel: Tensor | None = None
    ) -> Tensor:
        """[B, H, T, d_v] to the layer's output as rows, [B * T, D].

        `kernel` is the `output_kernel`, cast before; None casts it here.
        """
        size = self.num_heads * self.value_depth
        if context.shape[2] != 1:  # one position: nothing moves
            context = ops.transpose(context, (0, 2, 1, 3))
        rows = ops.reshape(context, (-1, size))
        kernel = self.output_kernel if kernel is None else kernel
        return project_rows(rows, kernel)

    def scaled_query_kernel(self) -> Tensor:
        """The kernel of queries, with the 1 / sqrt(d_k) of equation 1."""
        # On the weights: there are fewer of them.
        return self.query_kernel * self.key_depth**-0.5

    def _split_heads(self, rows, x, depths):
        """What `rows` has of `x` [B, T, D], as [B, H, T, d] for each depth d.

        `rows`: [B * T, H * sum(depths)].
        """
        batch, length, _ = sizes(x)
        heads, parts = self.num_heads, len(depths)
        if len(set(depths)) == 1 and x.shape[1] == 1:
            rows = reshape(rows, (batch, parts, heads, 1, depths[0]))
            return ops.unstack(rows, parts, axis=1)  # nothing moves
        if len(set(depths)) == 1:
            rows = reshape(rows, (batch, length, parts, heads, depths[0]))
            return ops.unstack(ops.transpose(rows, (2, 0, 3, 1, 4)), parts)
        ends = [heads * sum(depths[: i + 1]) for i in range(parts - 1)]
        return [
            ops.transpose(
                reshape(part, (batch, length, heads, depth)), (0, 2, 1, 3)
            )
            for part, depth in zip(
                ops.split(rows, ends, axis=-1), depths, strict=True
            )
        ]

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "num_heads": self.num_heads,
            "key_depth": self.key_depth,
            "value_depth": self.value_depth,
            "attention_dropout": self.attention_dropout,
            "window": self.window,
            "causal": self.causal,
            "max_relative_position": self.max_relative_position,
        }


def attention_weights(query: Tensor, keys: Tensor, bias: Tensor) -> Tensor:
    """The softmax of equation 1: float32 [B, H, T, S]; see `attend`."""
    scores = batch_matmul(query, keys, transpose_y=True)
    # In float32: a bfloat16 softmax over long sources does not sum to 1.
    scores = ops.cast(scores, "float32") + ops.cast(bias, "float32")
    return softmax(scores)
