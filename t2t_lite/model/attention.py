"""Multi-head attention (arXiv:1706.03762, section 3.2)."""

import functools
from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from t2t_lite.model import relative
from t2t_lite.model.layers import Dropout, add_kernel, no_dropout
from t2t_lite.model.local_attention import local_attention
from t2t_lite.model.masks import attention_scores_bias, band_mask, segment_mask
from t2t_lite.ops import (
    Shape,
    Tensor,
    batch_matmul,
    dense,
    reshape,
    shape_list,
    unflatten_rows,
)


@keras.saving.register_keras_serializable(package="t2t_lite")
class MultiHeadAttention(keras.layers.Layer):
    """Multi-head attention, by default with scaled dot products.

    Args:
      num_heads: H.
      key_depth: d_k, units per head of queries and keys; None is D / H, where D
        is the input's last dimension.
      value_depth: d_v, units per head of values; None is D / H.
      attention_dropout: dropout rate of the attention weights, 0-1.
      window: r of restricted self-attention (section 4); a position attends to
        positions at most r // 2 away. None: no restriction.
      causal: hide later positions from a window.
      max_relative_position: k, the largest distance of relative position
        representations (arXiv:1803.02155). None: no relative positions.
      use_bias: add biases to queries, keys, values and the output.
      score: "scaled" or unscaled ("dot") dot products, or "additive", which
        conflicts with `window` and `max_relative_position`.
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
        use_bias: bool = False,
        score: str = "scaled",
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        self.num_heads = num_heads
        # Integers after `build`.
        self.key_depth: Any = key_depth
        self.value_depth: Any = value_depth
        self.attention_dropout = attention_dropout
        self.window = window
        self.causal = causal
        self.max_relative_position = max_relative_position
        self.use_bias = use_bias
        self.score = score

    def build(self, input_shape: Shape) -> None:
        size, heads = input_shape[-1], self.num_heads
        self.key_depth = d_k = self.key_depth or size // heads
        self.value_depth = d_v = self.value_depth or size // heads
        keys, values = heads * d_k, heads * d_v
        add = functools.partial(add_kernel, self)
        self.query_kernel = add("query_kernel", size, keys)
        self.key_kernel = add("key_kernel", size, keys)
        self.value_kernel = add("value_kernel", size, values)
        self.output_kernel = add("output_kernel", values, size)
        units = {"query": keys, "key": keys, "value": values, "output": size}
        self.query_bias, self.key_bias, self.value_bias, self.output_bias = (
            self.add_weight((n,), "zeros", name=f"{name}_bias")
            if self.use_bias
            else None
            for name, n in units.items()
        )
        if self.max_relative_position is not None:  # shared by the heads
            rows = 2 * self.max_relative_position + 1
            self.relative_keys = add("relative_keys", rows, d_k)
            self.relative_values = add("relative_values", rows, d_v)
        self.score_vectors = None
        if self.score == "additive":
            self.score_vectors = add("score_vectors", heads, d_k)
        self.built = True

    @property
    def radius(self) -> int | None:
        """The largest distance of positions in a window; None without one."""
        return None if self.window is None else self.window // 2

    def call(
        self,
        x: Tensor,
        bias: Tensor | None = None,
        memory: Tensor | None = None,
        dropout: Dropout = no_dropout,
        segments: Tensor | None = None,
    ) -> Tensor:
        """Attend from every position of `x`.

        Args:
          x: float [B, T, D], the input of the queries.
          bias: float32, broadcast to [B, H, T, S], added to the scores: 0
            where attention is allowed, else a large negative number. Ignored
            with a window.
          memory: float [B, S, D], the input of keys and values; None is `x`.
          dropout: `DropoutMasks` of this pass, or `no_dropout`.
          segments: int [B, T], the segment ids; used only with a window. A
            position attends only to its own segment.

        Returns:
          float [B, T, D].
        """

        def drop(weights):
            return dropout(weights, self.attention_dropout)

        query, keys, values = self._project(x, memory)
        if self.radius is not None:
            context = local_attention(
                query, keys, values, segments, self.radius, self.causal, drop
            )
        else:
            distances = self._distances(x, bias)
            weights = drop(self._weights(query, keys, bias, distances))
            weights = ops.cast(weights, values.dtype)
            context = batch_matmul(weights, values)  # [B, H, T, d_v]
            if distances is not None:
                context = context + relative.relative_values(
                    weights, self.relative_values, distances
                )
        context = merge_heads(context)
        rows = dense(context, self.output_kernel, self.output_bias)
        return unflatten_rows(rows, x)

    def attention_weights(
        self,
        x: Tensor,
        bias: Tensor | None = None,
        memory: Tensor | None = None,
        segments: Tensor | None = None,
    ) -> Tensor:
        """Return the attention weights of a call, float32 [B, H, T, S]."""
        query, keys, _ = self._project(x, memory)
        if self.radius is not None:
            length = shape_list(x)[1]
            mask = ops.logical_and(
                band_mask(length, length, self.radius, self.causal),
                segment_mask(segments, segments),
            )
            bias = attention_scores_bias(mask)
        return self._weights(query, keys, bias, self._distances(x, bias))

    def _weights(self, query, keys, bias, distances):
        if distances is not None:
            table = self.relative_keys
            scores = relative.relative_scores(query, table, distances)
            bias = ops.cast(bias, "float32") + ops.cast(scores, "float32")
        return softmax_weights(query, keys, bias, self.score_vectors)

    def _distances(self, x, bias):
        if self.max_relative_position is None:
            return None
        rows = self.relative_keys.shape[0]
        return relative.distance_matrices(shape_list(bias)[-1], rows, x.dtype)

    def _project(self, x, memory):
        """Return `scaled` queries, keys and values, each [B, H, T or S, d]."""
        if memory is not None:
            kernel = self.scaled(self.query_kernel)
            rows = dense(x, kernel, self.scaled(self.query_bias))
            (query,) = self._split_heads(rows, x, (self.key_depth,))
            return query, *self.project_kv(memory)
        # One wide product is faster than three narrow products.
        rows = dense(x, self.qkv_kernel(), self.qkv_bias())
        depths = (self.key_depth, self.key_depth, self.value_depth)
        return self._split_heads(rows, x, depths)

    def project_kv(self, memory: Tensor) -> list[Tensor]:
        """[B, S, D] -> keys [B, H, S, d_k] and values [B, H, S, d_v]."""
        kernel = ops.concatenate([self.key_kernel, self.value_kernel], axis=1)
        bias = self._concatenate_biases(self.key_bias, self.value_bias)
        depths = (self.key_depth, self.value_depth)
        return self._split_heads(dense(memory, kernel, bias), memory, depths)

    def qkv_kernel(self) -> Tensor:
        """Return the concatenated kernels of queries, keys and values."""
        query = self.scaled(self.query_kernel)
        kernels = query, self.key_kernel, self.value_kernel
        return ops.concatenate(kernels, axis=1)

    def qkv_bias(self) -> Tensor | None:
        """Return the biases that belong to `qkv_kernel`."""
        query = self.scaled(self.query_bias)
        return self._concatenate_biases(query, self.key_bias, self.value_bias)

    def _concatenate_biases(self, *biases):
        return ops.concatenate(biases) if self.use_bias else None

    def scaled(self, query: Tensor | None) -> Tensor | None:
        """Scale kernel or bias of queries by 1 / sqrt(d_k) (equation 1).

        Scaling weights is cheaper than scaling the scores. Unscaled and
        additive scores keep the weights.
        """
        if query is None or self.score != "scaled":
            return query
        return query * self.key_depth**-0.5

    def _split_heads(self, rows, x, depths):
        return split_heads(rows, shape_list(x)[:2], self.num_heads, depths)


def softmax_weights(
    query: Tensor, keys: Tensor, bias: Tensor, vectors: Tensor | None = None
) -> Tensor:
    """Return the softmax of equation 1, float32 [B, H, T, S].

    Queries, [B, H, T, d_k], are scaled; keys are [B, H, S, d_k]. The bias,
    float32, is broadcast to [B, H, T, S] and added to the scores. With vectors
    v, [H, d_k], scores are not products but v . tanh(query + key), which needs
    memory for [B, H, T, S, d_k] (arXiv:1409.0473).
    """
    if vectors is None:
        scores = batch_matmul(query, keys, transpose_y=True)
    else:
        hidden = ops.tanh(query[:, :, :, None] + keys[:, :, None])
        vectors = ops.cast(vectors, hidden.dtype)[:, None, :, None]
        scores = ops.matmul(hidden, vectors)[..., 0]
    # In float32: a bfloat16 softmax over long sources does not sum to 1.
    scores = ops.cast(scores, "float32") + ops.cast(bias, "float32")
    return ops.softmax(scores, axis=-1)


def merge_heads(context: Tensor) -> Tensor:
    """[B, H, T, d_v] -> [B * T, H * d_v]."""
    _, heads, _, depth = context.shape
    context = ops.transpose(context, (0, 2, 1, 3))  # [B, T, H, d_v]
    return ops.reshape(context, (-1, heads * depth))


def split_heads(
    rows: Tensor,
    shape: Sequence[int | Tensor],
    num_heads: int,
    depths: Sequence[int],
) -> list[Tensor]:
    """[B * T, H * sum(depths)] -> [B, H, T, d] for each depth d.

    The rows are P concatenated projections, such as queries, keys and values;
    `shape` is B and T, and `num_heads` is H.
    """
    if len(set(depths)) == 1:
        # One transposition saves 3 % of a step at d_model 256.
        count = len(depths)
        rows = reshape(rows, (*shape, count, num_heads, depths[0]))
        # [B, T, P, H, d] -> [P, B, H, T, d]
        return ops.unstack(ops.transpose(rows, (2, 0, 3, 1, 4)), count)
    ends = [num_heads * sum(depths[: i + 1]) for i in range(len(depths) - 1)]
    projections = zip(ops.split(rows, ends, axis=-1), depths, strict=True)
    return [  # [B * T, H * d] -> [B, T, H, d] -> [B, H, T, d]
        ops.transpose(reshape(x, (*shape, num_heads, depth)), (0, 2, 1, 3))
        for x, depth in projections
    ]
