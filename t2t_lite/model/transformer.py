"""The Transformer of "Attention Is All You Need" (arXiv:1706.03762)."""

import keras
from keras import ops

from t2t_lite.errors import UsageError
from t2t_lite.hparam import HParams
from t2t_lite.model.cache import DecoderCache
from t2t_lite.model.layers import (
    DecoderLayer,
    DropoutMasks,
    EncoderLayer,
    LayerNormalization,
    LearnedPositions,
    SinusoidalPositions,
    TokenEmbedding,
)
from t2t_lite.model.layers.dropout import no_dropout
from t2t_lite.model.layers.masks import padding_mask
from t2t_lite.model.layers.segments import (
    Segments,
    causal_bias,
    previous_targets,
    source_bias,
)
from t2t_lite.model.losses import (
    fused_cross_entropy_sum,
    smoothed_cross_entropy,
)

_PRECISION_POLICIES = {"float32": "float32", "bfloat16": "mixed_bfloat16"}


class Transformer(keras.Model):
    """Encoder and decoder stacks over token ids.

    Padding is id 0, and a target ends with the end-of-sequence id. Inside,
    positions of padding are attended by nobody, and a target position sees
    none after it.

    Args:
      source_vocab_size: V of the source.
      target_vocab_size: V of the target.
      hidden_size: d_model.
      filter_size: d_ff.
      num_heads: h.
      num_hidden_layers: N, layers of the encoder and of the decoder.
      key_depth: d_k, of a head; None: d_model / h.
      value_depth: d_v, of a head; None: d_model / h.
      shared_embedding: one matrix embeds source and target and, transposed,
        makes the logits (section 3.4); needs equal vocabularies. Otherwise
        there are three.
      norm_placement: "post", the paper's, or "pre".
      position_encoding: "interleaved" (section 3.5), "concatenated"
        (tensor2tensor's) or "learned" (table 3, row E).
      attention_window: r of restricted self-attention: a position sees those
        at most r // 2 away (section 4). None: it sees all.
      max_length: positions that learned encodings know.
      residual_dropout: P_drop of sublayer outputs and of embeddings plus
        positions (section 5.4).
      attention_dropout: share of attention weights dropped.
      relu_dropout: share of feed-forward units dropped.
      seed: of the dropout of plain `fit`; `loss_sum` is given its own.

    Call arguments:
      features: a dict of `inputs`, int [B, S], and `targets`, int [B, T]. With
        several pairs in a row, also `inputs_segmentation`, `inputs_position`,
        `targets_segmentation` and `targets_position`; see `Segments`. Pairs of
        a row have nothing to do with each other, as if each had its own.
      training: whether to drop.

    Returns: float32 [B, T, V]; row t scores `targets[:, t]` given the targets
      before it: the call shifts them itself.

    Raises:
      UsageError: heads that do not divide, sizes that cannot be shared.
    """

    def __init__(
        self,
        source_vocab_size,
        target_vocab_size,
        hidden_size=512,
        filter_size=2048,
        num_heads=8,
        num_hidden_layers=6,
        key_depth=None,
        value_depth=None,
        shared_embedding=True,
        norm_placement="post",
        position_encoding="interleaved",
        attention_window=None,
        max_length=256,
        residual_dropout=0.1,
        attention_dropout=0.0,
        relu_dropout=0.0,
        seed=0,
        name="transformer",
        dtype=None,
    ):
        super().__init__(name=name, dtype=dtype)
        if shared_embedding and source_vocab_size != target_vocab_size:
            raise UsageError(
                "shared_embedding needs one vocabulary for both sides; got "
                f"source_vocab_size={source_vocab_size}, "
                f"target_vocab_size={target_vocab_size}."
            )
        self._config = {
            "source_vocab_size": source_vocab_size,
            "target_vocab_size": target_vocab_size,
            "hidden_size": hidden_size,
            "filter_size": filter_size,
            "num_heads": num_heads,
            "key_depth": key_depth,
            "value_depth": value_depth,
            "num_hidden_layers": num_hidden_layers,
            "shared_embedding": shared_embedding,
            "norm_placement": norm_placement,
            "position_encoding": position_encoding,
            "attention_window": attention_window,
            "max_length": max_length,
            "residual_dropout": residual_dropout,
            "attention_dropout": attention_dropout,
            "relu_dropout": relu_dropout,
            "seed": seed,
        }
        # The rules on sizes stand in one place, the hparams record.
        HParams(**{k: v for k, v in self._config.items() if k in _SHARED_NAMES})
        self.hidden_size = hidden_size
        self.residual_dropout = residual_dropout
        self.dropout_seed = keras.random.SeedGenerator(seed)
        self._make_embeddings(source_vocab_size, target_vocab_size)
        self.encoder_positions = self._positions("encoder_positions")
        self.decoder_positions = self._positions("decoder_positions")
        self.encoder_layers = self._stack(EncoderLayer, "encoder")
        self.decoder_layers = self._stack(DecoderLayer, "decoder")
        self.encoder_norm = self.decoder_norm = None
        if norm_placement == "pre":
            policy = self.dtype_policy
            self.encoder_norm = LayerNormalization(
                name="encoder_norm", dtype=policy
            )
            self.decoder_norm = LayerNormalization(
                name="decoder_norm", dtype=policy
            )

    @classmethod
    def from_hparams(
        cls,
        hparams: HParams,
        source_vocab_size: int,
        target_vocab_size: int,
        seed: int = 0,
    ) -> "Transformer":
        """The model that an hparams set describes; see the constructor."""
        values = hparams.to_dict()
        return cls(
            source_vocab_size,
            target_vocab_size,
            **{name: values[name] for name in _SHARED_NAMES},
            seed=seed,
            dtype=_PRECISION_POLICIES[hparams.precision],
        )

    def build(self, input_shape=None):
        """Creates every weight; their shapes depend on no input."""
        shape = (None, None, self.hidden_size)
        for layer in self._flatten_layers(include_self=False, recursive=False):
            if not layer.built:
                layer.build(shape)
        self.built = True

    def build_weights(self) -> "Transformer":
        """Creates every weight without data, and returns the model."""
        if not self.built:
            self.build()
        return self

    def call(self, features, training=False):
        seed = self.dropout_seed.next() if training else None
        return self.softmax_embedding.logits(
            self._decoder_output(features, seed)
        )

    def loss_sum(self, features, label_smoothing=0.0, seed=None):
        """The summed training loss, computed without holding the logits.

        Args:
          features: as of a call.
          label_smoothing: share in [0, 1) spread over the other tokens.
          seed: int32 [2]: drop, by masks that are a pure function of it.
            None: evaluate.

        Returns: two float32 scalars: the smoothed cross-entropy in nats
          summed over the real target tokens, and how many these are.
        """
        targets = ops.cast(features["targets"], "int32")
        output = self._decoder_output({**features, "targets": targets}, seed)
        count = ops.sum(ops.cast(padding_mask(targets), "float32"))
        loss = fused_cross_entropy_sum(
            ops.reshape(output, (-1, self.hidden_size)),
            ops.cast(self.softmax_embedding.table, output.dtype),
            ops.reshape(targets, (-1,)),
            label_smoothing,
        )
        return loss, count

    def target_log_probs(self, features):
        """The log-probability of each row: float32 [B], and its targets [B].

        Args:
          features: as of a call.
        """
        targets = ops.cast(features["targets"], "int32")
        real = ops.cast(padding_mask(targets), "float32")
        losses = smoothed_cross_entropy(self(features), targets)
        return -ops.sum(losses * real, axis=-1), ops.sum(real, axis=-1)

    def encode(self, inputs, dropout=no_dropout, segments=None):
        """The encoder's output.

        Args:
          inputs: int [B, S].
          dropout: `DropoutMasks` of this pass, or `no_dropout`.
          segments: `Segments` of `inputs`; None: a row is one sentence.

        Returns: float [B, S, D], and the bool padding mask [B, S] of `inputs`.
        """
        mask = padding_mask(inputs)
        # A window keeps sentences apart by their numbers alone.
        windowed = self._config["attention_window"] is not None
        apart = None if windowed else segments
        bias = source_bias(mask, apart, apart)
        numbers = segments and segments.numbers
        x = self._embedded_source(inputs, segments)
        x = dropout(x, self.residual_dropout)
        for layer in self.encoder_layers:
            x = layer(x, bias, dropout=dropout, segments=numbers)
        return self.encoder_norm(x) if self.encoder_norm else x, mask

    def decode(
        self,
        targets,
        memory,
        memory_mask,
        dropout=no_dropout,
        segments=None,
        memory_segments=None,
    ):
        """The decoder's output for whole targets, shifted right inside.

        Args:
          targets: int [B, T].
          memory: float [B, S, D], from `encode`.
          memory_mask: bool [B, S], from `encode`.
          dropout: `DropoutMasks` of this pass, or `no_dropout`.
          segments: `Segments` of `targets`; None: a row is one sentence.
          memory_segments: those of the source.

        Returns: float [B, T, D], of which `logits` makes the scores.
        """
        self_bias = self._causal_bias(ops.shape(targets)[1], segments)
        cross_bias = source_bias(memory_mask, segments, memory_segments)
        numbers = segments and segments.numbers
        x = self._embedded_target(targets, segments)
        x = dropout(x, self.residual_dropout)
        for layer in self.decoder_layers:
            x = layer(
                x,
                memory,
                self_bias,
                cross_bias,
                dropout=dropout,
                segments=numbers,
            )
        return self.decoder_norm(x) if self.decoder_norm else x

    def attention_weights(self, features):
        """The attention weights of every layer and head, without dropout.

        Args:
          features: `inputs` and `targets` of a call, one pair a row.

        Returns: a dict of float32: `encoder` [N, B, H, S, S], `decoder` [N, B,
          H, T, T] and `cross` [N, B, H, T, S]; a row is what one position
          attends to, and sums to 1. Row t of the decoder is the position that
          scores `targets[:, t]`, and its column t what that position is fed:
          the target before it.
        """
        kept = {"encoder": [], "decoder": [], "cross": []}

        def keep(name, attention, bias, memory=None):
            def attend(x):
                kept[name].append(attention.weights_of(x, bias, memory))
                return attention(x, bias, memory=memory)

            return attend

        inputs, targets = features["inputs"], features["targets"]
        x, mask = self._embedded_source(inputs), padding_mask(inputs)
        bias = source_bias(mask)
        for layer in self.encoder_layers:
            x = layer.with_attention(
                x, keep("encoder", layer.self_attention, bias)
            )
        memory = self.encoder_norm(x) if self.encoder_norm else x
        self_bias = self._causal_bias(ops.shape(targets)[1])
        x = self._embedded_target(targets)
        for layer in self.decoder_layers:
            x = layer.with_attentions(
                x,
                keep("decoder", layer.self_attention, self_bias),
                keep("cross", layer.cross_attention, bias, memory),
            )
        return {name: ops.stack(weights) for name, weights in kept.items()}

    def start_decoding(self, memory, memory_mask, beam_size, max_length):
        """The cache of a search that has not begun; see `DecoderCache`.

        Args:
          memory: float [B, S, D], from `encode`.
          memory_mask: bool [B, S], from `encode`.
          beam_size: K, hypotheses a sentence.
          max_length: L, the most steps; an int, or an int32 scalar.
        """
        return DecoderCache.start(
            self.decoder_layers,
            self.softmax_embedding,
            memory,
            memory_mask,
            beam_size,
            max_length,
        )

    def decode_step(self, ids, index, cache):
        """Scores every hypothesis' next token.

        Args:
          ids: int32 [B, K], the tokens of position `index - 1`; padding
            where `index` is 0.
          index: int32 scalar, the position to score.
          cache: from `start_decoding` or the last step.

        Returns: float32 [B, K, V], and the cache with this step in it.
        """
        reach = self.decoder_layers[0].self_attention.reach
        cache = DecoderCache.at_step(cache, index, reach)
        # One position a row: [B * K, 1] -> [B * K, 1, D] -> [B, K, D].
        x = self.target_embedding(ops.reshape(ids, (-1, 1)))
        x = self.decoder_positions(x, index)
        x = ops.reshape(x, (*ops.shape(ids), self.hidden_size))
        for number, layer in enumerate(self.decoder_layers):
            x = layer.with_attentions(
                x,
                lambda y, n=number, a=layer: cache.attend_self(
                    a.self_attention, n, y
                ),
                lambda y, n=number, a=layer: cache.attend_source(
                    a.cross_attention, n, y
                ),
            )
        x = self.decoder_norm(x) if self.decoder_norm else x
        return cache.logits(self.softmax_embedding, x), cache.tensors

    def follow_beams(self, cache, parents, index):
        """The cache after hypotheses were selected anew at step `index`.

        Args:
          cache: from `decode_step`.
          parents: int32 [B, K], which hypothesis each one continues.
          index: int32 scalar, the step that selected.
        """
        del index
        return DecoderCache.follow(cache, parents)

    def _decoder_output(self, features, seed):
        dropout = no_dropout if seed is None else DropoutMasks(seed)
        source = Segments.of(features, "inputs")
        target = Segments.of(features, "targets")
        memory, mask = self.encode(features["inputs"], dropout, source)
        return self.decode(
            features["targets"], memory, mask, dropout, target, source
        )

    def _embedded_source(self, inputs, segments=None):
        positions = segments and segments.positions
        return self.encoder_positions(
            self.source_embedding(inputs), positions=positions
        )

    def _embedded_target(self, targets, segments=None):
        # Padding is embedded as zero.
        previous = previous_targets(targets, segments)
        positions = segments and segments.positions
        return self.decoder_positions(
            self.target_embedding(previous), positions=positions
        )

    def _causal_bias(self, length, segments=None):
        """Float32 [1 or B, 1, T, T]; None if a window does without."""
        if self._config["attention_window"] is not None:
            return None
        return causal_bias(length, segments)

    def _make_embeddings(self, source_vocab_size, target_vocab_size):
        def embedding(vocab_size, name):
            return TokenEmbedding(
                vocab_size,
                self.hidden_size,
                name=name,
                dtype=self.dtype_policy,
            )

        if self._config["shared_embedding"]:
            shared = embedding(source_vocab_size, "shared_embedding")
            self.source_embedding = self.target_embedding = shared
            self.softmax_embedding = shared
        else:
            self.source_embedding = embedding(
                source_vocab_size, "source_embedding"
            )
            self.target_embedding = embedding(
                target_vocab_size, "target_embedding"
            )
            self.softmax_embedding = embedding(target_vocab_size, "softmax")

    def _positions(self, name):
        layout = self._config["position_encoding"]
        if layout == "learned":
            return LearnedPositions(
                self._config["max_length"], name=name, dtype=self.dtype_policy
            )
        return SinusoidalPositions(layout, name=name, dtype=self.dtype_policy)

    def _stack(self, layer_class, name):
        config = self._config
        return [
            layer_class(
                config["num_heads"],
                config["filter_size"],
                key_depth=config["key_depth"],
                value_depth=config["value_depth"],
                attention_window=config["attention_window"],
                norm_placement=config["norm_placement"],
                residual_dropout=config["residual_dropout"],
                attention_dropout=config["attention_dropout"],
                relu_dropout=config["relu_dropout"],
                name=f"{name}_layer_{number}",
                dtype=self.dtype_policy,
            )
            for number in range(config["num_hidden_layers"])
        ]

    def get_config(self):
        return {**self._config, "name": self.name, "dtype": self.dtype_policy}


_SHARED_NAMES = (
    "hidden_size",
    "filter_size",
    "num_heads",
    "key_depth",
    "value_depth",
    "num_hidden_layers",
    "shared_embedding",
    "norm_placement",
    "position_encoding",
    "attention_window",
    "max_length",
    "residual_dropout",
    "attention_dropout",
    "relu_dropout",
)
