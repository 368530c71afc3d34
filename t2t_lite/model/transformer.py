"""The Transformer of "Attention Is All You Need" (arXiv:1706.03762)."""

from collections.abc import Mapping
from functools import partial
from typing import Any

import keras
from keras import ops

from t2t_lite.errors import UsageError
from t2t_lite.hparam import HParams, ModelHParams
from t2t_lite.model.cache import DecoderCache, Tensors
from t2t_lite.model.layers import DropoutMasks
from t2t_lite.model.layers.backend import Tensor
from t2t_lite.model.layers.dropout import Dropout, no_dropout
from t2t_lite.model.layers.masks import padding_mask
from t2t_lite.model.layers.product import flat
from t2t_lite.model.layers.segments import (
    Segments,
    causal_bias,
    previous_targets,
    source_bias,
)
from t2t_lite.model.losses import (
    fused_cross_entropy_sum,
    fused_log_probs,
)
from t2t_lite.model.parts import Parts
from t2t_lite.model.recompute import recomputed

# The tensors of a batch by name: `inputs`, `targets`, ...
Features = Mapping[str, Tensor]

_POLICIES = {"float32": "float32", "bfloat16": "mixed_bfloat16"}


@keras.saving.register_keras_serializable(package="t2t_lite")
class Transformer(keras.Model):
    """Encoder and decoder stacks over token ids.

    Padding is id 0, and a target ends with the end-of-sequence id. No position
    attends to padding, and a target position attends to none after it.

    Args:
      source_vocab_size: ids of the source's vocabulary; the model's V is that,
        rounded up to a multiple of `vocab_divisor`.
      target_vocab_size: of the target's; None: as the source. One embedding
        for both sides (section 3.4) needs equal vocabularies.
      seed: of the dropout of plain `fit`; `loss_sum` is given its own.
      name: of the model, in front of the names of its weights.
      dtype: a Keras dtype policy, such as "mixed_bfloat16".
      hparams: any of `ModelHParams`, by name: hidden_size=512, ...

    Call arguments:
      features: a dict of `inputs`, int [B, S], and `targets`, int [B, T]. With
        several pairs in a row, also `inputs_segmentation`, `inputs_position`,
        `targets_segmentation` and `targets_position`; see `Segments`. The
        pairs of a row do not affect one another.
      training: whether to drop.

    Attributes:
      recompute: whether training keeps no activations within layers, and
        computes them again in the backward pass. It changes no result. On
        TensorFlow: JAX refuses the dropout within such a layer.

    Returns: float32 [B, T, V]; row t scores `targets[:, t]` given the targets
      before it: the call shifts them itself.

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
        given = (source_vocab_size, target_vocab_size)
        self.vocab_sizes = self.hparams.vocab_sizes(*given)
        self.seed = seed
        self.recompute = False
        self.dropout_seed = keras.random.SeedGenerator(seed)
        parts = Parts(self.hparams, self.dtype_policy)
        (
            self.source_embedding,
            self.target_embedding,
            self.softmax_embedding,
        ) = parts.embeddings(*given)
        self.source_vector = parts.source_vector("source_vector")
        self.encoder_positions = parts.positions("encoder_positions")
        self.decoder_positions = parts.positions("decoder_positions")
        self.encoder_layers, self.decoder_layers = parts.stacks(
            "encoder_layer", "decoder_layer"
        )
        self.encoder_norm = parts.last_norm("encoder_norm")
        self.decoder_norm = parts.last_norm("decoder_norm")

    @classmethod
    def from_hparams(
        cls,
        hparams: HParams,
        source_vocab_size: int,
        target_vocab_size: int | None = None,
        seed: int = 0,
    ) -> "Transformer":
        """The model that an hparams set describes; see the constructor."""
        return cls(
            source_vocab_size,
            target_vocab_size,
            seed=seed,
            dtype=_POLICIES[hparams.precision],
            **hparams.model_part(),
        )

    def get_config(self) -> dict[str, Any]:
        source_vocab_size, target_vocab_size = self.vocab_sizes
        return {
            "source_vocab_size": source_vocab_size,
            "target_vocab_size": target_vocab_size,
            **self.hparams.model_part(),
            "seed": self.seed,
            "name": self.name,
            "dtype": self.dtype_policy,
        }

    def build(self, input_shape: Any = None) -> None:
        """Creates every weight; their shapes depend on no input."""
        shape = (None, None, self.hparams.hidden_size)
        for layer in self._flatten_layers(include_self=False, recursive=False):
            if not layer.built:
                layer.build(shape)
        self.built = True

    def build_weights(self) -> "Transformer":
        """Creates every weight, without data; returns the model."""
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
            *self._softmax_rows(output, targets), label_smoothing
        )
        return loss, count

    def _softmax_rows(self, output, targets) -> tuple[Tensor, Tensor, Tensor]:
        """What the fused losses take: [N, D], the table [V, D] and [N]."""
        return (
            ops.reshape(output, (-1, self.hparams.hidden_size)),
            ops.cast(self.softmax_embedding.table, output.dtype),
            ops.reshape(targets, (-1,)),
        )

    def token_log_probs(self, features: Features) -> Tensor:
        """The log-probability of each target token, given those before it.

        Computed without holding the logits.

        Args:
          features: as of a call.

        Returns: float32 [B, T], 0 where the target is padding.
        """
        targets = ops.cast(features["targets"], "int32")
        output = self._decoder_output({**features, "targets": targets}, None)
        log_probs = fused_log_probs(*self._softmax_rows(output, targets))
        real = ops.cast(padding_mask(targets), "float32")
        return ops.reshape(log_probs, ops.shape(targets)) * real

    def encode(
        self,
        inputs: Tensor,
        dropout: Dropout = no_dropout,
        segments: Segments | None = None,
    ) -> tuple[Tensor, Tensor]:
        """The encoder's output.

        Args:
          inputs: int [B, S].
          dropout: `DropoutMasks` of this pass, or `no_dropout`.
          segments: `Segments` of `inputs`; None: a row is one sentence.

        Returns: float [B, S, D], and the bool padding mask [B, S] of `inputs`.
        """
        mask = padding_mask(inputs)
        # A window keeps sentences apart by their numbers alone.
        windowed = self.hparams.attention_window is not None
        apart = None if windowed else segments
        bias = source_bias(mask, apart, apart)
        numbers = segments and segments.numbers
        x = self.embed_source(inputs, segments)
        x = dropout(x, self.hparams.residual_dropout)
        for layer in self.encoder_layers:
            x = self._through(
                layer, x, bias=bias, dropout=dropout, segments=numbers
            )
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
        """The decoder's output for whole targets, shifted right inside.

        Args:
          targets: int [B, T].
          memory: float [B, S, D], from `encode`.
          memory_mask: bool [B, S], from `encode`.
          dropout: `DropoutMasks` of this pass, or `no_dropout`.
          segments: `Segments` of `targets`; None: a row is one sentence.
          memory_segments: those of the source.

        Returns: float [B, T, D], from which the softmax embedding makes logits.
        """
        self_bias = self.decoder_bias(ops.shape(targets)[1], segments)
        cross_bias = source_bias(memory_mask, segments, memory_segments)
        numbers = segments and segments.numbers
        x = self.embed_target(targets, segments)
        x = dropout(x, self.hparams.residual_dropout)
        for layer in self.decoder_layers:
            x = self._through(
                layer,
                x,
                memory,
                self_bias=self_bias,
                cross_bias=cross_bias,
                dropout=dropout,
                segments=numbers,
            )
        return self.decoder_norm(x)

    def start_decoding(
        self,
        memory: Tensor,
        memory_mask: Tensor,
        beam_size: int,
        max_length: int | Tensor,
        coverage: bool = False,
    ) -> Tensors:
        """The cache of a search to begin; see `DecoderCache.start`."""
        return DecoderCache.start(
            self.decoder_layers,
            self.softmax_embedding,
            memory,
            memory_mask,
            beam_size,
            max_length,
            coverage,
        )

    def decode_step(
        self, ids: Tensor, index: Tensor, cache: Tensors
    ) -> tuple[Tensor, Tensors]:
        """Scores every hypothesis' next token.

        Args:
          ids: int32 [B, K], the tokens of position `index - 1`; padding
            where `index` is 0.
          index: int32 scalar, the position to score.
          cache: from `start_decoding` or the last step.

        Returns: float32 [B, K, V], and the cache with this step in it.
        """
        attention = self.decoder_layers[0].self_attention
        step = DecoderCache.at_step(cache, index, attention)
        x = self.target_embedding(ops.reshape(ids, (-1, 1)))
        # One position a row: [B * K, 1, D] -> [B * K, D].
        x = flat(self.decoder_positions(x, index))
        for number, layer in enumerate(self.decoder_layers):
            x = layer.with_attentions(
                x,
                partial(step.attend_self, layer.self_attention, number),
                partial(step.attend_source, layer.cross_attention, number),
                feed_forward=partial(
                    step.feed_forward, layer.feed_forward, number
                ),
            )
        logits = step.logits(self.softmax_embedding, self.decoder_norm(x))
        shape = (*ops.shape(ids), logits.shape[-1])
        return ops.reshape(logits, shape), step.tensors

    # What becomes of a cache does not depend on the model.
    follow_beams = staticmethod(DecoderCache.follow)
    keep_sentences = staticmethod(DecoderCache.keep)
    coverage = staticmethod(DecoderCache.coverage)

    def embed_source(
        self, inputs: Tensor, segments: Segments | None = None
    ) -> Tensor:
        """What the encoder's first layer gets, before dropout: [B, S, D]."""
        x = self.source_vector(self.source_embedding(inputs))
        return self.encoder_positions(
            x, positions=segments and segments.positions
        )

    def embed_target(
        self, targets: Tensor, segments: Segments | None = None
    ) -> Tensor:
        """What the decoder's first layer gets, before dropout: [B, T, D]."""
        apart = None if self.hparams.shift_whole_rows else segments
        x = self.target_embedding(previous_targets(targets, apart))
        return self.decoder_positions(
            x, positions=segments and segments.positions
        )

    def decoder_bias(
        self, length: int | Tensor, segments: Segments | None = None
    ) -> Tensor | None:
        """The bias of decoder self-attention: float32 [1 or B, 1, T, T].

        None with an attention window, which masks by itself.
        """
        if self.hparams.attention_window is not None:
            return None
        return causal_bias(length, segments)

    def _through(self, layer, *inputs, dropout, **options):
        if self.recompute and dropout is not no_dropout:
            return recomputed(layer, *inputs, dropout=dropout, **options)
        return layer(*inputs, dropout=dropout, **options)

    def _decoder_output(self, features, seed):
        dropout = no_dropout if seed is None else DropoutMasks(seed)
        source = Segments.of(features, "inputs")
        target = Segments.of(features, "targets")
        memory, mask = self.encode(features["inputs"], dropout, source)
        return self.decode(
            features["targets"], memory, mask, dropout, target, source
        )
