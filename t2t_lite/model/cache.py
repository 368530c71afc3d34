"""The decoder's keys and values so far, and how they follow the beams.

The hypotheses of a sentence are rows of one attention problem. Each step
appends the K keys and values of its K hypotheses and never moves them again;
an ancestry table remembers in which of the K slots each past position of a
hypothesis lies, and becomes a mask over all the cached positions. When beams
are selected again, only this table of small integers is gathered.

Positions are kept in blocks of P, and the cache grows by a block when the
search needs one. So a step attends to at most P - 1 unused positions, and a
search that ends early never pays for its limit. Where no shape may change in a
loop, one block has room for the limit.
"""

from collections.abc import Sequence
from typing import Self

from keras import ops

from t2t_lite.model.layers import (
    DecoderLayer,
    FeedForward,
    MultiHeadAttention,
    TokenEmbedding,
)
from t2t_lite.model.layers.attention import attention_weights
from t2t_lite.model.layers.backend import (
    Tensor,
    can_grow,
    gather_rows,
    new_buffer,
    of_weights,
    reshape,
    write_rows,
)
from t2t_lite.model.layers.masks import attention_scores_bias
from t2t_lite.model.layers.product import (
    attention_dtype,
    batch_matmul,
    single_rows_are_faster,
)
from t2t_lite.model.layers.relative import distance_rows

# The loop state of a search.
Tensors = dict[str, Tensor]

# An ancestor at positions that are still to come: no slot.
_NO_SLOT = -1


class DecoderCache:
    """The cache of one decoding step: tensors, and what attends to them.

    N is the number of blocks, P that of positions in one. The K hypotheses of
    a sentence attend as G groups of R: one by one, or all together.

    Attributes:
      tensors: a flat dict, the loop state of a search:
        `ancestry`, int32 [N, B, K, P]: slot of position p of hypothesis k;
        `source_bias`, float32 [B, 1, 1, 1, S];
        `source_keys_I`, `source_values_I`, [B, H, S, d], of layer I, never
        tiled over the beam; d is d_k or d_v;
        `keys_I`, `values_I`, [N, B, H, P * K, d]: slot k of position p at
        p * K + k; these four in the dtype in which a step attends;
        `coverage`, float32 [B, K, S], if it was asked for: the attention that
        each source token got so far, in the last layer, averaged over heads;
        weights, in the layout and the dtype that a step reads, which else would
        cast them all: `logits_kernel` [D, V] and, of layer I, `self_kernel_I`
        [D, H * (2 d_k + d_v)], `query_kernel_I` [D, H * d_k], `self_output_I`
        and `cross_output_I` [H * d_v, D], and those of `FeedForward.NAMES`.
    """

    def __init__(
        self,
        tensors: Tensors,
        rows: Tensor,
        bias: Tensor,
        distances: Tensor | None,
    ):
        self.tensors = tensors
        self._rows = rows  # int32 [B * H]
        self._bias = bias  # float32 [N, B, G, 1, R, P * K]
        # int32 [N, P * K], rows of the tables of relative positions, or None.
        self._distances = distances
        self._dtype = tensors["keys_0"].dtype

    @classmethod
    def start(
        cls,
        layers: Sequence[DecoderLayer],
        softmax: TokenEmbedding,
        memory: Tensor,
        memory_mask: Tensor,
        beam_size: int,
        max_length: int | Tensor,
        coverage: bool = False,
    ) -> Tensors:
        """The tensors before the first step.

        Args:
          layers: the decoder's layers.
          softmax: the `TokenEmbedding` that makes the logits.
          memory: float [B, S, D], from `Transformer.encode`.
          memory_mask: bool [B, S], likewise.
          beam_size: K, hypotheses a sentence.
          max_length: L, the most steps; an int, or an int32 scalar.
          coverage: keep how much attention each source token gets.
        """
        attention = layers[0].self_attention
        depths = (attention.key_depth, attention.value_depth)
        dtype = attention_dtype(beam_size, memory.dtype)
        blocks, positions = 1, max_length
        if can_grow():
            positions = _block_length(beam_size, max(depths), dtype)
        batch = ops.shape(memory)[0]
        table = (blocks, batch, beam_size, positions)
        tensors = {
            "ancestry": new_buffer(table, "int32") + _NO_SLOT,
            "source_bias": attention_scores_bias(memory_mask)[
                :, None, None, None
            ],
            **of_weights(lambda: _step_weights(layers, softmax, memory.dtype)),
        }
        if coverage:
            rows = (batch, beam_size, ops.shape(memory)[1])
            tensors["coverage"] = ops.zeros(rows, "float32")
        for number, layer in enumerate(layers):
            keys, values = layer.cross_attention.project_memory(memory)
            tensors[f"source_keys_{number}"] = ops.cast(keys, dtype)
            tensors[f"source_values_{number}"] = ops.cast(values, dtype)
            shape = (blocks, batch, attention.num_heads, positions * beam_size)
            for name, depth in zip(_names(number), depths, strict=True):
                tensors[name] = new_buffer((*shape, depth), dtype)
        return tensors

    @classmethod
    def at_step(
        cls, tensors: Tensors, index: Tensor, attention: MultiHeadAttention
    ) -> Self:
        """The cache about to take in the keys and values of step `index`.

        Args:
          tensors: as of the last step.
          index: int32 scalar.
          attention: the self-attention of any layer.
        """
        if can_grow():
            tensors = _with_room(tensors, index)
        blocks, batch, beam_size, positions = ops.shape(tensors["ancestry"])
        slots = ops.arange(beam_size, dtype="int32")
        block, position = index // positions, index % positions
        places = ops.arange(blocks * positions, dtype="int32")
        places = ops.reshape(places, (blocks, 1, 1, positions))
        ancestry = ops.where(
            ops.equal(places, index), slots[:, None], tensors["ancestry"]
        )
        seen, reach = ancestry, attention.reach
        if reach is not None:
            seen = ops.where(places >= index - reach, ancestry, _NO_SLOT)
        distances, reach = None, attention.max_relative_position
        if reach is not None:
            distances = distance_rows(places - index, reach)[:, 0, 0]
            distances = ops.repeat(distances, beam_size, axis=1)
        # [N, B, K, P, 1] == [K'] -> [N, B, K, P, K'] -> [N, B, G, 1, R, P * K']
        lineage = ops.equal(seen[..., None], slots)
        keys = tensors["keys_0"]
        apart = single_rows_are_faster(beam_size, keys.dtype)
        group = (beam_size, 1, 1) if apart else (1, 1, beam_size)
        lineage = ops.reshape(
            lineage, (blocks, batch, *group, positions * beam_size)
        )
        rows = ops.shape(keys)[2] * batch
        rows = block * rows + ops.arange(rows, dtype="int32")
        return cls(
            {**tensors, "ancestry": ancestry},
            rows * positions + position,
            attention_scores_bias(lineage),
            distances,
        )

    @staticmethod
    def follow(tensors: Tensors, parents: Tensor) -> Tensors:
        """The tensors after hypothesis k went on from `parents[:, k]`."""
        if "coverage" in tensors:
            coverage = gather_rows(tensors["coverage"], parents)
            tensors = {**tensors, "coverage": coverage}
        ancestry = tensors["ancestry"]
        shape = (ops.shape(ancestry)[0], *ops.shape(parents))
        rows = ops.broadcast_to(parents, shape)
        return {**tensors, "ancestry": gather_rows(ancestry, rows)}

    @staticmethod
    def keep(tensors: Tensors, rows: Tensor) -> Tensors:
        """The tensors of the sentences `rows`, int32 [M], only."""
        axes = {"ancestry": 1, "keys": 1, "values": 1}
        axes |= {"source": 0, "coverage": 0}
        kept = dict(tensors)  # with the weights
        for name, tensor in tensors.items():
            axis = axes.get(name.split("_")[0])
            if axis is not None:
                kept[name] = ops.take(tensor, rows, axis=axis)
        return kept

    @staticmethod
    def coverage(tensors: Tensors) -> Tensor:
        """How much attention each source token got: float32 [B, K, S].

        1 where there is no token.
        """
        real = ops.equal(tensors["source_bias"][:, 0, 0], 0)  # [B, 1, S]
        return ops.where(real, tensors["coverage"], 1.0)

    def attend_self(
        self, attention: MultiHeadAttention, number: int, x: Tensor
    ) -> Tensor:
        """Self-attention of layer `number` from this step: [B * K, D]."""
        query, keys, values = attention.project_self(
            self._in_groups(x),
            self.tensors[f"self_kernel_{number}"],
            self._dtype,
        )  # [B * G, H, R, d]
        keys_name, values_name = _names(number)
        keys = self._append(keys_name, keys)
        values = self._append(values_name, values)
        tables = None
        if self._distances is not None:
            both = attention.relative_keys, attention.relative_values
            tables = [
                ops.take(ops.cast(each, self._dtype), self._distances, axis=0)
                for each in both
            ]
        query = self._of_groups(query)
        context = _attend_blocks(query, keys, values, self._bias, tables)
        kernel = self.tensors[f"self_output_{number}"]
        return self._merged(attention, context, kernel)

    def attend_source(
        self, attention: MultiHeadAttention, number: int, x: Tensor
    ) -> Tensor:
        """Attention of layer `number` to the source: [B * K, D]."""
        query = attention.project_query(
            self._in_groups(x),
            self.tensors[f"query_kernel_{number}"],
            self._dtype,
        )
        weights = attention_weights(
            self._of_groups(query),
            self.tensors[f"source_keys_{number}"][:, None],
            self.tensors["source_bias"],
        )  # [B, G, H, R, S]
        is_last = f"source_keys_{number + 1}" not in self.tensors
        if is_last and "coverage" in self.tensors:
            coverage = self.tensors["coverage"]
            new = ops.reshape(ops.mean(weights, axis=2), ops.shape(coverage))
            self.tensors["coverage"] = coverage + new
        values = self.tensors[f"source_values_{number}"][:, None]
        context = batch_matmul(ops.cast(weights, values.dtype), values)
        kernel = self.tensors[f"cross_output_{number}"]
        return self._merged(attention, context, kernel)

    def feed_forward(
        self, network: FeedForward, number: int, x: Tensor
    ) -> Tensor:
        """The feed-forward network of layer `number`: [B * K, D]."""
        names = network.NAMES
        weights = {name: self.tensors[f"{name}_{number}"] for name in names}
        return network(x, weights=weights)

    def logits(self, softmax: TokenEmbedding, x: Tensor) -> Tensor:
        """The logits of `x` [B * K, D]: float32 [B * K, V]."""
        return softmax.logits(x, self.tensors["logits_kernel"])

    def _in_groups(self, x):
        """[B * K, D] to [B * G, R, D]."""
        return reshape(x, (-1, self._bias.shape[4], x.shape[-1]))

    def _of_groups(self, x):
        """[B * G, H, R, d] to [B, G, H, R, d]."""
        return reshape(x, (-1, self._bias.shape[2], *x.shape[1:]))

    def _merged(self, attention, context, kernel):
        """The output [B * K, D] of contexts [B, G, H, R, d]."""
        context = reshape(context, (-1, *context.shape[2:]))
        context = ops.cast(context, kernel.dtype)
        return attention.merge_heads(context, kernel)

    def _append(self, name, new):
        """Writes [B * G, H, R, d] into a cached tensor, in place if it can."""
        cached = self.tensors[name]
        heads, depth = cached.shape[2], cached.shape[4]
        new = self._of_groups(new)
        beam_size = new.shape[1] * new.shape[3]
        if new.shape[1] > 1:
            new = ops.transpose(new, (0, 2, 1, 3, 4))
        # The K slots of a position lie side by side: one row [K * d].
        written = write_rows(
            ops.reshape(cached, (-1, beam_size * depth)),
            self._rows,
            ops.reshape(new, (-1, beam_size * depth)),
        )
        # Of the table: one shape for all layers costs a step less than many.
        blocks, batch, _, positions = ops.shape(self.tensors["ancestry"])
        shape = (blocks, batch, heads, positions * beam_size, depth)
        self.tensors[name] = reshape(written, shape)
        return self.tensors[name]


def _step_weights(layers, softmax, dtype):
    """The weights of `DecoderCache.tensors`."""
    weights = {"logits_kernel": softmax.logits_kernel(dtype)}
    for number, layer in enumerate(layers):
        to_itself, to_source = layer.self_attention, layer.cross_attention
        kernels = {
            "self_kernel": to_itself.self_kernel(),
            "query_kernel": to_source.scaled_query_kernel(),
            "self_output": to_itself.output_kernel,
            "cross_output": to_source.output_kernel,
            **layer.feed_forward.cast_weights(dtype),
        }
        for name, kernel in kernels.items():
            weights[f"{name}_{number}"] = ops.cast(kernel, dtype)
    return weights


def _names(number):
    return f"keys_{number}", f"values_{number}"


def _block_length(beam_size, depth, dtype):
    """Positions in a block: P.

    16, or fewer for a wide beam: TensorFlow multiplies many small matrices
    side by side only while K * d * (P * K) is at most 16384, and several
    times slower, one by one, beyond.
    """
    if single_rows_are_faster(beam_size, dtype):
        return 16
    return max(1, min(16, 16384 // (depth * beam_size**2)))


def _with_room(tensors, index):
    """The tensors, with one more block if `index` is past the last one."""
    names = [n for n in tensors if n.startswith(("keys_", "values_"))]
    blocks, _, _, positions = ops.shape(tensors["ancestry"])

    def grow():
        ancestry = tensors["ancestry"]
        return [
            ops.concatenate([ancestry, ops.full_like(ancestry[:1], _NO_SLOT)]),
            *(ops.concatenate([tensors[n], tensors[n][:1]]) for n in names),
        ]

    def keep():
        return [tensors["ancestry"], *(tensors[n] for n in names)]

    values = ops.cond(ops.equal(index, blocks * positions), grow, keep)
    return {**tensors, **dict(zip(["ancestry", *names], values, strict=True))}


def _attend_blocks(query, keys, values, bias, tables=None):
    """Attention of `query` to keys and values that lie in blocks.

    Args:
      query: float [B, G, H, R, d], scaled.
      keys: float [N, B, H, P * K, d].
      values: float [N, B, H, P * K, d].
      bias: float32 [N, B, G, 1, R, P * K].
      tables: float [N, P * K, d], what the distance adds to each key, and to
        each value; None: nothing.

    Returns: float [B, G, H, R, d].
    """
    scores = batch_matmul(query[None], keys[:, :, None], transpose_y=True)
    if tables is not None:
        rows = ops.reshape(query, (-1, query.shape[-1]))
        added = ops.matmul(rows, ops.swapaxes(tables[0], 1, 2))
        scores = scores + ops.reshape(added, ops.shape(scores))
    scores = ops.cast(scores, "float32") + bias  # [N, B, G, H, R, P * K]
    # A softmax over the first and the last axis.
    top = ops.max(ops.max(scores, axis=-1, keepdims=True), axis=0)
    weights = ops.exp(scores - top)
    total = ops.sum(ops.sum(weights, axis=-1, keepdims=True), axis=0)
    weights = ops.cast(weights, values.dtype)
    parts = batch_matmul(weights, values[:, :, None])
    if tables is not None:
        blocks, *_, places = ops.shape(weights)
        rows = ops.reshape(weights, (blocks, -1, places))
        added = ops.matmul(rows, tables[1])
        parts = parts + ops.reshape(added, ops.shape(parts))
    context = ops.sum(ops.cast(parts, "float32"), axis=0) / total
    return ops.cast(context, query.dtype)
