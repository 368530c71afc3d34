"""The decoder's keys and values so far, and how they follow the beams.

The hypotheses of a sentence are rows of one attention problem. Each step
appends the K keys and values of its K hypotheses and never moves them again;
an ancestry table remembers in which of the K slots each past position of a
hypothesis lies, and becomes a mask over all the cached positions. When beams
are selected again, only this table of small integers is gathered.

The cache has room for L positions. In a TensorFlow graph without a GPU it grows
when the search needs more, so a search that ends early never pays for its
limit. Elsewhere L is the limit.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple, Self

from keras import ops

from t2t_lite.model.attention import merge_heads, softmax_weights, split_heads
from t2t_lite.model.layers import TokenEmbedding, hidden_units
from t2t_lite.model.masks import attention_scores_bias
from t2t_lite.model.relative import relative_position_ids
from t2t_lite.ops import (
    Tensor,
    batch_matmul,
    column_blocks,
    dense,
    gather_rows,
    new_buffer,
    reshape_like,
    shape_list,
    spread_columns,
    take_rows,
    uses_tf_cpu,
    write_rows,
)

# The loop state of a search.
Tensors = dict[str, Tensor]

# The ancestry of positions that are not decoded yet: no slot.
_NO_SLOT = -1
# Positions by which the cache grows: few, because a step attends to all, and
# enough that copies, one for each growth, cost little.
_GROWTH = 16


def _layer_weights(layer, dtype):
    attention, source = layer.self_attention, layer.cross_attention
    network = layer.feed_forward
    weights = {
        "qkv_kernel": attention.qkv_kernel(),
        "self_output_kernel": attention.output_kernel,
        "query_kernel": source.scaled(source.query_kernel),
        "cross_output_kernel": source.output_kernel,
        "hidden_kernel": network.hidden_kernel,
        "hidden_bias": network.hidden_bias,
        "output_kernel": network.output_kernel,
        "output_bias": network.output_bias,
    }
    if attention.use_bias:
        weights |= {
            "qkv_bias": attention.qkv_bias(),
            "self_output_bias": attention.output_bias,
            "query_bias": source.scaled(source.query_bias),
            "cross_output_bias": source.output_bias,
        }
    weights = {
        name: spread_columns(ops.cast(weight, dtype))
        for name, weight in weights.items()
    }
    if attention.max_relative_position is not None:
        weights["relative_keys"] = attention.relative_keys
        weights["relative_values"] = attention.relative_values
    if attention.score_vectors is not None:
        weights["self_vectors"] = attention.score_vectors
        weights["cross_vectors"] = source.score_vectors
    return {name: ops.cast(w, dtype) for name, w in weights.items()}


class StepWeights(NamedTuple):
    """The weights of a decoding step, cast and laid out as it reads them.

    A product of a few rows with the embedding [V, D], transposed on the fly,
    would take up to twice as long.
    """

    layers: list[dict[str, Tensor]]  # by name
    logits: list[tuple[Tensor, Tensor | None]]  # [D, C] and [C], of C columns

    @classmethod
    def from_layers(
        cls, layers: Sequence[Any], softmax: TokenEmbedding, dtype: str
    ) -> Self:
        """Return the weights of the `DecoderLayer`s and of the logits."""
        table, bias = ops.transpose(softmax.table), softmax.bias
        kernels = column_blocks(ops.cast(table, dtype))
        none = [None] * len(kernels)
        biases = none if bias is None else column_blocks(bias)
        return cls(
            [_layer_weights(layer, dtype) for layer in layers],
            list(zip(kernels, biases, strict=True)),
        )


@dataclasses.dataclass
class DecoderCache:
    """The cache during one decoding step.

    Attributes:
      tensors: a flat dict, the loop state of a search:
        `ancestry`, int32 [B, K, L]: slot of position l of hypothesis k;
        `source_bias`, float32 [B, 1, 1, S];
        `source_keys_I`, `source_values_I`, [B, H, S, d], of layer I, not tiled
        over the beam; d is d_k or d_v;
        `keys_I`, `values_I`, [B, H, L * K, d]: slot k of position l at
        l * K + k.
    """

    tensors: Tensors
    _weights: StepWeights
    _rows: Tensor  # int32 [B * H], of this step in keys and values
    _bias: Tensor  # float32 [B, 1, K, L * K]
    _distances: Tensor | None  # int32 [L * K], rows of relative positions

    @classmethod
    def start(
        cls,
        layers: Sequence[Any],
        memory: Tensor,
        memory_mask: Tensor,
        beam_size: int,
        max_length: int | Tensor,
    ) -> Tensors:
        """Return the tensors before the first step.

        The layers are `DecoderLayer`s; for the other arguments see
        `Transformer.init_decoding`.
        """
        attention, dtype = layers[0].self_attention, memory.dtype
        length = _GROWTH if uses_tf_cpu() else max_length
        batch = shape_list(memory)[0]
        table = new_buffer((batch, beam_size, length), "int32")
        tensors = {
            "ancestry": table + _NO_SLOT,
            "source_bias": attention_scores_bias(memory_mask)[:, None, None],
        }
        shape = (batch, attention.num_heads, length * beam_size)
        key_shape = (*shape, attention.key_depth)
        value_shape = (*shape, attention.value_depth)
        for i, layer in enumerate(layers):
            keys, values = layer.cross_attention.project_kv(memory)
            tensors[f"source_keys_{i}"] = keys
            tensors[f"source_values_{i}"] = values
            tensors[f"keys_{i}"] = new_buffer(key_shape, dtype)
            tensors[f"values_{i}"] = new_buffer(value_shape, dtype)
        return tensors

    @classmethod
    def prepare_step(
        cls, tensors: Tensors, weights: StepWeights, index: Tensor, layer: Any
    ) -> Self:
        """Return the cache before the keys and values of a step are added.

        The tensors are those of the previous step, `index` is the position, an
        int32 scalar, and `layer` any `DecoderLayer`.
        """
        attention = layer.self_attention
        if uses_tf_cpu():
            tensors = _grow(tensors, index)
        batch, beam_size, length = shape_list(tensors["ancestry"])
        slots = ops.arange(beam_size, dtype="int32")
        positions = ops.arange(length, dtype="int32")
        ancestry = ops.where(
            ops.equal(positions, index), slots[:, None], tensors["ancestry"]
        )
        seen, distances = ancestry, None
        if attention.radius is not None:
            near = positions >= index - attention.radius
            seen = ops.where(near, ancestry, _NO_SLOT)
        if attention.max_relative_position is not None:
            distances = relative_position_ids(
                positions - index, attention.max_relative_position
            )
            distances = ops.repeat(distances, beam_size)
        # [B, K, L, 1] == [K'] -> [B, K, L, K'] -> [B, 1, K, L * K']
        lineage = ops.reshape(
            ops.equal(seen[..., None], slots),
            (batch, 1, beam_size, length * beam_size),
        )
        rows = ops.arange(batch * attention.num_heads, dtype="int32")
        bias = attention_scores_bias(lineage)
        tensors = {**tensors, "ancestry": ancestry}
        return cls(tensors, weights, rows * length + index, bias, distances)

    @staticmethod
    def reorder(tensors: Tensors, parents: Tensor) -> Tensors:
        """Return the tensors after hypothesis k continued `parents[:, k]`."""
        ancestry = gather_rows(tensors["ancestry"], parents)
        return {**tensors, "ancestry": ancestry}

    @staticmethod
    def select(tensors: Tensors, rows: Tensor) -> Tensors:
        """Return the tensors of the sentences `rows`, int32 [M], only."""
        return {n: take_rows(x, rows) for n, x in tensors.items()}

    def attend_self(self, layer: int, x: Tensor) -> Tensor:
        """Return the self-attention of a layer in this step: [B * K, D]."""
        weights, distances = self._weights.layers[layer], self._distances
        names = f"keys_{layer}", f"values_{layer}"
        key_depth, value_depth = (self.tensors[n].shape[3] for n in names)
        depths = key_depth, key_depth, value_depth
        query, *new = self._split(layer, "qkv", x, depths)
        keys, values = map(self._append, names, new)
        bias = self._bias
        if distances is not None:
            table = take_rows(weights["relative_keys"], distances)
            scores = ops.einsum("bhkd,sd->bhks", query, table)
            bias = bias + ops.cast(scores, "float32")  # [B, H, K, L * K]
        probs = softmax_weights(query, keys, bias, weights.get("self_vectors"))
        probs = ops.cast(probs, values.dtype)
        context = batch_matmul(probs, values)  # [B, H, K, d_v]
        if distances is not None:
            table = take_rows(weights["relative_values"], distances)
            context = context + ops.einsum("bhks,sd->bhkd", probs, table)
        context = merge_heads(context)
        return self._dense(layer, "self_output", context, x.shape[1])

    def attend_source(self, layer: int, x: Tensor) -> Tensor:
        """Return the attention of a layer to the source: [B * K, D]."""
        weights = self._weights.layers[layer]
        keys = self.tensors[f"source_keys_{layer}"]
        values = self.tensors[f"source_values_{layer}"]
        (query,) = self._split(layer, "query", x, (keys.shape[3],))
        bias = self.tensors["source_bias"]
        vectors = weights.get("cross_vectors")
        probs = softmax_weights(query, keys, bias, vectors)
        context = batch_matmul(ops.cast(probs, values.dtype), values)
        context = merge_heads(context)
        return self._dense(layer, "cross_output", context, x.shape[1])

    def feed_forward(self, layer: int, x: Tensor, activation: str) -> Tensor:
        """Return the output of a feed-forward network: [B * K, D]."""
        weights = self._weights.layers[layer]
        hidden = hidden_units(
            x, weights["hidden_kernel"], weights["hidden_bias"], activation
        )
        return self._dense(layer, "output", hidden, x.shape[1])

    def logits(self, x: Tensor) -> Tensor:
        """Return the logits of `x` [B * K, D]: float32 [B * K, V]."""
        blocks = [dense(x, *weights) for weights in self._weights.logits]
        rows = blocks[0] if len(blocks) == 1 else ops.concatenate(blocks, -1)
        return ops.cast(rows, "float32")

    def _dense(self, layer, name, x, columns):
        """Multiply the rows `x` by a kernel: [B * K, columns]."""
        weights = self._weights.layers[layer]
        kernel = weights[f"{name}_kernel"]
        x = _first_columns(x, kernel.shape[0])
        rows = dense(x, kernel, weights.get(f"{name}_bias"))
        return _first_columns(rows, columns)

    def _split(self, layer, name, x, depths):
        """Multiply rows, and split the heads: [B, H, K, d] for each depth."""
        beam_size = self.tensors["ancestry"].shape[1]
        heads = self.tensors["keys_0"].shape[1]
        rows = self._dense(layer, name, x, heads * sum(depths))
        return split_heads(rows, (-1, beam_size), heads, depths)

    def _append(self, name, new):
        """Write [B, H, K, d] into a cached tensor, in place if possible."""
        cached = self.tensors[name]
        # The K slots of a position lie side by side: one row [K * d].
        size = new.shape[2] * new.shape[3]
        flat, new = (ops.reshape(x, (-1, size)) for x in (cached, new))
        written = write_rows(flat, self._rows, new)
        self.tensors[name] = reshape_like(written, cached)
        return self.tensors[name]


def _first_columns(rows, count):
    """Return [N, count], without the columns of `spread_columns`."""
    return rows if rows.shape[1] == count else rows[:, :count]


def _grow(tensors, index):
    """Return the tensors, longer by `_GROWTH` if `index` is past the end."""
    ancestry = tensors["ancestry"]
    names = [n for n in tensors if n.startswith(("keys_", "values_"))]
    kept = [ancestry, *(tensors[n] for n in names)]
    size = _GROWTH * ancestry.shape[1]

    def grow():
        more = ops.full_like(ancestry[:, :, :_GROWTH], _NO_SLOT)
        # The added values are masked, but must be finite.
        added = [more, *(x[:, :, :size] for x in kept[1:])]
        pairs = zip(kept, added, strict=True)
        return [ops.concatenate(pair, axis=2) for pair in pairs]

    is_full = ops.equal(index, shape_list(ancestry)[2])
    values = ops.cond(is_full, grow, lambda: kept)
    return {**tensors, **dict(zip(["ancestry", *names], values, strict=True))}
