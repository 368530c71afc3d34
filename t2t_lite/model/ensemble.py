"""`Ensemble`: joint decoding with several models."""

from collections.abc import Callable, Sequence
from typing import Any

from keras import ops

from t2t_lite.errors import UsageError
from t2t_lite.model.transformer import Features, Transformer
from t2t_lite.ops import Tensor


class Ensemble:
    """Several models with averaged probabilities, for beam search.

    `Transformer` documents the methods; the memory and the cache are tuples
    with one element per model. The models are built and have vocabularies of
    equal sizes.
    """

    def __init__(self, models: Sequence[Transformer]):
        if not models or len({model.vocab_sizes for model in models}) > 1:
            raise UsageError(
                "An ensemble requires models with equal vocabularies; got the "
                f"sizes {[model.vocab_sizes for model in models]}."
            )
        self.models = list(models)
        self.vocab_sizes = self.models[0].vocab_sizes

    @property
    def weights(self) -> list[Any]:
        """The weights of all models."""
        return [weight for model in self.models for weight in model.weights]

    def encode(self, inputs: Tensor) -> tuple[tuple, Tensor]:
        """Return the memory of each model and the padding mask [B, S]."""
        encoded = [model.encode(inputs) for model in self.models]
        return tuple(memory for memory, _ in encoded), encoded[0][1]

    def step_weights(self) -> tuple[Any, ...]:
        """Return the weights of decoding steps of each model."""
        return tuple(model.step_weights() for model in self.models)

    def init_decoding(
        self,
        memory: tuple,
        memory_mask: Tensor,
        beam_size: int,
        max_length: int | Tensor,
        weights: tuple | None = None,
    ) -> tuple[Callable[..., tuple[Tensor, tuple]], tuple]:
        """Return the step function and the initial caches.

        See `Transformer.init_decoding`; a step returns log-probabilities.
        """
        starts = [
            model.init_decoding(part, memory_mask, beam_size, max_length, own)
            for model, part, own in zip(
                self.models, memory, weights or self.step_weights(), strict=True
            )
        ]
        step_fns, caches = zip(*starts, strict=True)

        def decode_step(ids, index, caches):
            steps = [
                step_fn(ids, index, cache)
                for step_fn, cache in zip(step_fns, caches, strict=True)
            ]
            log_probs = [ops.log_softmax(logits) for logits, _ in steps]
            return log_mean_exp(log_probs), tuple(cache for _, cache in steps)

        return decode_step, caches

    def reorder_cache(self, cache: tuple, parents: Tensor) -> tuple:
        """Return the caches if hypothesis k continues `parents[:, k]`."""
        return tuple(Transformer.reorder_cache(x, parents) for x in cache)

    def select_sentences(self, cache: tuple, rows: Tensor) -> tuple:
        """Return the caches of the sentences `rows`, int32 [M]."""
        return tuple(Transformer.select_sentences(x, rows) for x in cache)

    def token_log_probs(self, features: Features) -> Tensor:
        """Return the log-probability of each target token, float32 [B, T]."""
        log_probs = [model.token_log_probs(features) for model in self.models]
        return log_mean_exp(log_probs)


def log_mean_exp(log_probs: Sequence[Tensor]) -> Tensor:
    """Return the log of the mean probability, of float [...] each: [...]."""
    log_sum = ops.logsumexp(ops.stack(log_probs), axis=0)
    return log_sum - ops.log(float(len(log_probs)))
