"""Selection of candidates: the best ones, or one random sample.

The code uses only `keras.ops`, with static or dynamic shapes. `state` defines
the shapes.
"""

import dataclasses

from keras import ops

from t2t_lite.decoding.search.logits_processors import count
from t2t_lite.decoding.search.scores import NEG_INF
from t2t_lite.decoding.search.state import Candidates, SearchState
from t2t_lite.ops import Tensor, gather_rows, log_normalizer, shape_list, top_k

_MIN_TEMPERATURE = 1e-30


class TopK:
    """Selector of beam search: the likeliest candidates."""

    def candidates(
        self, state: SearchState, logits: Tensor, normalizer: Tensor | None
    ) -> Candidates:
        """Return the 2 K best one-token extensions over all beams.

        Up to K of them may end with EOS, and K must remain live. Greedy search
        needs only the best one.

        Args:
          state: the search before token `state.index` is selected.
          logits: float [B, K, V], after all processors.
          normalizer: float32 [B, K, 1], subtracted from logits to give
            log-probabilities; None: computed from these logits.
        """
        _, beam_size, vocab_size = shape_list(logits)
        wanted = 2 * beam_size if beam_size > 1 else 1
        width = min(wanted, vocab_size)  # candidates of each beam
        log_probs, ids = best_log_probs(
            ops.reshape(logits, (-1, vocab_size)),
            width,
            None if normalizer is None else ops.reshape(normalizer, (-1, 1)),
        )
        # The overall best are among the best of each beam, which avoids a sort
        # over K * V: [B * K, width] -> [B, K, width] -> [B, K * width]
        log_probs = ops.reshape(log_probs, (-1, beam_size, width))
        log_probs = log_probs + state.live_log_probs[:, :, None]
        total = beam_size * width
        log_probs, indices = ops.top_k(
            ops.reshape(log_probs, (-1, total)), min(wanted, total)
        )
        ids = gather_rows(ops.reshape(ids, (-1, total)), indices)
        return Candidates(log_probs, ops.cast(indices // width, "int32"), ids)

    def select_live(
        self, state: SearchState, candidates: Candidates, ended: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Select the next live hypotheses.

        `ended`, bool [B, C], is True if the candidate ends with EOS.

        Returns:
          Log-probabilities and indices of the selected candidates, [B, K].
        """
        log_probs = ops.where(ended, NEG_INF, candidates.log_probs)
        return ops.top_k(log_probs, shape_list(state.live_log_probs)[1])


@dataclasses.dataclass(frozen=True)
class Sample(TopK):
    """Selector of sampling: one random token, for a beam of 1.

    A uniform number selects the token by inverse transform sampling, so a text
    depends only on its own numbers. keras-hub's samplers use one seed for a
    batch, so a text depends on the rest of the batch.
    """

    sample_uniforms: Tensor  # float32 [B, L] in [0, 1), L at least all limits
    temperature: float = 1.0  # divisor of the logits, above 0
    top_k: int = 0  # number of likeliest tokens; 0: all (arXiv:1805.04833)
    # Sample from the likeliest tokens whose probabilities sum to top_p, in
    # (0, 1]; 1: all (arXiv:1904.09751, equation 3).
    top_p: float = 1.0

    def candidates(
        self, state: SearchState, logits: Tensor, normalizer: Tensor | None
    ) -> Candidates:
        """Return one sampled token per sentence, with the model's score."""
        vocab_size = shape_list(logits)[-1]
        logits = ops.cast(logits[:, 0], "float32")
        if normalizer is None:
            normalizer = ops.logsumexp(logits, -1, keepdims=True)[:, None]
        sums = ops.cumsum(self.weights(logits), axis=-1)
        uniforms = ops.take(self.sample_uniforms, state.index, axis=1)
        uniforms = state.select_rows(uniforms)[:, None]
        # The factor keeps rounding from reaching the total.
        threshold = uniforms * sums[:, -1:] * (1 - 1e-6)
        ids = count(sums <= threshold)[:, None]
        ids = ops.minimum(ids, vocab_size - 1)  # [B, 1]
        log_probs = gather_rows(logits, ids) - normalizer[:, 0]
        log_probs = ops.where(log_probs > NEG_INF, log_probs, NEG_INF)
        return Candidates(
            state.live_log_probs + log_probs, ops.zeros_like(ids), ids
        )

    def weights(self, logits: Tensor) -> Tensor:
        """Return unnormalized probabilities of tokens: float32 [B, V]."""
        vocab_size = shape_list(logits)[-1]
        top = ops.max(logits, axis=-1, keepdims=True)
        # A smaller temperature is 0 in float32; the minimum is greedy, too.
        temperature = max(self.temperature, _MIN_TEMPERATURE)
        weights = ops.exp((logits - top) / temperature)
        if self.top_k:
            best, _ = ops.top_k(logits, min(self.top_k, vocab_size))
            weights = ops.where(logits >= best[:, -1:], weights, 0.0)
        if self.top_p < 1:
            best, _ = ops.top_k(weights, vocab_size)
            before = ops.cumsum(best, axis=-1) - best
            total = ops.sum(best, axis=-1, keepdims=True)
            kept = before < self.top_p * total
            lowest = ops.min(ops.where(kept, best, 1.0), axis=-1, keepdims=True)
            weights = ops.where(weights >= lowest, weights, 0.0)
        return weights


def best_log_probs(
    logits: Tensor, width: int, normalizer: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Return the `width` likeliest tokens of each row of logits [R, V].

    Returns:
      Log-probabilities float32 [R, width], best first, and ids int32
      [R, width]. In a row with a NaN, all log-probabilities are NEG_INF. The
      default normalizer [R, 1] is computed from the logits.
    """
    logits = ops.cast(logits, "float32")
    best, ids = top_k(logits, width)
    if normalizer is None:
        normalizer = log_normalizer(logits, best, ids)
    log_probs = best - normalizer
    # This comparison is False for NaN, so NaN becomes NEG_INF, too.
    return ops.where(log_probs > NEG_INF, log_probs, NEG_INF), ids
