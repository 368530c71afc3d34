"""What a `Transformer` is put together from, by its hparams."""

from collections.abc import Callable
from functools import partial
from typing import Any

from t2t_lite.errors import UsageError
from t2t_lite.hparam import ModelHParams
from t2t_lite.model.layers import (
    DecoderLayer,
    EncoderLayer,
    LayerNormalization,
    LearnedPositions,
    SinusoidalPositions,
    SourceVector,
    TokenEmbedding,
    no_positions,
)
from t2t_lite.model.layers.backend import Tensor

# A part that hparams leave out gives back what it gets.
_Part = Callable[..., Tensor]


class Parts:
    """Makes the layers of a model; none of them has weights yet.

    Args:
      hparams: of the model.
      policy: its Keras dtype policy.
    """

    def __init__(self, hparams: ModelHParams, policy: Any):
        self._hparams = hparams
        self._policy = policy

    def embeddings(
        self, source_vocab_size: int, target_vocab_size: int
    ) -> tuple[TokenEmbedding, TokenEmbedding, TokenEmbedding]:
        """The embedding of the source, that of the target, and the softmax.

        Args:
          source_vocab_size: ids of the source's vocabulary.
          target_vocab_size: ids of the target's.

        Raises:
          UsageError: one matrix for both sides, and vocabularies that differ.
        """
        embedding = partial(
            TokenEmbedding,
            hidden_size=self._hparams.hidden_size,
            scaled=self._hparams.embedding_scale == "sqrt_depth",
            dtype=self._policy,
        )
        source, target = self._hparams.vocab_sizes(
            source_vocab_size, target_vocab_size
        )
        if not self._hparams.shared_embedding:
            return (
                embedding(source, name="source_embedding"),
                embedding(target, name="target_embedding"),
                embedding(target, name="softmax"),
            )
        if source_vocab_size != target_vocab_size:
            raise UsageError(
                "shared_embedding needs one vocabulary for both sides; got "
                f"source_vocab_size={source_vocab_size}, "
                f"target_vocab_size={target_vocab_size}."
            )
        return (embedding(source, name="shared_embedding"),) * 3

    def source_vector(self, name: str) -> _Part:
        """What is added to each embedded source token."""
        if self._hparams.source_vector:
            return SourceVector(name=name, dtype=self._policy)
        return lambda x: x

    def positions(self, name: str) -> _Part:
        """What adds the positions of one side."""
        layout = self._hparams.position_encoding
        if layout == "none":
            return no_positions
        options = {"name": name, "dtype": self._policy}
        if layout == "learned":
            return LearnedPositions(self._hparams.max_length, **options)
        return SinusoidalPositions(layout, **options)

    def stacks(
        self, encoder: str, decoder: str
    ) -> tuple[list[EncoderLayer], list[DecoderLayer]]:
        """The layers of the encoder and the decoder, named `encoder_0`, ..."""
        encoder_layers, decoder_layers = self._hparams.layers
        return (
            self._stack(EncoderLayer, encoder, encoder_layers),
            self._stack(DecoderLayer, decoder, decoder_layers),
        )

    def _stack(self, layer_class, name, count):
        return [
            layer_class(
                self._hparams, name=f"{name}_{number}", dtype=self._policy
            )
            for number in range(count)
        ]

    def last_norm(self, name: str) -> _Part:
        """The norm after a pre-norm stack; post-norm stacks end with one."""
        if self._hparams.norm_placement == "pre":
            return LayerNormalization(
                self._hparams.norm_epsilon, name=name, dtype=self._policy
            )
        return lambda x: x
