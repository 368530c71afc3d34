"""Rules by which a search chooses: the best candidates, or one by chance.

Only `keras.ops`. Shapes are those of `state`.
"""

import dataclasses

from keras import ops

from t2t_lite.decoding.search.log_probs import (
    IMPOSSIBLE,
    best_log_probs,
    log_normalizer,
)
from t2t_lite.decoding.search.state import Candidates, SearchState
from t2t_lite.model.layers.backend import Tensor, gather_rows

_LEAST_TEMPERATURE = 1e-30


class Best:
    """The `Choice` of beam search: the likeliest candidates."""

    def candidates(
        self, state: SearchState, logits: Tensor, normalizer: Tensor | None
    ) -> Candidates:
        """The 2 K best one-token extensions over all beams of a sentence.

        Two a beam, since up to K of them may end with EOS, and K have to go
        on. Greedy search takes the best one, whatever it is.
        """
        batch_size, beam_size, vocab_size = ops.shape(logits)
        rows = batch_size * beam_size
        width = 2 * beam_size if beam_size > 1 else 1
        each = min(width, vocab_size)
        log_probs, ids = best_log_probs(
            ops.reshape(logits, (rows, vocab_size)),
            each,
            None if normalizer is None else ops.reshape(normalizer, (rows, 1)),
        )
        # The best of all beams are among the best of each: [B * K, each] ->
        # [B, K * each], and never a sort over K * V.
        log_probs = state.live_log_probs[:, :, None] + ops.reshape(
            log_probs, (batch_size, beam_size, each)
        )
        total = beam_size * each
        log_probs, places = ops.top_k(
            ops.reshape(log_probs, (batch_size, total)), min(width, total)
        )
        ids = gather_rows(ops.reshape(ids, (batch_size, total)), places)
        return Candidates(log_probs, ops.cast(places // each, "int32"), ids)

    def survivors(
        self, state: SearchState, candidates: Candidates, ended: Tensor
    ) -> tuple[Tensor, Tensor]:
        """The K best of those that did not end."""
        open_ones = ops.where(ended, IMPOSSIBLE, candidates.log_probs)
        return ops.top_k(open_ones, ops.shape(state.live_log_probs)[1])


@dataclasses.dataclass(frozen=True)
class Sample(Best):
    """The `Choice` of sampling: one token by chance, for a beam of 1.

    A token is found where a uniform number falls among the summed
    probabilities. So a text depends on its own numbers alone, whatever is
    sampled beside it. keras-hub's samplers draw a batch with one seed.

    Attributes:
      uniforms: float32 [B, L] in [0, 1), L at least the largest limit.
      temperature: above 0; logits are divided by it.
      top_k: only the so many likeliest tokens may be drawn; 0: all
        (arXiv:1805.04833).
      top_p: only the likeliest tokens whose probabilities sum to this may be
        drawn, in (0, 1]; 1: all (arXiv:1904.09751, equation 3).
    """

    uniforms: Tensor
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0

    def candidates(
        self, state: SearchState, logits: Tensor, normalizer: Tensor | None
    ) -> Candidates:
        """The token drawn for each sentence; its score is the model's."""
        batch_size, beam_size, vocab_size = ops.shape(logits)
        if beam_size != 1:
            raise ValueError(f"Sampling needs a beam of 1; got {beam_size}.")
        logits = ops.cast(logits[:, 0], "float32")
        if normalizer is None:
            normalizer = log_normalizer(logits)[:, None]
        drawn = self._draw(logits, state)
        log_probs = gather_rows(logits, drawn) - normalizer[:, 0]
        log_probs = ops.where(log_probs > IMPOSSIBLE, log_probs, IMPOSSIBLE)
        return Candidates(
            state.live_log_probs + log_probs, ops.zeros_like(drawn), drawn
        )

    def _draw(self, logits, state):
        """A token by chance for each row of logits: int32 [B, 1]."""
        weights = self.weights(logits)
        sums = ops.cumsum(weights, axis=-1)
        uniform = ops.take(self.uniforms, state.index, axis=1)
        uniform = state.these(uniform)[:, None]
        # A little below the total, which rounding must not reach.
        sought = uniform * sums[:, -1:] * (1 - 1e-6)
        below = ops.sum(
            ops.cast(sums <= sought, "int32"), axis=-1, keepdims=True
        )
        return ops.minimum(below, ops.shape(logits)[-1] - 1)

    def weights(self, logits: Tensor) -> Tensor:
        """How likely each token is drawn, up to a factor: float32 [B, V]."""
        vocab_size = ops.shape(logits)[-1]
        top = ops.max(logits, axis=-1, keepdims=True)
        # Less than the least would be 0 in float32; it is greedy as well.
        temperature = max(self.temperature, _LEAST_TEMPERATURE)
        weights = ops.exp((logits - top) / temperature)
        if self.top_k:
            best, _ = ops.top_k(logits, min(self.top_k, vocab_size))
            weights = ops.where(logits >= best[:, -1:], weights, 0.0)
        if self.top_p < 1:
            best, _ = ops.top_k(weights, vocab_size)
            before = ops.cumsum(best, axis=-1) - best
            total = ops.sum(best, axis=-1, keepdims=True)
            kept = before < self.top_p * total
            least = ops.min(ops.where(kept, best, 1.0), axis=-1, keepdims=True)
            weights = ops.where(weights >= least, weights, 0.0)
        return weights
