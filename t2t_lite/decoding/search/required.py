"""Phrases that must appear: dynamic beam allocation (arXiv:1804.06609).

The hypotheses of a sentence that have met equally many of its required tokens
share a bank, and the beam is divided among the banks. Only `keras.ops`. Shapes
are those of `state`; P phrases a sentence, W ways to write each, M tokens of
the longest.
"""

import copy
from typing import Self

from keras import ops

from t2t_lite.decoding.search.choice import Best
from t2t_lite.decoding.search.log_probs import (
    IMPOSSIBLE,
    best_log_probs,
    is_possible,
    log_normalizer,
)
from t2t_lite.decoding.search.score_changes import (
    NO_TOKEN,
    START,
    Ban,
    recent,
    tokens_at,
)
from t2t_lite.decoding.search.state import Candidates, SearchState
from t2t_lite.model.layers.backend import Tensor, gather_rows

# A token that is still to come; no phrase has it.
_LATER = -3


class Required(Ban, Best):
    """A `ScoreChange` and a `Choice`: no hypothesis ends without the phrases.

    A sentence without phrases is searched as `Best` does.

    Args:
      phrases: int32 [B, P, W, M], maybe START before the tokens, NO_TOKEN
        behind, and only that where there is no phrase or no other way. One of
        the ways is enough.
      eos_id: the token that ends a hypothesis.
    """

    def __init__(self, phrases: Tensor, eos_id: int):
        self.eos_id = eos_id
        batch_size, count, ways, most = ops.shape(phrases)
        self._phrases = (count, ways)
        # [B, P * W, M]
        self._ways = ops.reshape(phrases, (batch_size, count * ways, most))
        self._way_lengths = _count(ops.not_equal(self._ways, NO_TOKEN))
        # Where there is a way to begin with, the others are for later.
        starts = ops.equal(phrases[..., 0], START)
        later = ops.logical_and(
            ops.any(starts, axis=-1, keepdims=True), ops.logical_not(starts)
        )
        self._later = ops.reshape(later, (batch_size, 1, count * ways))
        # Tokens of each phrase in its first way: [B, P]; 0 for none.
        self._lengths = _count(phrases[:, :, 0] >= 0)

    def forbidden(self, state: SearchState, logits: Tensor) -> Tensor:
        """EOS, while a phrase is missing."""
        met = self._of_these(state)._met(state)
        missing = ops.any(ops.logical_not(met), axis=-1)
        vocabulary = ops.arange(ops.shape(logits)[-1])
        return ops.logical_and(
            missing[..., None], ops.equal(vocabulary, self.eos_id)
        )

    def candidates(
        self, state: SearchState, logits: Tensor, normalizer: Tensor | None
    ) -> Candidates:
        """Those of `Best`, and in a sentence with phrases others, unsorted.

        Of each hypothesis these are its next required tokens and its best
        one: else one that the model finds unlikely could not even end.
        """
        if normalizer is None:
            normalizer = log_normalizer(logits)
        best = super().candidates(state, logits, normalizer)
        more = self._of_these(state)._more(state, logits, normalizer)
        return _without_copies(
            Candidates(
                *(
                    ops.concatenate([a, b], axis=1)
                    for a, b in zip(best, more, strict=True)
                )
            )
        )

    def _more(self, state, logits, normalizer):
        """The candidates that `Best` may not have: [B, K * (P * W + 1)]."""
        batch_size, beam_size, vocab_size = ops.shape(logits)
        met = self._met(state)  # [B, K, P]
        matched = self._matched(recent(state, ops.shape(self._ways)[2]))
        ways = ops.broadcast_to(
            self._ways[:, None],
            (batch_size, beam_size, *ops.shape(self._ways)[1:]),
        )
        wanted = tokens_at(ways, matched[..., None])  # [B, K, P * W, 1]
        wanted = ops.reshape(wanted, (*ops.shape(met), -1))
        wanted = ops.where(met[..., None], NO_TOKEN, wanted)
        wanted = ops.reshape(wanted, (batch_size, beam_size, -1))
        too_early = ops.logical_and(self._later, ops.equal(state.index, 0))
        wanted = ops.where(too_early, NO_TOKEN, wanted)
        _, greedy = best_log_probs(
            ops.reshape(logits, (batch_size * beam_size, vocab_size)), 1
        )
        greedy = ops.reshape(greedy, (batch_size, beam_size, 1))
        has_any = ops.any(self._lengths > 0, axis=-1)[:, None, None]
        greedy = ops.where(has_any, greedy, NO_TOKEN)
        ids = ops.concatenate([wanted, greedy], axis=2)  # [B, K, P * W + 1]
        log_probs = ops.take_along_axis(logits, ops.maximum(ids, 0), axis=2)
        log_probs = ops.cast(log_probs, "float32") - normalizer
        log_probs = state.live_log_probs[..., None] + log_probs
        real = ops.logical_and(ids >= 0, log_probs > IMPOSSIBLE)
        parents = ops.arange(beam_size, dtype="int32")[None, :, None]
        flat = (batch_size, beam_size * ops.shape(ids)[2])
        return Candidates(
            ops.reshape(ops.where(real, log_probs, IMPOSSIBLE), flat),
            ops.reshape(ops.broadcast_to(parents, ops.shape(ids)), flat),
            ops.reshape(ops.maximum(ids, 0), flat),
        )

    def survivors(
        self, state: SearchState, candidates: Candidates, ended: Tensor
    ) -> tuple[Tensor, Tensor]:
        """K candidates that did not end, from all banks, the fullest first.

        Each bank has an equal share of the beam. What is left over goes to
        the banks that have met most, then to the likeliest.
        """
        these = self._of_these(state)
        log_probs = ops.where(ended, IMPOSSIBLE, candidates.log_probs)
        beam_size = ops.shape(state.live_log_probs)[1]
        banks = ops.where(
            is_possible(log_probs), these._banks(state, candidates), -1
        )
        total = ops.sum(these._lengths, axis=-1, keepdims=True)  # [B, 1]
        share = beam_size // (total + 1)
        # [B, C, C]: whether the candidate of a column is the better one.
        better = _precedes((log_probs,))
        same = ops.equal(banks[:, :, None], banks[:, None, :])
        rank = _count(ops.logical_and(better, same))
        in_share = ops.cast(rank < share, "int32")
        order = _count(_precedes((in_share, banks, log_probs)))
        chosen = ops.cast(order < beam_size, "int32")
        order = _count(_precedes((chosen, banks, log_probs)))
        _, places = ops.top_k(-order, beam_size)
        return gather_rows(log_probs, places), places

    def _of_these(self, state: SearchState) -> Self:
        """The same for the sentences that are still here."""
        these = copy.copy(self)
        these._ways = state.these(self._ways)
        these._way_lengths = state.these(self._way_lengths)
        these._later = state.these(self._later)
        these._lengths = state.these(self._lengths)
        return these

    def _met(self, state):
        """Bool [B, K, P]: phrases that a live hypothesis has, or that are none.

        They are looked for in all its tokens, at every step.
        """
        ids, most = state.live_ids, ops.shape(self._ways)[2]
        batch_size, beam_size, length = ops.shape(ids)
        # Windows of M tokens; the first one begins before the hypothesis.
        starts = ops.arange(-1, length, dtype="int32")
        places = starts[:, None] + ops.arange(most, dtype="int32")
        places = ops.reshape(places, (-1,))
        tokens = ops.where(places < state.index, tokens_at(ids, places), _LATER)
        tokens = ops.where(places < 0, START, tokens)
        windows = ops.reshape(tokens, (batch_size, beam_size, 1, -1, most))
        ways = self._ways[:, None, :, None]  # [B, 1, P * W, 1, M]
        same = ops.logical_or(ops.equal(ways, NO_TOKEN), windows == ways)
        found = ops.any(ops.all(same, axis=-1), axis=-1)
        real = self._way_lengths[:, None] > 0
        found = self._by_phrase(ops.logical_and(found, real))
        return ops.logical_or(
            ops.any(found, axis=-1), ops.equal(self._lengths, 0)[:, None]
        )

    def _by_phrase(self, values):
        """[B, N, P * W] as [B, N, P, W]."""
        batch_size, others, _ = ops.shape(values)
        return ops.reshape(values, (batch_size, others, *self._phrases))

    def _matched(self, newest):
        """How much of each way the newest tokens are: int32 [B, N, P * W].

        Args:
          newest: int32 [B, N, M], of N hypotheses, NO_TOKEN before the first.
        """
        most = ops.shape(newest)[2]
        counts = ops.arange(1, most + 1, dtype="int32")  # [M]
        places = ops.arange(most, dtype="int32")
        # The last n tokens, from the left: [M, M] places, n - 1 a row.
        lasts = places + most - counts[:, None]
        batch_size, others, _ = ops.shape(newest)
        newest = ops.where(ops.equal(newest, NO_TOKEN), START, newest)
        lasts = ops.reshape(
            tokens_at(newest, ops.reshape(lasts, (-1,))),
            (batch_size, others, 1, most, most),
        )
        ways = self._ways[:, None, :, None]  # [B, 1, P * W, 1, M]
        same = ops.logical_or(lasts == ways, places >= counts[:, None])
        lengths = self._way_lengths[:, None, :, None]
        fits = counts <= lengths  # [B, 1, P * W, M]
        fits = ops.logical_and(ops.all(same, axis=-1), fits)
        return ops.max(ops.where(fits, counts, 0), axis=-1)

    def _banks(self, state, candidates):
        """How many required tokens each candidate has: int32 [B, C]."""
        parents, ids = candidates.parents, candidates.ids
        newest = recent(state, ops.shape(self._ways)[2] - 1)
        newest = ops.concatenate(
            [gather_rows(newest, parents), ids[..., None]], axis=2
        )
        matched = self._matched(newest)  # [B, C, P * W]
        whole = self._way_lengths[:, None]
        ended = ops.logical_and(ops.equal(matched, whole), whole > 0)
        met = gather_rows(self._met(state), parents)  # [B, C, P]
        met = ops.logical_or(met, ops.any(self._by_phrase(ended), axis=-1))
        # A start is no token; what is begun is less than what is met.
        starts = ops.equal(self._ways[:, None, :, 0], START)
        begun = ops.maximum(matched - ops.cast(starts, "int32"), 0)
        lengths = self._lengths[:, None]
        begun = ops.max(self._by_phrase(begun), axis=-1)
        begun = ops.where(met, 0, ops.minimum(begun, lengths - 1))
        met = ops.where(met, lengths, 0)
        return ops.max(begun, axis=-1) + ops.sum(met, axis=-1)


def _without_copies(candidates):
    """The candidates, of which equal ones count once."""
    log_probs, parents, ids = candidates
    same = ops.logical_and(
        ops.equal(parents[:, :, None], parents[:, None, :]),
        ops.equal(ids[:, :, None], ids[:, None, :]),
    )
    places = ops.arange(ops.shape(ids)[1])
    earlier = places[None, :] < places[:, None]
    copied = ops.any(ops.logical_and(same, earlier), axis=-1)
    return Candidates(ops.where(copied, IMPOSSIBLE, log_probs), parents, ids)


def _precedes(keys):
    """Bool [B, C, C]: whether column c' comes before row c.

    Args:
      keys: [B, C] each; the first one counts most, larger comes first, and of
        equal ones the one that stands first.
    """
    places = ops.arange(ops.shape(keys[0])[1])
    before = places[None, None, :] < places[None, :, None]
    for key in reversed(keys):
        mine, other = key[:, :, None], key[:, None, :]
        before = ops.where(ops.equal(mine, other), before, other > mine)
    return before


def _count(bits):
    """How many are true in the last axis: int32."""
    return ops.sum(ops.cast(bits, "int32"), axis=-1)
