"""`Ensemble`: several models that translate as one."""

from collections.abc import Sequence
from typing import Any

from keras import ops

from t2t_lite.errors import UsageError
from t2t_lite.model.layers.backend import Tensor
from t2t_lite.model.transformer import Features, Transformer


class Ensemble:
    """Averages the probabilities of models; a search takes it for a model.

    The memory and the cache are tuples of those of the models.

    Args:
      models: with weights and equal vocabularies; their sizes may differ.

    Raises:
      UsageError: there is none, or the vocabularies differ in size.
    """

    def __init__(self, models: Sequence[Transformer]):
        if not models or len({model.vocab_sizes for model in models}) > 1:
            raise UsageError(
                "An ensemble needs models with equal vocabularies; got the "
                f"sizes {[model.vocab_sizes for model in models]}."
            )
        self.models = list(models)
        self.vocab_sizes = self.models[0].vocab_sizes

    @property
    def weights(self) -> list[Any]:
        """The weights of all models."""
        return [weight for model in self.models for weight in model.weights]

    def encode(self, inputs: Tensor) -> tuple[tuple, Tensor]:
        """The memory of each model, and the padding mask [B, S]."""
        encoded = [model.encode(inputs) for model in self.models]
        return tuple(memory for memory, _ in encoded), encoded[0][1]

    def start_decoding(
        self,
        memory: tuple,
        memory_mask: Tensor,
        beam_size: int,
        max_length: int | Tensor,
        coverage: bool = False,
    ) -> tuple:
        """The caches of a search to begin; see `Transformer`."""
        return tuple(
            model.start_decoding(
                part, memory_mask, beam_size, max_length, coverage
            )
            for model, part in zip(self.models, memory, strict=True)
        )

    def decode_step(
        self, ids: Tensor, index: Tensor, cache: tuple
    ) -> tuple[Tensor, tuple]:
        """Log-probabilities float32 [B, K, V] of the next token, the caches."""
        steps = [
            model.decode_step(ids, index, part)
            for model, part in zip(self.models, cache, strict=True)
        ]
        log_probs = _log_mean([ops.log_softmax(logits) for logits, _ in steps])
        return log_probs, tuple(part for _, part in steps)

    def follow_beams(self, cache: tuple, parents: Tensor) -> tuple:
        """The caches after hypothesis k went on from `parents[:, k]`."""
        return tuple(
            model.follow_beams(part, parents)
            for model, part in zip(self.models, cache, strict=True)
        )

    def keep_sentences(self, cache: tuple, rows: Tensor) -> tuple:
        """The caches of the sentences `rows`, int32 [M], only."""
        return tuple(
            model.keep_sentences(part, rows)
            for model, part in zip(self.models, cache, strict=True)
        )

    def coverage(self, cache: tuple) -> Tensor:
        """The mean over models of how much attention each source token got."""
        each = [
            model.coverage(part)
            for model, part in zip(self.models, cache, strict=True)
        ]
        return ops.mean(ops.stack(each), axis=0)

    def token_log_probs(self, features: Features) -> Tensor:
        """Of each target token; see `Transformer.token_log_probs`."""
        return _log_mean(
            [model.token_log_probs(features) for model in self.models]
        )


def _log_mean(log_probs):
    """The logarithm of the mean of some probabilities."""
    return ops.logsumexp(ops.stack(log_probs), axis=0) - ops.log(
        float(len(log_probs))
    )
