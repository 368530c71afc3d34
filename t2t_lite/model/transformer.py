"""The Transformer of "Attention Is All You Need" (arXiv:1706.03762)."""

import copy
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Self

import keras
from keras import ops

from t2t_lite.errors import UsageError
from t2t_lite.hparam import HParams, ModelHParams
from t2t_lite.model.attention import MultiHeadAttention
from t2t_lite.model.cache import DecoderCache, StepWeights, Tensors
from t2t_lite.model.layers import (
    Dropout,
    DropoutMasks,
    FeedForward,
    LayerNormalization,
    LearnedPositions,
    SinusoidalPositions,
    TargetSpaceEmbedding,
    TokenEmbedding,
    no_dropout,
)
from t2t_lite.model.losses import fused_cross_entropy_sum, fused_log_probs
from t2t_lite.model.masks import (
    Segments,
    causal_bias,
    padding_mask,
    shift_right,
    source_bias,
)
from t2t_lite.ops import Shape, Tensor, add, flatten_rows

# The tensors of a batch by name: `inputs`, `targets`, ...
Features = Mapping[str, Tensor]
# The `bias` or `segments` of self-attention, see `MultiHeadAttention`.
SelfMask = Mapping[str, Tensor]

# See `Transformer.start_decoding`.
StepFunction = Callable[[Tensor, Tensor, Tensors], tuple[Tensor, Tensors]]

_POLICIES = {"float32": "float32", "bfloat16": "mixed_bfloat16"}


class _TransformerLayer(keras.layers.Layer):
    """Sublayers with a residual connection and normalization around each.

    Post-norm, the paper's: `norm(x + dropout(sublayer(x)))`. Pre-norm:
    `x + dropout(sublayer(norm(x)))`, with one more norm after the stack.
    `_enter` gives the input of a sublayer, and `_leave` adds its output.

    Args:
      hparams: the sizes, the dropout and the placement of the norms.
    """

    def __init__(self, hparams: ModelHParams, **kwargs: Any):
        super().__init__(**kwargs)
        self.hparams = hparams

    def _enter(self, x, norm):
        return norm(x) if self.hparams.norm_placement == "pre" else x

    def _leave(self, x, output, norm, dropout=no_dropout):
        x = add(x, dropout(output, self.hparams.residual_dropout))
        return x if self.hparams.norm_placement == "pre" else norm(x)

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

    def _build_sublayers(self, input_shape):
        """Add the last sublayer of every block, then build all of them."""
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

    def _apply_feed_forward(self, x, dropout):
        norm = self.feed_forward_norm
        output = self.feed_forward(self._enter(x, norm), dropout=dropout)
        return self._leave(x, output, norm, dropout)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "hparams": self.hparams.model_kwargs()}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        hparams = ModelHParams(**config["hparams"])
        return super().from_config({**config, "hparams": hparams})


@keras.saving.register_keras_serializable(package="t2t_lite")
class EncoderLayer(_TransformerLayer):
    """Self-attention, then the feed-forward network (section 3.1)."""

    def build(self, input_shape: Shape) -> None:
        self.self_attention = self._self_attention(causal=False)
        self.self_attention_norm = self._norm("self_attention_norm")
        self._build_sublayers(input_shape)

    def call(
        self, x: Tensor, self_mask: SelfMask, dropout: Dropout = no_dropout
    ) -> Tensor:
        """Float [B, S, D] -> float [B, S, D].

        Args:
          x: float [B, S, D].
          self_mask: from `Transformer.encoder_mask`.
          dropout: `DropoutMasks` of this pass, or `no_dropout`.
        """
        y = self.self_attention(
            self.self_attention_input(x), **self_mask, dropout=dropout
        )
        x = self._leave(x, y, self.self_attention_norm, dropout)
        return self._apply_feed_forward(x, dropout)

    def self_attention_input(self, x: Tensor) -> Tensor:
        """Return the input of the self-attention in a call with `x`."""
        return self._enter(x, self.self_attention_norm)


@keras.saving.register_keras_serializable(package="t2t_lite")
class DecoderLayer(_TransformerLayer):
    """Self-attention, attention to the source, the feed-forward network."""

    def build(self, input_shape: Shape) -> None:
        self.self_attention = self._self_attention(causal=True)
        self.self_attention_norm = self._norm("self_attention_norm")
        self.cross_attention = self._attention("cross_attention")
        self.cross_attention_norm = self._norm("cross_attention_norm")
        self._build_sublayers(input_shape)

    def call(
        self,
        x: Tensor,
        memory: Tensor,
        self_mask: SelfMask,
        memory_bias: Tensor,
        dropout: Dropout = no_dropout,
    ) -> Tensor:
        """Float [B, T, D] -> float [B, T, D].

        Args:
          x: float [B, T, D].
          memory: float [B, S, D], the encoder's output.
          self_mask: from `Transformer.decoder_mask`.
          memory_bias: float32 [B, 1, 1 or T, S], from `source_bias`.
          dropout: `DropoutMasks` of this pass, or `no_dropout`.
        """
        y = self.self_attention(
            self.self_attention_input(x), **self_mask, dropout=dropout
        )
        x = self._leave(x, y, self.self_attention_norm, dropout)
        y = self.cross_attention(
            self._enter(x, self.cross_attention_norm),
            bias=memory_bias,
            memory=memory,
            dropout=dropout,
        )
        x = self._leave(x, y, self.cross_attention_norm, dropout)
        return self._apply_feed_forward(x, dropout)

    def self_attention_input(self, x: Tensor) -> Tensor:
        """Return the input of the self-attention in a call with `x`."""
        return self._enter(x, self.self_attention_norm)

    def cross_attention_input(self, x: Tensor, self_mask: SelfMask) -> Tensor:
        """Return the input of the cross-attention in a call with `x`."""
        y = self.self_attention(self.self_attention_input(x), **self_mask)
        x = self._leave(x, y, self.self_attention_norm)
        return self._enter(x, self.cross_attention_norm)

    def step(self, x: Tensor, cache: DecoderCache, number: int) -> Tensor:
        """Apply the layer to one position of every hypothesis.

        Args:
          x: float [B * K, D].
          cache: of this step; it gets the keys and values of `x`.
          number: of this layer in the decoder, from 0.
        """
        norm = self.self_attention_norm
        y = cache.attend_self(number, self._enter(x, norm))
        x = self._leave(x, y, norm)
        norm = self.cross_attention_norm
        y = cache.attend_source(number, self._enter(x, norm))
        x = self._leave(x, y, norm)
        norm = self.feed_forward_norm
        y = cache.feed_forward(number, self._enter(x, norm))
        return self._leave(x, y, norm)


@keras.saving.register_keras_serializable(package="t2t_lite")
class Transformer(keras.Model):
    """Encoder and decoder stacks over token ids.

    Padding is id 0, and a target ends with the end-of-sequence id. No position
    attends to padding, and a target position attends to none after it.

    Args:
      source_vocab_size: ids of the source vocabulary; the model's V is this
        number, rounded up to a multiple of `vocab_divisor`.
      target_vocab_size: ids of the target vocabulary; None: as the source. One
        embedding for both sides (section 3.4) needs equal vocabularies.
      seed: of the dropout of plain `fit`; `loss_sum` takes its own.
      name: of the model, the first part of its weights' paths.
      dtype: a Keras dtype policy, such as "mixed_bfloat16".
      hparams: any of `ModelHParams`, by name: hidden_size=512, ...

    Call arguments:
      features: a dict of `inputs`, int [B, S], and `targets`, int [B, T]. With
        several pairs in a row, also `inputs_segmentation`, `inputs_position`,
        `targets_segmentation` and `targets_position`; see `Segments`. The
        pairs of a row do not affect one another.
      training: whether to apply dropout.

    Attributes:
      gradient_checkpointing: whether training computes the activations within
        layers again in the backward pass instead of keeping them
        (arXiv:1604.06174). No result changes. On TensorFlow only: JAX refuses
        the dropout within such a layer.

    Returns:
      float32 [B, T, V]; row t scores `targets[:, t]` given the targets before
      it: the call shifts them itself.

    Raises:
      UsageError: sizes that break a rule, or vocabularies that differ.
    """

    def __init__(
        self,
        source_vocab_size: int,
        target_vocab_size: int | None = None,
        *,
        seed: int = 0,
        name: str = "transformer",
        dtype: Any = None,
        **hparams: Any,
    ):
        if isinstance(source_vocab_size, ModelHParams):
            raise UsageError(
                "Transformer(...) takes sizes by name; with hparams call "
                "Transformer.from_hparams(hparams, source_vocab_size, "
                "target_vocab_size)."
            )
        super().__init__(name=name, dtype=dtype)
        self.hparams = ModelHParams(**hparams)
        if target_vocab_size is None:
            target_vocab_size = source_vocab_size
        self.vocab_sizes = self.hparams.vocab_sizes(
            source_vocab_size, target_vocab_size
        )
        self.seed = seed
        self.gradient_checkpointing = False
        self.dropout_seed = keras.random.SeedGenerator(seed)
        if not self.hparams.shared_embedding:
            self.source_embedding = self._embedding(0, "source_embedding")
            self.target_embedding = self._embedding(1, "target_embedding")
            self.softmax_embedding = self._embedding(1, "softmax")
        elif source_vocab_size == target_vocab_size:
            self.source_embedding = self._embedding(0, "shared_embedding")
            self.target_embedding = self.source_embedding
            self.softmax_embedding = self.source_embedding
        else:
            raise UsageError(
                "shared_embedding needs one vocabulary for both sides; got "
                f"source_vocab_size={source_vocab_size}, "
                f"target_vocab_size={target_vocab_size}."
            )
        self.target_space_embedding: Any = lambda x: x
        if self.hparams.target_space_embedding:
            self.target_space_embedding = TargetSpaceEmbedding(
                name="target_space_embedding", dtype=self.dtype_policy
            )
        self.encoder_positions = self._positions("encoder_positions")
        self.decoder_positions = self._positions("decoder_positions")
        encoder_layers, decoder_layers = self.hparams.layers
        self.encoder_layers = [
            EncoderLayer(
                self.hparams, name=f"encoder_layer_{i}", dtype=self.dtype_policy
            )
            for i in range(encoder_layers)
        ]
        self.decoder_layers = [
            DecoderLayer(
                self.hparams, name=f"decoder_layer_{i}", dtype=self.dtype_policy
            )
            for i in range(decoder_layers)
        ]
        self.encoder_norm = self._final_norm("encoder_norm")
        self.decoder_norm = self._final_norm("decoder_norm")

    def _embedding(self, side, name):
        return TokenEmbedding(
            self.vocab_sizes[side],
            self.hparams.hidden_size,
            scaled=self.hparams.embedding_scale == "sqrt_depth",
            name=name,
            dtype=self.dtype_policy,
        )

    def _positions(self, name):
        layout = self.hparams.position_encoding
        if layout == "none":
            return lambda x, start=0, positions=None: x
        options = {"name": name, "dtype": self.dtype_policy}
        if layout == "learned":
            return LearnedPositions(self.hparams.max_length, **options)
        return SinusoidalPositions(layout, **options)

    def _final_norm(self, name):
        """Return the norm after a pre-norm stack."""
        if self.hparams.norm_placement == "post":
            return lambda x: x
        return LayerNormalization(
            self.hparams.norm_epsilon, name=name, dtype=self.dtype_policy
        )

    @classmethod
    def from_hparams(
        cls,
        hparams: HParams,
        source_vocab_size: int,
        target_vocab_size: int | None = None,
        seed: int = 0,
    ) -> "Transformer":
        """Return the model of an hparams set; see the constructor."""
        return cls(
            source_vocab_size,
            target_vocab_size,
            seed=seed,
            dtype=_POLICIES[hparams.precision],
            **hparams.model_kwargs(),
        )

    def get_config(self) -> dict[str, Any]:
        source_vocab_size, target_vocab_size = self.vocab_sizes
        return {
            "source_vocab_size": source_vocab_size,
            "target_vocab_size": target_vocab_size,
            **self.hparams.model_kwargs(),
            "seed": self.seed,
            "name": self.name,
            "dtype": self.dtype_policy,
        }

    def build(self, input_shape: Any = None) -> None:
        """Create every weight; their shapes depend on no input."""
        shape = (None, None, self.hparams.hidden_size)
        for layer in self._flatten_layers(include_self=False, recursive=False):
            if not layer.built:
                layer.build(shape)
        self.built = True

    def build_weights(self) -> "Transformer":
        """Create every weight, without data, and return the model."""
        self.build()
        return self

    def call(self, features: Features, training: bool = False) -> Tensor:
        seed = self.dropout_seed.next() if training else None
        return self.softmax_embedding.logits(
            self._decoder_output(features, seed)
        )

    def loss_sum(
        self,
        features: Features,
        label_smoothing: float = 0.0,
        seed: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Return the summed training loss, computed without all the logits.

        Args:
          features: the arguments of a call.
          label_smoothing: share in [0, 1) spread over the other tokens.
          seed: int32 [2] of `DropoutMasks`; None: evaluate.

        Returns:
          Two float32 scalars: the smoothed cross-entropy in nats, summed over
          the real target tokens, and the number of these.
        """
        targets = ops.cast(features["targets"], "int32")
        output = self._decoder_output({**features, "targets": targets}, seed)
        count = ops.sum(ops.cast(padding_mask(targets), "float32"))
        loss = fused_cross_entropy_sum(
            *self._softmax_rows(output, targets), label_smoothing
        )
        return loss, count

    def token_log_probs(self, features: Features) -> Tensor:
        """Return the log-probability of each target token.

        Computed without all the logits.

        Args:
          features: the arguments of a call.

        Returns:
          float32 [B, T], 0 where the target is padding.
        """
        targets = ops.cast(features["targets"], "int32")
        output = self._decoder_output({**features, "targets": targets}, None)
        log_probs = fused_log_probs(*self._softmax_rows(output, targets))
        real = ops.cast(padding_mask(targets), "float32")
        return ops.reshape(log_probs, ops.shape(targets)) * real

    def _softmax_rows(self, output, targets) -> tuple[Tensor, Tensor, Tensor]:
        """Return the arguments of the fused losses: [N, D], [V, D], [N]."""
        return (
            ops.reshape(output, (-1, self.hparams.hidden_size)),
            ops.cast(self.softmax_embedding.table, output.dtype),
            ops.reshape(targets, (-1,)),
        )

    def _decoder_output(self, features, seed):
        dropout = no_dropout if seed is None else DropoutMasks(seed)
        source = Segments.of(features, "inputs")
        target = Segments.of(features, "targets")
        memory, mask = self.encode(features["inputs"], dropout, source)
        return self.decode(
            features["targets"], memory, mask, dropout, target, source
        )

    def encode(
        self,
        inputs: Tensor,
        dropout: Dropout = no_dropout,
        segments: Segments | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Return the encoder's output.

        Args:
          inputs: int [B, S].
          dropout: `DropoutMasks` of this pass, or `no_dropout`.
          segments: of `inputs`; None: a row is one sentence.

        Returns:
          float [B, S, D], and the bool padding mask [B, S] of `inputs`.
        """
        mask = padding_mask(inputs)
        self_mask = self.encoder_mask(mask, segments)
        x = self.embed_source(inputs, segments)
        x = dropout(x, self.hparams.residual_dropout)
        for layer in self.encoder_layers:
            x = self._apply(layer, x, self_mask=self_mask, dropout=dropout)
        return self.encoder_norm(x), mask

    def decode(
        self,
        targets: Tensor,
        memory: Tensor,
        memory_mask: Tensor,
        dropout: Dropout = no_dropout,
        segments: Segments | None = None,
        memory_segments: Segments | None = None,
    ) -> Tensor:
        """Return the decoder's output for whole targets, shifted right inside.

        Args:
          targets: int [B, T].
          memory: float [B, S, D], from `encode`.
          memory_mask: bool [B, S], from `encode`.
          dropout: `DropoutMasks` of this pass, or `no_dropout`.
          segments: of `targets`; None: a row is one sentence.
          memory_segments: of the source.

        Returns:
          float [B, T, D], the input of the softmax embedding.
        """
        self_mask = self.decoder_mask(targets, segments)
        memory_bias = source_bias(memory_mask, segments, memory_segments)
        x = self.embed_target(targets, segments)
        x = dropout(x, self.hparams.residual_dropout)
        for layer in self.decoder_layers:
            x = self._apply(
                layer,
                x,
                memory,
                self_mask=self_mask,
                memory_bias=memory_bias,
                dropout=dropout,
            )
        return self.decoder_norm(x)

    def _apply(self, layer, *inputs, dropout, **options):
        if self.gradient_checkpointing and dropout is not no_dropout:
            return _remat(layer, *inputs, dropout=dropout, **options)
        return layer(*inputs, dropout=dropout, **options)

    def embed_source(
        self, inputs: Tensor, segments: Segments | None = None
    ) -> Tensor:
        """Return the input of the encoder's first layer: [B, S, D]."""
        x = self.target_space_embedding(self.source_embedding(inputs))
        return self.encoder_positions(
            x, positions=segments and segments.positions
        )

    def embed_target(
        self, targets: Tensor, segments: Segments | None = None
    ) -> Tensor:
        """Return the input of the decoder's first layer: [B, T, D]."""
        apart = None if self.hparams.shift_across_segments else segments
        x = self.target_embedding(shift_right(targets, apart))
        return self.decoder_positions(
            x, positions=segments and segments.positions
        )

    def encoder_mask(
        self, mask: Tensor, segments: Segments | None = None
    ) -> SelfMask:
        """Return the mask of the encoder's self-attention.

        Args:
          mask: bool [B, S], the padding mask.
          segments: of the source; None: a row is one sentence.
        """
        if self.hparams.attention_window is None:
            return {"bias": source_bias(mask, segments, segments)}
        numbers = segments.numbers if segments else ops.cast(mask, "int32")
        return {"segments": numbers}

    def decoder_mask(
        self, targets: Tensor, segments: Segments | None = None
    ) -> SelfMask:
        """Return the mask of the decoder's self-attention.

        Args:
          targets: int [B, T].
          segments: of the targets; None: a row is one sentence.
        """
        if self.hparams.attention_window is None:
            return {"bias": causal_bias(ops.shape(targets)[1], segments)}
        numbers = segments.numbers if segments else ops.ones_like(targets)
        return {"segments": numbers}

    def start_decoding(
        self,
        memory: Tensor,
        memory_mask: Tensor,
        beam_size: int,
        max_length: int | Tensor,
    ) -> tuple[StepFunction, Tensors]:
        """Return the function of a decoding step, and the first cache.

        Args:
          memory: float [B, S, D], from `encode`.
          memory_mask: bool [B, S], from `encode`.
          beam_size: K, hypotheses a sentence.
          max_length: maximum number of steps, an int or an int32 scalar.

        Returns:
          `(ids int32 [B, K], index int32 scalar, cache) -> (logits float32
          [B, K, V], cache)`: it scores the tokens of position `index` after the
          `ids` of position `index - 1`, padding where `index` is 0.
        """
        weights = StepWeights.of(
            self.decoder_layers, self.softmax_embedding, memory.dtype
        )
        cache = DecoderCache.start(
            self.decoder_layers, memory, memory_mask, beam_size, max_length
        )
        return partial(self._decode_step, weights), cache

    def _decode_step(self, weights, ids, index, cache):
        step = DecoderCache.prepare_step(
            cache, weights, index, self.decoder_layers[0]
        )
        x = self.target_embedding(ops.reshape(ids, (-1, 1)))
        # [B * K, 1, D] -> [B * K, D]
        x = flatten_rows(self.decoder_positions(x, index))
        for number, layer in enumerate(self.decoder_layers):
            x = layer.step(x, step, number)
        logits = step.logits(self.decoder_norm(x))  # [B * K, V]
        shape = (*ops.shape(ids), logits.shape[-1])
        return ops.reshape(logits, shape), step.tensors

    # A cache needs no model.
    reorder_cache = staticmethod(DecoderCache.reorder)
    select_sentences = staticmethod(DecoderCache.select)


def _remat(layer, *inputs, dropout, **options):
    """Return `layer(*inputs, ...)`, whose backward pass computes it again.

    The forward pass keeps only the inputs of the layer. Dropout is the same
    both times. Gradients go to `inputs`, but not to `options`.
    """
    before = copy.copy(dropout)

    def call(*tensors):
        masks = copy.copy(before)
        values = tensors[len(inputs) :]
        mapping = list(zip(layer.variables, values, strict=True))
        with keras.StatelessScope(state_mapping=mapping):
            output = layer(*tensors[: len(inputs)], dropout=masks, **options)
        dropout.drawn = max(dropout.drawn, masks.drawn)
        return output

    # Reshaped to get values: a variable that is read twice has two gradients.
    weights = [ops.reshape(v, v.shape) for v in layer.variables]
    return keras.remat(call)(*inputs, *weights)
