"""Phrases that must appear: dynamic beam allocation (arXiv:1804.06609).

The hypotheses of a sentence that have met equally many of its required tokens
share a bank, and the beam is divided among the banks. Only `keras.ops`. Shapes
are those of `state`; P phrases a sentence, M tokens of the longest.
"""

import dataclasses
import functools

from keras import ops

from t2t_lite.decoding.search.choice import Best
from t2t_lite.decoding.search.log_probs import (
    IMPOSSIBLE,
    Tensor,
    best_log_probs,
    gather_rows,
    is_possible,
    log_normalizer,
)
from t2t_lite.decoding.search.score_changes import (
    NO_TOKEN,
    Ban,
    recent,
    tokens_at,
)
from t2t_lite.decoding.search.state import Candidates, SearchState


@dataclasses.dataclass(frozen=True)
class Required(Ban, Best):
    """A `ScoreChange` and a `Choice`: no hypothesis ends without the phrases.

    A sentence without phrases is searched as `Best` does.

    Attributes:
      phrases: int32 [B, P, M], NO_TOKEN after the last token, and only that
        where there is no phrase.
      eos_id: the token that ends a hypothesis.
    """

    phrases: Tensor
    eos_id: int

    @functools.cached_property
    def _lengths(self):
        """Int32 [B, P]; 0 where there is no phrase."""
        real = ops.not_equal(self.phrases, NO_TOKEN)
        return ops.sum(ops.cast(real, "int32"), axis=-1)

    def forbidden(self, state: SearchState, logits: Tensor) -> Tensor:
        """EOS, while a phrase is missing."""
        missing = ops.any(ops.logical_not(self._met(state)), axis=-1)
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
        batch_size, beam_size, vocab_size = ops.shape(logits)
        met = self._met(state)  # [B, K, P]
        count = ops.shape(met)[2]
        matched = self._matched(recent(state, ops.shape(self.phrases)[2]))
        phrases = ops.broadcast_to(
            self.phrases[:, None],
            (batch_size, beam_size, *ops.shape(self.phrases)[1:]),
        )
        wanted = tokens_at(phrases, matched[..., None])[..., 0]
        wanted = ops.where(met, NO_TOKEN, wanted)  # [B, K, P]
        _, greedy = best_log_probs(
            ops.reshape(logits, (batch_size * beam_size, vocab_size)), 1
        )
        greedy = ops.reshape(greedy, (batch_size, beam_size, 1))
        has_any = ops.any(self._lengths > 0, axis=-1)[:, None, None]
        greedy = ops.where(has_any, greedy, NO_TOKEN)
        ids = ops.concatenate([wanted, greedy], axis=2)  # [B, K, P + 1]
        log_probs = ops.take_along_axis(logits, ops.maximum(ids, 0), axis=2)
        log_probs = ops.cast(log_probs, "float32") - normalizer
        log_probs = state.live_log_probs[..., None] + log_probs
        real = ops.logical_and(ids >= 0, log_probs > IMPOSSIBLE)
        parents = ops.arange(beam_size, dtype="int32")[None, :, None]
        more = Candidates(
            ops.where(real, log_probs, IMPOSSIBLE),
            ops.broadcast_to(parents, ops.shape(ids)),
            ops.maximum(ids, 0),
        )
        flat = (batch_size, beam_size * (count + 1))
        return _without_copies(
            Candidates(
                *(
                    ops.concatenate([a, ops.reshape(b, flat)], axis=1)
                    for a, b in zip(best, more, strict=True)
                )
            )
        )

    def survivors(
        self, state: SearchState, candidates: Candidates, ended: Tensor
    ) -> tuple[Tensor, Tensor]:
        """K candidates that did not end, from all banks, the fullest first.

        Each bank has an equal share of the beam. What is left over goes to
        the banks that have met most, then to the likeliest.
        """
        log_probs = ops.where(ended, IMPOSSIBLE, candidates.log_probs)
        beam_size = ops.shape(state.live_log_probs)[1]
        banks = ops.where(
            is_possible(log_probs), self._banks(state, candidates), -1
        )
        total = ops.sum(self._lengths, axis=-1, keepdims=True)  # [B, 1]
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

    def _met(self, state):
        """Bool [B, K, P]: phrases that a live hypothesis has, or that are none.

        They are looked for in all its tokens, at every step.
        """
        ids, most = state.live_ids, ops.shape(self.phrases)[2]
        starts = ops.arange(ops.shape(ids)[2], dtype="int32")
        places = starts[:, None] + ops.arange(most, dtype="int32")  # [L, M]
        places = ops.reshape(places, (-1,))
        windows = ops.where(places < state.index, tokens_at(ids, places), -2)
        batch_size, beam_size, _ = ops.shape(ids)
        windows = ops.reshape(windows, (batch_size, beam_size, 1, -1, most))
        phrases = self.phrases[:, None, :, None]  # [B, 1, P, 1, M]
        same = ops.logical_or(
            ops.equal(phrases, NO_TOKEN), ops.equal(windows, phrases)
        )
        found = ops.any(ops.all(same, axis=-1), axis=-1)
        return ops.logical_or(found, ops.equal(self._lengths, 0)[:, None])

    def _matched(self, newest):
        """How much of each phrase the newest tokens are: int32 [B, N, P].

        Args:
          newest: int32 [B, N, M], of N hypotheses, NO_TOKEN before the first.
        """
        most = ops.shape(newest)[2]
        counts = ops.arange(1, most + 1, dtype="int32")  # [M]
        places = ops.arange(most, dtype="int32")
        # The last n tokens, from the left: [M, M] places, n - 1 a row.
        lasts = places + most - counts[:, None]
        batch_size, others, _ = ops.shape(newest)
        lasts = ops.reshape(
            tokens_at(newest, ops.reshape(lasts, (-1,))),
            (batch_size, others, 1, most, most),
        )
        phrases = self.phrases[:, None, :, None]  # [B, 1, P, 1, M]
        same = ops.logical_or(
            ops.equal(lasts, phrases), places >= counts[:, None]
        )
        fits = counts <= self._lengths[:, None, :, None]  # [B, 1, P, M]
        fits = ops.logical_and(ops.all(same, axis=-1), fits)
        return ops.max(ops.where(fits, counts, 0), axis=-1)

    def _banks(self, state, candidates):
        """How many required tokens each candidate has: int32 [B, C]."""
        parents, ids = candidates.parents, candidates.ids
        met = gather_rows(self._met(state), parents)  # [B, C, P]
        newest = recent(state, ops.shape(self.phrases)[2] - 1)
        newest = ops.concatenate(
            [gather_rows(newest, parents), ids[..., None]], axis=2
        )
        matched = self._matched(newest)
        lengths = self._lengths[:, None]
        met = ops.logical_or(met, ops.equal(matched, lengths))
        begun = ops.max(ops.where(met, 0, matched), axis=-1)
        return begun + ops.sum(ops.where(met, lengths, 0), axis=-1)


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
