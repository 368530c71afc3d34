"""The decoder's keys and values so far, and how they follow the beams.

The hypotheses of a sentence are rows of one attention problem. Each step
appends the K keys and values of its K hypotheses and never moves them again;
an ancestry table remembers in which of the K slots each past position of a
hypothesis lies, and becomes a mask over all the cached positions. When beams
are selected again, only this table of small integers is gathered.

The cache has room for L positions and grows when the search needs more, so a
search that ends early never pays for its limit. Outside of a TensorFlow graph,
where no shape may change in a loop, L is the limit.
"""

from collections.abc import Sequence
from typing import Any, Self

from keras import ops

from t2t_lite.model.attention import (
    MultiHeadAttention,
    attention_weights,
    merge_heads,
    split_heads,
)
from t2t_lite.model.layers import TokenEmbedding
from t2t_lite.model.masks import attention_scores_bias
from t2t_lite.model.relative import distance_rows
from t2t_lite.ops import (
    Tensor,
    batch_matmul,
    gather_rows,
    new_buffer,
    of_weights,
    project_rows,
    tensorflow_in_a_graph,
    write_rows,
)

# The loop state of a search.
Tensors = dict[str, Tensor]

# An ancestor at positions that are still to come: no slot.
_NO_SLOT = -1
# Positions by which the cache grows: few, because a step attends to all, and
# enough that copies, one for each growth, cost little.
_GROWTH = 16


class DecoderCache:
    """The cache during one decoding step.

    Attributes:
      tensors: a flat dict, the loop state of a search:
        `ancestry`, int32 [B, K, L]: slot of position l of hypothesis k;
        `source_bias`, float32 [B, 1, 1, S];
        `source_keys_I`, `source_values_I`, [B, H, S, d], of layer I, not tiled
        over the beam; d is d_k or d_v;
        `keys_I`, `values_I`, [B, H, L * K, d]: slot k of position l at
        l * K + k;
        `weights_NAME`: the weights of a step, cast and laid out once, see
        `_step_weights`.
    """

    def __init__(
        self,
        tensors: Tensors,
        rows: Tensor,
        bias: Tensor,
        distances: Tensor | None,
    ):
        self.tensors = tensors
        self._rows = rows  # int32 [B * H], of this step in keys and values
        self._bias = bias  # float32 [B, 1, K, L * K]
        # int32 [L * K], rows of the tables of relative positions, or None.
        self._distances = distances

    @classmethod
    def start(
        cls,
        layers: Sequence[Any],
        softmax: TokenEmbedding,
        memory: Tensor,
        memory_mask: Tensor,
        beam_size: int,
        max_length: int | Tensor,
    ) -> Tensors:
        """Return the tensors before the first step.

        Args:
          layers: the `DecoderLayer`s.
          softmax: the `TokenEmbedding` that makes the logits.
          memory: float [B, S, D], from `Transformer.encode`.
          memory_mask: bool [B, S], from `Transformer.encode`.
          beam_size: K, hypotheses a sentence.
          max_length: maximum number of steps, an int or an int32 scalar.
        """
        attention, dtype = layers[0].self_attention, memory.dtype
        length = _GROWTH if tensorflow_in_a_graph() else max_length
        batch = ops.shape(memory)[0]
        table = new_buffer((batch, beam_size, length), "int32", 2)
        weights = of_weights(lambda: _step_weights(layers, softmax, dtype))
        tensors = {
            "ancestry": table + _NO_SLOT,
            "source_bias": attention_scores_bias(memory_mask)[:, None, None],
            **{f"weights_{name}": value for name, value in weights.items()},
        }
        shape = (batch, attention.num_heads, length * beam_size)
        for i, layer in enumerate(layers):
            keys, values = layer.cross_attention.project_memory(memory)
            tensors[f"source_keys_{i}"] = keys
            tensors[f"source_values_{i}"] = values
            for name, depth in (
                (f"keys_{i}", attention.key_depth),
                (f"values_{i}", attention.value_depth),
            ):
                tensors[name] = new_buffer((*shape, depth), dtype, 2)
        return tensors

    @classmethod
    def at_step(
        cls, tensors: Tensors, index: Tensor, attention: MultiHeadAttention
    ) -> Self:
        """Return the cache before the keys and values of a step are added.

        Args:
          tensors: of the last step.
          index: int32 scalar, the position.
          attention: the self-attention of any layer.
        """
        if tensorflow_in_a_graph():
            tensors = _with_room(tensors, index)
        batch, beam_size, length = ops.shape(tensors["ancestry"])
        slots = ops.arange(beam_size, dtype="int32")
        positions = ops.arange(length, dtype="int32")
        ancestry = ops.where(
            ops.equal(positions, index), slots[:, None], tensors["ancestry"]
        )
        seen, distances = ancestry, None
        if attention.reach is not None:
            near = positions >= index - attention.reach
            seen = ops.where(near, ancestry, _NO_SLOT)
        if attention.max_relative_position is not None:
            distances = distance_rows(
                positions - index, attention.max_relative_position
            )
            distances = ops.repeat(distances, beam_size)
        # [B, K, L, 1] == [K'] -> [B, K, L, K'] -> [B, 1, K, L * K']
        lineage = ops.reshape(
            ops.equal(seen[..., None], slots),
            (batch, 1, beam_size, length * beam_size),
        )
        rows = ops.arange(batch * attention.num_heads, dtype="int32")
        return cls(
            {**tensors, "ancestry": ancestry},
            rows * length + index,
            attention_scores_bias(lineage),
            distances,
        )

    @staticmethod
    def follow(tensors: Tensors, parents: Tensor) -> Tensors:
        """Return the tensors after hypothesis k continued `parents[:, k]`."""
        ancestry = gather_rows(tensors["ancestry"], parents)
        return {**tensors, "ancestry": ancestry}

    @staticmethod
    def keep(tensors: Tensors, rows: Tensor) -> Tensors:
        """Return the tensors of the sentences `rows`, int32 [M], only."""
        return {
            name: value
            if name.startswith("weights_")
            else ops.take(value, rows, axis=0)
            for name, value in tensors.items()
        }

    def attend_self(self, layer: int, x: Tensor) -> Tensor:
        """Return the self-attention of a layer in this step: [B * K, D]."""
        weights = self._weights(layer)
        names = f"keys_{layer}", f"values_{layer}"
        key_depth, value_depth = (self.tensors[n].shape[3] for n in names)
        query, *new = self._split(
            project_rows(x, weights("self_kernel")),
            (key_depth, key_depth, value_depth),
        )
        keys, values = map(self._append, names, new)
        bias = self._bias
        if self._distances is not None:
            table = ops.take(weights("relative_keys"), self._distances, axis=0)
            scores = ops.matmul(query, ops.transpose(table))
            bias = bias + ops.cast(scores, "float32")  # [B, H, K, L * K]
        shares = attention_weights(query, keys, bias, few_rows=True)
        shares = ops.cast(shares, values.dtype)
        context = batch_matmul(shares, values, few_rows=True)  # [B, H, K, d_v]
        if self._distances is not None:
            table = weights("relative_values")
            table = ops.take(table, self._distances, axis=0)
            context = context + ops.matmul(shares, table)
        return project_rows(merge_heads(context), weights("self_output"))

    def attend_source(self, layer: int, x: Tensor) -> Tensor:
        """Return the attention of a layer to the source: [B * K, D]."""
        weights = self._weights(layer)
        keys = self.tensors[f"source_keys_{layer}"]
        values = self.tensors[f"source_values_{layer}"]
        rows = project_rows(x, weights("query_kernel"))
        (query,) = self._split(rows, (keys.shape[3],))
        shares = attention_weights(
            query, keys, self.tensors["source_bias"], few_rows=True
        )
        shares = ops.cast(shares, values.dtype)
        context = batch_matmul(shares, values, few_rows=True)
        return project_rows(merge_heads(context), weights("cross_output"))

    def feed_forward(self, layer: int, x: Tensor) -> Tensor:
        """Return the output of a feed-forward network: [B * K, D]."""
        weights = self._weights(layer)
        hidden = project_rows(
            x, weights("hidden_kernel"), weights("hidden_bias"), relu=True
        )
        return project_rows(
            hidden, weights("output_kernel"), weights("output_bias")
        )

    def logits(self, x: Tensor) -> Tensor:
        """Return the logits of `x` [B * K, D]: float32 [B * K, V]."""
        logits = project_rows(x, self.tensors["weights_logits"])
        return ops.cast(logits, "float32")

    def _weights(self, layer):
        return lambda name: self.tensors[f"weights_{name}_{layer}"]

    def _split(self, rows, depths):
        """[B * K, H * sum(depths)] -> [B, H, K, d] for each depth."""
        batch, beam_size, _ = ops.shape(self.tensors["ancestry"])
        heads = self.tensors["keys_0"].shape[1]
        return split_heads(rows, (batch, beam_size), heads, depths)

    def _append(self, name, new):
        """Write [B, H, K, d] into a cached tensor, in place if possible."""
        cached = self.tensors[name]
        # The K slots of a position lie side by side: one row [K * d].
        size = new.shape[2] * new.shape[3]
        written = write_rows(
            ops.reshape(cached, (-1, size)),
            self._rows,
            ops.reshape(new, (-1, size)),
        )
        self.tensors[name] = ops.reshape(written, ops.shape(cached))
        return self.tensors[name]


def _step_weights(layers, softmax, dtype):
    """Return the weights of a step, cast and laid out as it reads them.

    A product of a few rows with the embedding [V, D], transposed on the fly,
    would take up to twice as long.
    """
    weights = {"logits": ops.transpose(softmax.table)}
    for i, layer in enumerate(layers):
        attention, network = layer.self_attention, layer.feed_forward
        weights |= {
            f"self_kernel_{i}": attention.self_kernel(),
            f"self_output_{i}": attention.output_kernel,
            f"query_kernel_{i}": layer.cross_attention.scaled_query_kernel(),
            f"cross_output_{i}": layer.cross_attention.output_kernel,
            f"hidden_kernel_{i}": network.hidden_kernel,
            f"hidden_bias_{i}": network.hidden_bias,
            f"output_kernel_{i}": network.output_kernel,
            f"output_bias_{i}": network.output_bias,
        }
        if attention.max_relative_position is not None:
            weights[f"relative_keys_{i}"] = attention.relative_keys
            weights[f"relative_values_{i}"] = attention.relative_values
    return {name: ops.cast(value, dtype) for name, value in weights.items()}


def _with_room(tensors, index):
    """Return the tensors, longer by `_GROWTH` if `index` is past the end."""
    names = [n for n in tensors if n.startswith(("keys_", "values_"))]
    ancestry = tensors["ancestry"]
    beam_size = ancestry.shape[1]

    def grow():
        more = ops.full_like(ancestry[:, :, :_GROWTH], _NO_SLOT)
        size = _GROWTH * beam_size
        # The added values are masked, but must be finite.
        return [
            ops.concatenate([ancestry, more], axis=2),
            *(
                ops.concatenate([tensors[n], tensors[n][:, :, :size]], axis=2)
                for n in names
            ),
        ]

    def keep():
        return [ancestry, *(tensors[n] for n in names)]

    is_full = ops.equal(index, ops.shape(ancestry)[2])
    values = ops.cond(is_full, grow, keep)
    return {**tensors, **dict(zip(["ancestry", *names], values, strict=True))}
