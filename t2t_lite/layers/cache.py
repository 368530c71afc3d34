"""The decoder's keys and values so far, and how they follow the beams.

The hypotheses of a sentence are rows of one attention problem. Each step
appends the K keys and values of its K hypotheses and never moves them again;
an ancestry table remembers in which of the K slots each past position of a
hypothesis lies, and becomes a mask over all the cached positions. When beams
are selected anew, only this table of small integers is gathered.
"""

from keras import ops

from t2t_lite.layers.masks import attention_scores_bias


class DecoderCache:
    """The cache of one decoding step: tensors, and what attends to them.

    Attributes:
      tensors: a flat dict, the loop state of a search:
        `ancestry`, int32 [B, K, L]: slot of position l of hypothesis k;
        `source_bias`, float32 [B, 1, 1, S];
        `source_keys_N`, `source_values_N`, [B, H, S, d], of layer N, never
        tiled over the beam;
        `keys_N`, `values_N`, [B, H, L * K, d]: slot k of position l at
        l * K + k.
    """

    def __init__(self, tensors, index, bias, rows):
        self.tensors = tensors
        self._index = index
        self._bias = bias  # float32 [B, 1, K, L * K]
        self._rows = rows  # int32 [B * H * K, 1]

    @classmethod
    def start(cls, layers, memory, memory_mask, beam_size, max_length):
        """The tensors before the first step.

        Args:
          layers: the decoder's layers.
          memory: float [B, S, D].
          memory_mask: bool [B, S].
          beam_size: K.
          max_length: L.
        """
        batch = ops.shape(memory)[0]
        tensors = {
            "ancestry": ops.zeros((batch, beam_size, max_length), "int32"),
            "source_bias": attention_scores_bias(memory_mask)[:, None, None],
        }
        for number, layer in enumerate(layers):
            keys, values = layer.cross_attention.project_memory(memory)
            tensors[f"source_keys_{number}"] = keys
            tensors[f"source_values_{number}"] = values
            attention = layer.self_attention
            shape = (
                batch,
                attention.num_heads,
                max_length * beam_size,
                attention.head_depth,
            )
            tensors[f"keys_{number}"] = ops.zeros(shape, keys.dtype)
            tensors[f"values_{number}"] = ops.zeros(shape, keys.dtype)
        return tensors

    @classmethod
    def at_step(cls, tensors, index):
        """The cache about to take in the keys and values of step `index`."""
        batch, beam_size, length = ops.shape(tensors["ancestry"])
        slots = ops.arange(beam_size, dtype="int32")
        here = ops.equal(ops.arange(length, dtype="int32"), index)
        ancestry = ops.where(here, slots[:, None], tensors["ancestry"])
        # [B, K, L, 1] == [K'] -> [B, K, L, K']
        lineage = ops.equal(ancestry[..., None], slots)
        past = ops.arange(length, dtype="int32") <= index
        mask = ops.logical_and(lineage, past[:, None])
        mask = ops.reshape(mask, (batch, 1, beam_size, length * beam_size))
        heads = ops.shape(tensors["keys_0"])[1]
        starts = ops.arange(batch * heads, dtype="int32") * length * beam_size
        rows = starts[:, None] + index * beam_size + slots
        return cls(
            {**tensors, "ancestry": ancestry},
            index,
            attention_scores_bias(mask),
            ops.reshape(rows, (-1, 1)),
        )

    @staticmethod
    def follow(tensors, parents):
        """The tensors after hypothesis k went on from `parents[:, k]`."""
        ancestry = ops.take_along_axis(
            tensors["ancestry"], parents[..., None], axis=1
        )
        return {**tensors, "ancestry": ancestry}

    def attend_self(self, attention, number, x):
        """Self-attention of layer `number` from this step: [B, K, D]."""
        query, keys, values = attention.project_self(x)  # [B, H, K, d]
        keys = self._append(f"keys_{number}", keys)
        values = self._append(f"values_{number}", values)
        context = attention.attend(query, keys, values, self._bias)
        return attention.merge_heads(context)

    def attend_source(self, attention, number, x):
        """Attention of layer `number` to the source: [B, K, D]."""
        context = attention.attend(
            attention.project_query(x),
            self.tensors[f"source_keys_{number}"],
            self.tensors[f"source_values_{number}"],
            self.tensors["source_bias"],
        )
        return attention.merge_heads(context)

    def _append(self, name, new):
        """Writes [B, H, K, d] into a cached tensor, in place where it can."""
        cached = self.tensors[name]
        shape = ops.shape(cached)
        depth = shape[-1]
        updated = ops.scatter_update(
            ops.reshape(cached, (-1, depth)),
            self._rows,
            ops.reshape(new, (-1, depth)),
        )
        self.tensors[name] = ops.reshape(updated, shape)
        return self.tensors[name]
