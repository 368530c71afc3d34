"""The Transformer of "Attention Is All You Need" (arXiv:1706.03762)."""

import copy
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import keras
from keras import ops

from t2t_lite.errors import UsageError
from t2t_lite.hparam import HParams, ModelHParams
from t2t_lite.model import layers, masks
from t2t_lite.model.attention import MultiHeadAttention
from t2t_lite.model.cache import DecoderCache, StepWeights, Tensors
from t2t_lite.model.losses import fused_cross_entropy_sum, fused_log_probs
from t2t_lite.model.masks import Segments, padding_mask, source_bias
from t2t_lite.ops import Shape, Tensor, add, flatten_rows, shape_list

# Tensors of a batch by name: `inputs`, `targets`, ...
Features = Mapping[str, Tensor]
# `bias` or `segments` of a self-attention call, see `MultiHeadAttention.call`.
SelfMask = Mapping[str, Tensor]

# The first result of `Transformer.init_decoding`.
StepFunction = Callable[..., tuple[Any, ...]]

_POLICIES = {"float32": "float32", "bfloat16": "mixed_bfloat16"}


class _TransformerLayer(keras.layers.Layer):
    """Base class of layers: sublayers with residual connection and norm.

    Post-norm, as in the paper, is `norm(x + dropout(sublayer(x)))`. Pre-norm is
    `x + dropout(sublayer(norm(x)))`, with another norm after the stack.
    `_enter` returns the input of a sublayer, and `_leave` adds its output.

    Args:
      hparams: fields of `ModelHParams` by name.
    """

    is_decoder = False

    def __init__(self, hparams: Mapping[str, Any], **kwargs: Any):
        super().__init__(**kwargs)
        self.hparams = ModelHParams(**hparams)

    def _enter(self, x, norm):
        return norm(x) if self.hparams.norm_placement == "pre" else x

    def _leave(self, x, output, norm, dropout=layers.no_dropout):
        x = add(x, dropout(output, self.hparams.residual_dropout))
        return x if self.hparams.norm_placement == "pre" else norm(x)

    def _attention(self, name, **options):
        return MultiHeadAttention(
            self.hparams.num_heads,
            self.hparams.key_depth,
            self.hparams.value_depth,
            self.hparams.attention_dropout,
            use_bias=self.hparams.attention_bias,
            score=self.hparams.attention_score,
            **options,
            name=name,
            dtype=self.dtype_policy.name,
        )

    def _norm(self, name):
        return layers.LayerNormalization(
            self.hparams.norm_epsilon, name=name, dtype=self.dtype_policy.name
        )

    def build(self, input_shape: Shape) -> None:
        self.self_attention = self._attention(
            "self_attention",
            window=self.hparams.attention_window,
            causal=self.is_decoder,
            max_relative_position=self.hparams.max_relative_position,
        )
        self.self_attention_norm = self._norm("self_attention_norm")
        if self.is_decoder:
            self.cross_attention = self._attention("cross_attention")
            self.cross_attention_norm = self._norm("cross_attention_norm")
        self.feed_forward = layers.FeedForward(
            self.hparams.filter_size,
            self.hparams.relu_dropout,
            self.hparams.activation,
            name="feed_forward",
            dtype=self.dtype_policy.name,
        )
        self.feed_forward_norm = self._norm("feed_forward_norm")
        for layer in self._flatten_layers(include_self=False, recursive=False):
            layer.build(input_shape)
        self.built = True

    def self_attention_input(self, x: Tensor) -> Tensor:
        """Return the input of the self-attention in a call with `x`."""
        return self._enter(x, self.self_attention_norm)

    def _attend_self(self, x, self_mask, dropout=layers.no_dropout):
        y = self.self_attention_input(x)
        y = self.self_attention(y, **self_mask, dropout=dropout)
        return self._leave(x, y, self.self_attention_norm, dropout)

    def _feed_forward(self, x, dropout):
        norm = self.feed_forward_norm
        output = self.feed_forward(self._enter(x, norm), dropout=dropout)
        return self._leave(x, output, norm, dropout)


@keras.saving.register_keras_serializable(package="t2t_lite")
class EncoderLayer(_TransformerLayer):
    """Self-attention and feed-forward network (section 3.1)."""

    def call(
        self,
        x: Tensor,
        self_mask: SelfMask,
        dropout: layers.Dropout = layers.no_dropout,
    ) -> Tensor:
        """Float [B, S, D] -> float [B, S, D].

        The mask is the result of `Transformer.encoder_mask`.
        """
        x = self._attend_self(x, self_mask, dropout)
        return self._feed_forward(x, dropout)


@keras.saving.register_keras_serializable(package="t2t_lite")
class DecoderLayer(_TransformerLayer):
    """Self-attention, cross-attention and feed-forward network."""

    is_decoder = True

    def call(
        self,
        x: Tensor,
        memory: Tensor,
        self_mask: SelfMask,
        memory_bias: Tensor,
        dropout: layers.Dropout = layers.no_dropout,
    ) -> Tensor:
        """Float [B, T, D] -> float [B, T, D].

        The memory, [B, S, D], is the encoder's output; the masks are results of
        `Transformer.decoder_mask` and `source_bias`.
        """
        x = self._attend_self(x, self_mask, dropout)
        y = self._enter(x, self.cross_attention_norm)
        y = self.cross_attention(
            y, bias=memory_bias, memory=memory, dropout=dropout
        )
        x = self._leave(x, y, self.cross_attention_norm, dropout)
        return self._feed_forward(x, dropout)

    def cross_attention_input(self, x: Tensor, self_mask: SelfMask) -> Tensor:
        """Return the input of the cross-attention in a call with `x`."""
        x = self._attend_self(x, self_mask)
        return self._enter(x, self.cross_attention_norm)

    def step(self, x: Tensor, cache: DecoderCache, layer_index: int) -> Tensor:
        """Apply the layer to one position of every hypothesis: [B * K, D].

        The cache gets the keys and values of `x`. `layer_index` counts from 0.
        """
        norm = self.self_attention_norm
        y = cache.attend_self(layer_index, self._enter(x, norm))
        x = self._leave(x, y, norm)
        norm = self.cross_attention_norm
        y = cache.attend_source(layer_index, self._enter(x, norm))
        x = self._leave(x, y, norm)
        norm = self.feed_forward_norm
        y = cache.feed_forward(
            layer_index, self._enter(x, norm), self.hparams.activation
        )
        return self._leave(x, y, norm)


@keras.saving.register_keras_serializable(package="t2t_lite")
class Transformer(keras.Model):
    """The Transformer: encoder and decoder stacks over token ids.

    Padding is id 0, and a target ends with the end-of-sequence id. Positions
    attend neither to padding nor, in the decoder, to later positions.

    Args:
      source_vocab_size: size of the source vocabulary; V of the model is this
        number, rounded up to a multiple of `vocab_divisor`.
      target_vocab_size: size of the target vocabulary; None is the source's. A
        shared embedding (section 3.4) requires equal vocabularies.
      seed: seed of dropout in Keras' `fit`; `loss_sum` has its own seed.
      name: the name of the model, the first part of its weights' paths.
      dtype: a Keras dtype policy, such as "mixed_bfloat16".
      hparams: fields of `ModelHParams` by name: hidden_size=512, ...

    Call arguments:
      features: a dict of `inputs`, int [B, S], and `targets`, int [B, T]; for
        packed rows also `inputs_segmentation`, `inputs_position`,
        `targets_segmentation` and `targets_position`, see `Segments`. The
        pairs of a row do not affect each other.
      training: apply dropout.

    Attributes:
      gradient_checkpointing: recompute the activations of layers in the
        backward pass of training instead of keeping them (arXiv:1604.06174),
        with the same results; on TensorFlow only.

    Returns:
      float32 [B, T, V], the logits; row t predicts `targets[:, t]` from the
      targets before it (the call shifts the targets).

    Raises:
      UsageError: sizes are invalid, or vocabularies differ.
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
                "Transformer(...) requires sizes by name. For hparams use "
                "Transformer.from_hparams(hparams, source_vocab_size)."
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
                "shared_embedding requires one vocabulary for both sides; got "
                f"source_vocab_size={source_vocab_size}, "
                f"target_vocab_size={target_vocab_size}."
            )
        self.target_space_embedding: Any = lambda x: x
        if self.hparams.target_space_embedding:
            self.target_space_embedding = layers.TargetSpaceEmbedding(
                name="target_space_embedding", dtype=self.dtype_policy.name
            )
        self.encoder_positions = self._positions("encoder_positions")
        self.decoder_positions = self._positions("decoder_positions")
        encoder_layers, decoder_layers = self.hparams.num_layers
        options = {
            "hparams": self.hparams.model_kwargs(),
            "dtype": self.dtype_policy.name,
        }
        self.encoder_layers = [
            EncoderLayer(name=f"encoder_layer_{i}", **options)
            for i in range(encoder_layers)
        ]
        self.decoder_layers = [
            DecoderLayer(name=f"decoder_layer_{i}", **options)
            for i in range(decoder_layers)
        ]
        self.encoder_norm = self._final_norm("encoder_norm")
        self.decoder_norm = self._final_norm("decoder_norm")

    def _embedding(self, side, name):
        return layers.TokenEmbedding(
            self.vocab_sizes[side],
            self.hparams.hidden_size,
            scaled=self.hparams.embedding_scale == "sqrt_depth",
            embeds_padding=self.hparams.learned_start,
            use_bias=self.hparams.logits_bias
            and name in ("shared_embedding", "softmax"),
            name=name,
            dtype=self.dtype_policy.name,
        )

    def _positions(self, name):
        layout = self.hparams.position_encoding
        if layout == "none":
            return lambda x, start=0, positions=None: x
        options = {"name": name, "dtype": self.dtype_policy.name}
        if layout == "learned":
            return layers.LearnedPositions(self.hparams.max_length, **options)
        return layers.SinusoidalPositions(layout, **options)

    def _final_norm(self, name):
        """Return the norm after a pre-norm stack; identity for post-norm."""
        if self.hparams.norm_placement == "post":
            return lambda x: x
        return layers.LayerNormalization(
            self.hparams.norm_epsilon, name=name, dtype=self.dtype_policy.name
        )

    @classmethod
    def from_hparams(
        cls,
        hparams: HParams,
        source_vocab_size: int,
        target_vocab_size: int | None = None,
        seed: int = 0,
    ) -> "Transformer":
        """Return a model with an hparams set; see the constructor."""
        sizes = source_vocab_size, target_vocab_size
        dtype = _POLICIES[hparams.precision]
        return cls(*sizes, seed=seed, dtype=dtype, **hparams.model_kwargs())

    def get_config(self) -> dict[str, Any]:
        source_vocab_size, target_vocab_size = self.vocab_sizes
        return {
            "source_vocab_size": source_vocab_size,
            "target_vocab_size": target_vocab_size,
            **self.hparams.model_kwargs(),
            "seed": self.seed,
            "name": self.name,
            "dtype": self.dtype_policy.name,
        }

    def build(self, input_shape: Any = None) -> None:
        """Create all weights; their shapes do not depend on the input."""
        shape = (None, None, self.hparams.hidden_size)
        for layer in self._flatten_layers(include_self=False, recursive=False):
            if not layer.built:
                layer.build(shape)
        self.built = True

    def build_weights(self) -> "Transformer":
        """Create all weights without data and return the model."""
        self.build()
        return self

    def call(self, features: Features, training: bool = False) -> Tensor:
        seed = self.dropout_seed.next() if training else None
        output = self._decoder_output(features, seed)
        return self.softmax_embedding.logits(output)

    def loss_sum(
        self,
        features: Features,
        label_smoothing: float = 0.0,
        seed: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Return the summed training loss without computing [B, T, V] logits.

        Args:
          features: the features of a call.
          label_smoothing: probability, in [0, 1), of all other tokens.
          seed: int32 [2], the seed of `DropoutMasks`; None disables dropout.

        Returns:
          The sum over the real target tokens in nats, and their number.
        """
        rows = self._softmax_rows(features, seed)
        count = ops.sum(ops.cast(padding_mask(rows[2]), "float32"))
        return fused_cross_entropy_sum(*rows, label_smoothing), count

    def token_log_probs(self, features: Features) -> Tensor:
        """Return the log-probability of each target token in a batch.

        The result is float32 [B, T], 0 where the target is padding.
        """
        log_probs = fused_log_probs(*self._softmax_rows(features, None))
        real = ops.cast(padding_mask(features["targets"]), "float32")
        return ops.reshape(log_probs, shape_list(real)) * real

    def _softmax_rows(self, features, seed) -> tuple[Tensor, Tensor, Tensor]:
        """Return the arguments of the fused losses: [N, D], [V, D], [N].

        A bias of the logits is one more column of both matrices.
        """
        targets = ops.cast(features["targets"], "int32")
        output = self._decoder_output({**features, "targets": targets}, seed)
        rows = ops.reshape(output, (-1, self.hparams.hidden_size))  # N = B * T
        table = ops.cast(self.softmax_embedding.table, output.dtype)
        bias = self.softmax_embedding.bias
        if bias is not None:
            rows = ops.concatenate([rows, ops.ones_like(rows[:, :1])], axis=1)
            bias = ops.cast(bias, table.dtype)[:, None]
            table = ops.concatenate([table, bias], axis=1)
        return rows, table, ops.reshape(targets, (-1,))

    def _decoder_output(self, features, seed):
        drop = layers.no_dropout if seed is None else layers.DropoutMasks(seed)
        inputs, targets = features["inputs"], features["targets"]
        source = Segments.from_features(features, "inputs")
        target = Segments.from_features(features, "targets")
        memory, mask = self.encode(inputs, drop, source)
        return self.decode(targets, memory, mask, drop, target, source)

    def encode(
        self,
        inputs: Tensor,
        dropout: layers.Dropout = layers.no_dropout,
        segments: Segments | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Return the encoder's output and the padding mask.

        Args:
          inputs: int [B, S].
          dropout: `DropoutMasks` of this pass, or `no_dropout`.
          segments: segments of `inputs`; None means one sentence per row.

        Returns:
          float [B, S, D], and bool [B, S].
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
        dropout: layers.Dropout = layers.no_dropout,
        segments: Segments | None = None,
        memory_segments: Segments | None = None,
    ) -> Tensor:
        """Return the input of the softmax layer, float [B, T, D].

        Targets, int [B, T], are complete and not shifted. The memory and its
        mask are from `encode`, which describes the other arguments.
        """
        options = {
            "self_mask": self.decoder_mask(targets, segments),
            "memory_bias": source_bias(memory_mask, segments, memory_segments),
        }
        x = self.embed_target(targets, segments)
        x = dropout(x, self.hparams.residual_dropout)
        for layer in self.decoder_layers:
            x = self._apply(layer, x, memory, **options, dropout=dropout)
        return self.decoder_norm(x)

    def _apply(self, layer, *inputs, dropout, **options):
        if self.gradient_checkpointing and dropout is not layers.no_dropout:
            return _remat(layer, *inputs, dropout=dropout, **options)
        return layer(*inputs, dropout=dropout, **options)

    def embed_source(
        self, inputs: Tensor, segments: Segments | None = None
    ) -> Tensor:
        """Return the input of the encoder's first layer: [B, S, D]."""
        x = self.target_space_embedding(self.source_embedding(inputs))
        positions = segments and segments.positions
        return self.encoder_positions(x, positions=positions)

    def embed_target(
        self, targets: Tensor, segments: Segments | None = None
    ) -> Tensor:
        """Return the input of the decoder's first layer: [B, T, D]."""
        sentences = None if self.hparams.shift_across_segments else segments
        x = self.target_embedding(masks.shift_right(targets, sentences))
        positions = segments and segments.positions
        return self.decoder_positions(x, positions=positions)

    def encoder_mask(
        self, mask: Tensor, segments: Segments | None = None
    ) -> SelfMask:
        """Return the self-attention mask of a padding mask, bool [B, S]."""
        if self.hparams.attention_window is None:
            return {"bias": source_bias(mask, segments, segments)}
        ids = segments.segment_ids if segments else ops.cast(mask, "int32")
        return {"segments": ids}

    def decoder_mask(
        self, targets: Tensor, segments: Segments | None = None
    ) -> SelfMask:
        """Return the self-attention mask of targets, int [B, T]."""
        if self.hparams.attention_window is None:
            return {"bias": masks.causal_bias(shape_list(targets)[1], segments)}
        ids = segments.segment_ids if segments else ops.ones_like(targets)
        return {"segments": ids}

    def init_decoding(
        self,
        memory: Tensor,
        memory_mask: Tensor,
        beam_size: int,
        max_length: int | Tensor,
        weights: StepWeights | None = None,
    ) -> tuple[StepFunction, Tensors]:
        """Return the step function and the initial cache.

        Args:
          memory: float [B, S, D], from `encode`.
          memory_mask: bool [B, S], from `encode`.
          beam_size: K, hypotheses per sentence.
          max_length: maximum number of steps, an int or an int32 scalar.
          weights: from `step_weights`; None: computed here.

        Returns:
          The function `(ids int32 [B, K], index int32 scalar, cache) -> (logits
          float32 [B, K, V], cache)`, which predicts the tokens at position
          `index` from `ids` at position `index - 1` (padding at index 0); and
          the initial cache. With `return_states=True`, the decoder's output,
          float [B, K, D], precedes the cache.
        """
        weights = weights or self.step_weights()
        cache = DecoderCache.start(
            self.decoder_layers, memory, memory_mask, beam_size, max_length
        )
        return partial(self._decode_step, weights), cache

    def step_weights(self) -> StepWeights:
        """Return the weights of decoding steps, for `init_decoding`."""
        return StepWeights.from_layers(
            self.decoder_layers, self.softmax_embedding, self.compute_dtype
        )

    def _decode_step(self, weights, ids, index, tensors, return_states=False):
        cache = DecoderCache.prepare_step(
            tensors, weights, index, self.decoder_layers[0]
        )
        x = self.target_embedding(ops.reshape(ids, (-1, 1)))
        # [B, K] -> [B * K, 1] -> [B * K, 1, D] -> [B * K, D]
        x = flatten_rows(self.decoder_positions(x, index))
        for layer_index, layer in enumerate(self.decoder_layers):
            x = layer.step(x, cache, layer_index)
        states = self.decoder_norm(x)  # [B * K, D]
        logits = cache.logits(states)  # [B * K, V]
        outputs = [logits, states] if return_states else [logits]
        shape = shape_list(ids)
        outputs = [ops.reshape(x, (*shape, x.shape[-1])) for x in outputs]
        return *outputs, cache.tensors  # [B, K, V]

    # These functions of a cache do not depend on the model.
    reorder_cache = staticmethod(DecoderCache.reorder)
    select_sentences = staticmethod(DecoderCache.select)


def _remat(layer, *inputs, dropout, **options):
    """Call a layer with gradient checkpointing.

    The forward pass keeps only the inputs of the layer, and the backward pass
    computes the layer again with the same dropout. `options` get no gradients.
    """
    before = copy.copy(dropout)

    def call(*tensors):
        repeated = copy.copy(before)
        values = tensors[len(inputs) :]
        mapping = list(zip(layer.variables, values, strict=True))
        with keras.StatelessScope(state_mapping=mapping):
            output = layer(*tensors[: len(inputs)], dropout=repeated, **options)
        dropout.num_masks = max(dropout.num_masks, repeated.num_masks)
        return output

    # Reshape gives values: a variable that is read twice has two gradients.
    weights = [ops.reshape(v, v.shape) for v in layer.variables]
    return keras.remat(call)(*inputs, *weights)
