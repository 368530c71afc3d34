"""Phrases that must appear: dynamic beam allocation (arXiv:1804.06609).

The hypotheses of a sentence that contain equally many of its required tokens
form a bank, and the beam is divided among the banks. Only `keras.ops`. Shapes
are those of `state`; P phrases of a sentence, W tokenizations of each,
R = P * W, M tokens of the longest.
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
from t2t_lite.decoding.search.selection import (
    TopK,
    best_log_probs,
)
from t2t_lite.decoding.search.state import (
    NEG_INF,
    Candidates,
    SearchState,
    is_possible,
)
from t2t_lite.ops import Tensor, gather_rows, logsumexp


class RequiredPhrases(LogitsProcessor, TopK):
    """A processor and a selector: no hypothesis ends without the phrases.

    A sentence without phrases is searched as with `TopK`.

    Args:
      phrases: int32 [B, P, W, M], maybe START, then tokens, then NO_TOKEN;
        NO_TOKEN only where there is no phrase or no other tokenization. One
        tokenization of a phrase is enough.
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
        """Return those of `TopK` and, in a sentence with phrases, others.

        The others are the next required tokens of each hypothesis, and its
        likeliest token: without it, an unlikely hypothesis could not end.
        """
        if normalizer is None:
            normalizer = logsumexp(logits)
        best = super().candidates(state, logits, normalizer)
        beam_size, vocab_size = ops.shape(logits)[1:]
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
            ops.broadcast_to(parents, ops.shape(ids)),
            ops.maximum(ids, 0),
        )
        flat = (-1, beam_size * ops.shape(ids)[2])
        log_probs, parents, ids = (
            ops.concatenate([some, ops.reshape(more, flat)], axis=1)
            for some, more in zip(best, others, strict=True)
        )
        return Candidates(
            _without_duplicates(log_probs, parents, ids), parents, ids
        )

    def select_live(
        self, state: SearchState, candidates: Candidates, ended: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Select K open candidates from all banks, the fullest bank first.

        Each bank has an equal share of the beam. The remainder goes to the
        fullest banks, then to the likeliest candidates.
        """
        rows = self._rows(state)
        log_probs = ops.where(ended, NEG_INF, candidates.log_probs)
        beam_size = ops.shape(state.live_log_probs)[1]
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
    """The tokenizations of the phrases of the sentences in the batch.

    Attributes:
      lengths: int32 [B, P], tokens of each phrase in its first tokenization;
        0 where there is no phrase.
    """

    def __init__(self, phrases):
        batch_size, phrase_count, tokenizations, most = ops.shape(phrases)
        self.lengths = count(phrases[:, :, 0] >= 0)
        self._groups, self._most = (phrase_count, tokenizations), most
        self._rows = ops.reshape(phrases, (batch_size, -1, most))
        self._row_lengths = count(ops.not_equal(self._rows, NO_TOKEN))
        self._has_start = ops.equal(self._rows[..., 0], START)  # [B, R]

    def contained(self, state):
        """Return which phrases a live hypothesis contains: bool [B, K, P].

        They are looked up in all its tokens, at every step. A phrase that does
        not exist counts as contained.
        """
        batch_size, beam_size, length = ops.shape(state.live_ids)
        # Windows of M tokens; the first one begins with START.
        indices = ops.arange(-1, length, dtype="int32")[:, None]
        indices = indices + ops.arange(self._most, dtype="int32")
        indices = ops.reshape(indices, (-1,))
        tokens = gather_tokens(state.live_ids, indices)
        tokens = ops.where(indices < state.index, tokens, NO_TOKEN)
        tokens = ops.where(indices < 0, START, tokens)
        windows = ops.reshape(
            tokens, (batch_size, beam_size, 1, length + 1, self._most)
        )
        rows = self._rows[:, None, :, None]  # [B, 1, R, 1, M]
        same = ops.logical_or(ops.equal(rows, NO_TOKEN), windows == rows)
        found = ops.any(ops.all(same, axis=-1), axis=-1)
        found = ops.logical_and(found, self._row_lengths[:, None] > 0)
        found = ops.any(self._by_phrase(found), axis=-1)
        return ops.logical_or(found, ops.equal(self.lengths, 0)[:, None])

    def next_tokens(self, state):
        """Return the next token of each missing row: int32 [B, K, R].

        NO_TOKEN stands where a phrase is contained, or where a row for the
        middle of a sentence would begin it although there is a better one.
        """
        matched = self._matched(last_tokens(state, self._most))  # [B, K, R]
        rows = ops.broadcast_to(
            self._rows[:, None], (*ops.shape(matched), self._most)
        )
        wanted = gather_tokens(rows, matched[..., None])[..., 0]
        contained = self.contained(state)[..., None]  # [B, K, P, 1]
        wanted = ops.where(contained, NO_TOKEN, self._by_phrase(wanted))
        starts = self._by_phrase(self._has_start[:, None])
        better = ops.any(starts, axis=-1, keepdims=True)
        too_early = ops.logical_and(better, ops.logical_not(starts))
        too_early = ops.logical_and(too_early, ops.equal(state.index, 0))
        wanted = ops.where(too_early, NO_TOKEN, wanted)
        return ops.reshape(wanted, ops.shape(matched))

    def banks(self, state, candidates):
        """Return the number of required tokens of candidates: int32 [B, C]."""
        newest = gather_rows(
            last_tokens(state, self._most - 1), candidates.parents
        )
        newest = ops.concatenate([newest, candidates.ids[..., None]], axis=2)
        matched = self._matched(newest)  # [B, C, R]
        whole = self._row_lengths[:, None]
        whole = ops.logical_and(ops.equal(matched, whole), whole > 0)
        contained = gather_rows(self.contained(state), candidates.parents)
        contained = ops.logical_or(
            contained, ops.any(self._by_phrase(whole), axis=-1)
        )  # [B, C, P]
        # START is not a token; a phrase begun counts less than a whole one.
        begun = matched - ops.cast(self._has_start[:, None], "int32")
        begun = ops.max(self._by_phrase(ops.maximum(begun, 0)), axis=-1)
        lengths = self.lengths[:, None]
        begun = ops.minimum(begun, lengths - 1)
        return ops.sum(ops.where(contained, lengths, begun), axis=-1)

    def _matched(self, tokens):
        """Return how many tokens of each row are the last: int32 [B, N, R]."""
        sizes = ops.arange(self._most + 1, dtype="int32")
        fits = sizes <= self._row_lengths[:, None, :, None]
        fits = ops.logical_and(begins_with(tokens, self._rows), fits)
        return ops.max(ops.where(fits, sizes, 0), axis=-1)

    def _by_phrase(self, values):
        """Reshape [B, N, R] to [B, N, P, W]."""
        return ops.reshape(values, (*ops.shape(values)[:2], *self._groups))


def _without_duplicates(log_probs, parents, ids):
    """Return log-probabilities [B, C] that are impossible for duplicates."""
    same = ops.logical_and(
        ops.equal(parents[:, :, None], parents[:, None, :]),
        ops.equal(ids[:, :, None], ids[:, None, :]),
    )
    indices = ops.arange(ops.shape(ids)[1])
    earlier = indices[None, :] < indices[:, None]
    duplicate = ops.any(ops.logical_and(same, earlier), axis=-1)
    return ops.where(duplicate, NEG_INF, log_probs)


def _precedes(keys):
    """Return whether column c' comes before row c: bool [B, C, C].

    Args:
      keys: [B, C] each, the most significant first. Larger values come first;
        of equal candidates the first one does.
    """
    indices = ops.arange(ops.shape(keys[0])[1])
    before = indices[None, None, :] < indices[None, :, None]
    for key in reversed(keys):
        mine, other = key[:, :, None], key[:, None, :]
        before = ops.where(ops.equal(mine, other), before, other > mine)
    return before
