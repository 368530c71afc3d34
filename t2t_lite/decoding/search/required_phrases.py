"""Required phrases: dynamic beam allocation (arXiv:1804.06609).

The hypotheses of a sentence that contain the same number of required tokens
form a bank; the beam is divided among the banks. The code uses only
`keras.ops`. `state` defines the shapes; P phrases per sentence, W tokenizations
of each, R = P * W rows, M tokens of the longest.
"""

from keras import ops

from t2t_lite.decoding.search.logits_processors import (
    NO_TOKEN,
    START,
    LogitsProcessor,
    begins_with,
    count,
    gather_tokens,
    last_tokens,
)
from t2t_lite.decoding.search.scores import NEG_INF, is_possible
from t2t_lite.decoding.search.selection import TopK, best_log_probs
from t2t_lite.decoding.search.state import Candidates, SearchState
from t2t_lite.ops import Tensor, gather_rows, logsumexp, shape_list


class RequiredPhrases(LogitsProcessor, TopK):
    """Processor and selector that require phrases in each hypothesis.

    A sentence without phrases is searched as with `TopK`.

    Args:
      phrases: int32 [B, P, W, M]: optionally START, then tokens, then NO_TOKEN;
        only NO_TOKEN for a phrase or tokenization that does not exist. A
        hypothesis needs one tokenization of each phrase.
      eos_id: the token that ends a hypothesis.
    """

    def __init__(self, phrases: Tensor, eos_id: int):
        self._phrases = phrases
        self._eos_id = eos_id

    def mask(self, state: SearchState, vocab_size: int) -> Tensor:
        """Forbid EOS while a phrase is missing."""
        contained = self._rows(state).contained(state)
        missing = ops.any(ops.logical_not(contained), axis=-1)
        is_eos = ops.equal(ops.arange(vocab_size), self._eos_id)
        return ops.logical_and(missing[..., None], is_eos)

    def candidates(
        self, state: SearchState, logits: Tensor, normalizer: Tensor | None
    ) -> Candidates:
        """Add required tokens to the candidates of `TopK`.

        If a sentence has phrases, its candidates include the next required
        tokens of each hypothesis. They also include the likeliest token of each
        hypothesis; without it, an unlikely hypothesis could not end.
        """
        if normalizer is None:
            normalizer = logsumexp(logits)
        best = super().candidates(state, logits, normalizer)
        beam_size, vocab_size = shape_list(logits)[1:]
        rows = self._rows(state)
        _, likeliest = best_log_probs(ops.reshape(logits, (-1, vocab_size)), 1)
        likeliest = ops.reshape(likeliest, (-1, beam_size, 1))
        has_any = ops.any(rows.lengths > 0, axis=-1)[:, None, None]
        ids = ops.concatenate(
            [rows.next_tokens(state), ops.where(has_any, likeliest, NO_TOKEN)],
            axis=2,
        )  # [B, K, R + 1]
        log_probs = ops.take_along_axis(logits, ops.maximum(ids, 0), axis=2)
        log_probs = ops.cast(log_probs, "float32") - normalizer
        log_probs = state.live_log_probs[..., None] + log_probs
        real = ops.logical_and(ids >= 0, log_probs > NEG_INF)
        parents = ops.arange(beam_size, dtype="int32")[None, :, None]
        others = (
            ops.where(real, log_probs, NEG_INF),
            ops.broadcast_to(parents, shape_list(ids)),
            ops.maximum(ids, 0),
        )
        flat = (-1, beam_size * shape_list(ids)[2])  # [B, K, n] -> [B, K * n]
        log_probs, parents, ids = (
            ops.concatenate([own, ops.reshape(added, flat)], axis=1)
            for own, added in zip(best, others, strict=True)
        )
        return Candidates(
            _without_duplicates(log_probs, parents, ids), parents, ids
        )

    def select_live(
        self, state: SearchState, candidates: Candidates, ended: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Select K candidates without EOS from all banks, fullest bank first.

        Each bank has an equal share of the beam. The remainder goes to the
        fullest banks, then to the likeliest candidates.
        """
        rows = self._rows(state)
        log_probs = ops.where(ended, NEG_INF, candidates.log_probs)
        beam_size = shape_list(state.live_log_probs)[1]
        banks = rows.banks(state, candidates)
        banks = ops.where(is_possible(log_probs), banks, -1)
        total = ops.sum(rows.lengths, axis=-1, keepdims=True)  # [B, 1]
        share = beam_size // (total + 1)
        same = ops.equal(banks[:, :, None], banks[:, None, :])
        rank = count(ops.logical_and(_precedes((log_probs,)), same))
        in_share = ops.cast(rank < share, "int32")
        order = count(_precedes((in_share, banks, log_probs)))
        chosen = ops.cast(order < beam_size, "int32")
        order = count(_precedes((chosen, banks, log_probs)))
        _, indices = ops.top_k(-order, beam_size)
        return gather_rows(log_probs, indices), indices

    def _rows(self, state):
        return _Rows(state.select_rows(self._phrases))


class _Rows:
    """Tokenizations of the phrases of all sentences in the batch.

    Attributes:
      lengths: int32 [B, P], number of tokens of each phrase in its first
        tokenization; 0 for a phrase that does not exist.
    """

    def __init__(self, phrases):
        batch_size, num_phrases, num_tokenizations, size = shape_list(phrases)
        self.lengths = count(phrases[:, :, 0] >= 0)
        self._groups, self._size = (num_phrases, num_tokenizations), size
        # [B, P, W, M] -> [B, R, M]
        self._rows = ops.reshape(phrases, (batch_size, -1, size))
        self._row_lengths = count(ops.not_equal(self._rows, NO_TOKEN))
        self._has_start = ops.equal(self._rows[..., 0], START)  # [B, R]

    def contained(self, state):
        """Search all tokens of live hypotheses for the phrases: bool [B, K, P].

        A phrase that does not exist counts as contained.
        """
        batch_size, beam_size, length = shape_list(state.live_ids)
        # Windows of M tokens; the first one begins with START.
        indices = ops.arange(-1, length, dtype="int32")[:, None]
        indices = indices + ops.arange(self._size, dtype="int32")
        indices = ops.reshape(indices, (-1,))
        tokens = gather_tokens(state.live_ids, indices)
        tokens = ops.where(indices < state.index, tokens, NO_TOKEN)
        tokens = ops.where(indices < 0, START, tokens)
        windows = ops.reshape(
            tokens, (batch_size, beam_size, 1, length + 1, self._size)
        )
        rows = self._rows[:, None, :, None]  # [B, 1, R, 1, M]
        same = ops.logical_or(ops.equal(rows, NO_TOKEN), windows == rows)
        matches = ops.any(ops.all(same, axis=-1), axis=-1)
        matches = ops.logical_and(matches, self._row_lengths[:, None] > 0)
        matches = ops.any(self._by_phrase(matches), axis=-1)
        return ops.logical_or(matches, ops.equal(self.lengths, 0)[:, None])

    def next_tokens(self, state):
        """Return the next token of each row: int32 [B, K, R].

        NO_TOKEN if the phrase is contained. At index 0 also NO_TOKEN for rows
        without START, if the phrase has a row with START.
        """
        matched = self._matched(last_tokens(state, self._size))  # [B, K, R]
        rows = ops.broadcast_to(
            self._rows[:, None], (*shape_list(matched), self._size)
        )
        ids = gather_tokens(rows, matched[..., None])[..., 0]
        contained = self.contained(state)[..., None]  # [B, K, P, 1]
        ids = ops.where(contained, NO_TOKEN, self._by_phrase(ids))
        starts = self._by_phrase(self._has_start[:, None])
        can_start = ops.any(starts, axis=-1, keepdims=True)
        too_early = ops.logical_and(can_start, ops.logical_not(starts))
        too_early = ops.logical_and(too_early, ops.equal(state.index, 0))
        ids = ops.where(too_early, NO_TOKEN, ids)
        return ops.reshape(ids, shape_list(matched))  # -> [B, K, R]

    def banks(self, state, candidates):
        """Count the required tokens of candidates: int32 [B, C]."""
        newest = last_tokens(state, self._size - 1)
        newest = gather_rows(newest, candidates.parents)
        newest = ops.concatenate([newest, candidates.ids[..., None]], axis=2)
        matched = self._matched(newest)  # [B, C, R]
        lengths = self._row_lengths[:, None]
        complete = ops.logical_and(ops.equal(matched, lengths), lengths > 0)
        contained = gather_rows(self.contained(state), candidates.parents)
        complete = ops.any(self._by_phrase(complete), axis=-1)
        contained = ops.logical_or(contained, complete)  # [B, C, P]
        # START is not a token; an incomplete phrase counts less than a complete
        # one.
        begun = matched - ops.cast(self._has_start[:, None], "int32")
        begun = ops.max(self._by_phrase(ops.maximum(begun, 0)), axis=-1)
        lengths = self.lengths[:, None]
        begun = ops.minimum(begun, lengths - 1)
        return ops.sum(ops.where(contained, lengths, begun), axis=-1)

    def _matched(self, tokens):
        """Match row starts with last tokens; return match lengths [B, N, R]."""
        sizes = ops.arange(self._size + 1, dtype="int32")
        fits = sizes <= self._row_lengths[:, None, :, None]
        fits = ops.logical_and(begins_with(tokens, self._rows), fits)
        return ops.max(ops.where(fits, sizes, 0), axis=-1)

    def _by_phrase(self, values):
        """Reshape [B, N, R] to [B, N, P, W]."""
        return ops.reshape(values, (*shape_list(values)[:2], *self._groups))


def _without_duplicates(log_probs, parents, ids):
    """Set log-probabilities [B, C] of duplicate candidates to NEG_INF."""
    same = ops.logical_and(
        ops.equal(parents[:, :, None], parents[:, None, :]),
        ops.equal(ids[:, :, None], ids[:, None, :]),
    )
    indices = ops.arange(shape_list(ids)[1])
    earlier = indices[None, :] < indices[:, None]
    duplicate = ops.any(ops.logical_and(same, earlier), axis=-1)
    return ops.where(duplicate, NEG_INF, log_probs)


def _precedes(keys):
    """Return whether column c' precedes row c in sorted order: bool [B, C, C].

    Args:
      keys: sort keys [B, C], most significant first. The order is descending;
        equal candidates keep their order.
    """
    indices = ops.arange(shape_list(keys[0])[1])
    before = indices[None, None, :] < indices[None, :, None]
    for key in reversed(keys):
        mine, other = key[:, :, None], key[:, None, :]
        before = ops.where(ops.equal(mine, other), before, other > mine)
    return before
