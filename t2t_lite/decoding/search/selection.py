"""Selection of candidates: the best ones, or one at random.

Only `keras.ops`, with sizes known or not. Shapes are those of `state`.
"""

import dataclasses

from keras import ops

from t2t_lite.decoding.search.state import (
    NEG_INF,
    Candidates,
    SearchState,
)
from t2t_lite.ops import Tensor, gather_rows, logsumexp, top_k

_LEAST_TEMPERATURE = 1e-30


class TopK:
    """The selector of beam search: the likeliest candidates."""

    def candidates(
        self, state: SearchState, logits: Tensor, normalizer: Tensor | None
    ) -> Candidates:
        """Return the 2 K best one-token extensions over all beams.

        Up to K of them may end with EOS, and K have to remain open. Greedy
        search takes the best one, whatever it is.

        Args:
          state: about to choose token `state.index`.
          logits: float [B, K, V], after all processors.
          normalizer: float32 [B, K, 1], a logit minus it is a log-probability;
            None: that of these logits.
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
        log_probs, indices = ops.top_k(
            ops.reshape(log_probs, (batch_size, total)), min(width, total)
        )
        ids = gather_rows(ops.reshape(ids, (batch_size, total)), indices)
        return Candidates(log_probs, ops.cast(indices // each, "int32"), ids)

    def select_live(
        self, state: SearchState, candidates: Candidates, ended: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return the candidates that stay open, in the order of the result.

        Args:
          state: as before.
          candidates: [B, C].
          ended: bool [B, C], whether the candidate ends with EOS.

        Returns:
          Their log-probabilities and indices, [B, K].
        """
        log_probs = ops.where(ended, NEG_INF, candidates.log_probs)
        return ops.top_k(log_probs, ops.shape(state.live_log_probs)[1])


@dataclasses.dataclass(frozen=True)
class Sample(TopK):
    """The selector of sampling: one token at random, for a beam of 1.

    The token is found where a uniform number falls among the summed
    probabilities, so a text depends on its own numbers only and not on the rest
    of the batch. keras-hub's samplers draw a batch with one seed.

    Attributes:
      sample_uniforms: float32 [B, L] in [0, 1), L at least the largest limit.
      temperature: above 0; logits are divided by it.
      top_k: number of likeliest tokens to draw from; 0: all
        (arXiv:1805.04833).
      top_p: draw from the likeliest tokens whose probabilities sum to this, in
        (0, 1]; 1: all (arXiv:1904.09751, equation 3).
    """

    sample_uniforms: Tensor
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0

    def candidates(
        self, state: SearchState, logits: Tensor, normalizer: Tensor | None
    ) -> Candidates:
        """Return the token drawn for each sentence, with the model's score."""
        vocab_size = ops.shape(logits)[-1]
        logits = ops.cast(logits[:, 0], "float32")
        if normalizer is None:
            normalizer = logsumexp(logits)[:, None]
        sums = ops.cumsum(self.weights(logits), axis=-1)
        sample_uniforms = ops.take(self.sample_uniforms, state.index, axis=1)
        sample_uniforms = state.select_rows(sample_uniforms)[:, None]
        # A little below the total, which rounding must not reach.
        sought = sample_uniforms * sums[:, -1:] * (1 - 1e-6)
        drawn = ops.sum(
            ops.cast(sums <= sought, "int32"), axis=-1, keepdims=True
        )
        drawn = ops.minimum(drawn, vocab_size - 1)  # [B, 1]
        log_probs = gather_rows(logits, drawn) - normalizer[:, 0]
        log_probs = ops.where(log_probs > NEG_INF, log_probs, NEG_INF)
        return Candidates(
            state.live_log_probs + log_probs, ops.zeros_like(drawn), drawn
        )

    def weights(self, logits: Tensor) -> Tensor:
        """Return probabilities of tokens, up to a factor: float32 [B, V]."""
        vocab_size = ops.shape(logits)[-1]
        top = ops.max(logits, axis=-1, keepdims=True)
        # A smaller one would be 0 in float32; this one is greedy as well.
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


def best_log_probs(
    logits: Tensor, width: int, normalizer: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Return the `width` likeliest tokens of each of R rows of logits.

    Args:
      logits: float [R, V].
      width: at most V.
      normalizer: float32 [R, 1]; None: that of these logits.

    Returns:
      Log-probabilities float32 [R, width], best first, and ids int32
      [R, width]. A row that holds a NaN has no possible token.
    """
    logits = ops.cast(logits, "float32")
    best, ids = top_k(logits, width)
    if normalizer is None:
        normalizer = logsumexp(logits, ids[:, :1])
    log_probs = best - normalizer
    # Written so that a NaN becomes impossible, too.
    return ops.where(log_probs > NEG_INF, log_probs, NEG_INF), ids
