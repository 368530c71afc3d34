"""Logits processors: search options that mask tokens.

The allowed tokens keep the model's log-probabilities. The code uses only
`keras.ops`. `state` defines the shapes; P phrases per sentence, M tokens of the
longest phrase.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

from keras import ops

from t2t_lite.decoding.search.scores import NEG_INF
from t2t_lite.decoding.search.state import SearchState
from t2t_lite.ops import Tensor, shape_list

# Padding of rows of tokens.
NO_TOKEN = -1
# Precedes a hypothesis; a phrase with START matches only at the start.
START = -2


class LogitsProcessor:
    """Changes the logits of the next tokens before candidates are selected.

    Completed sentences may leave the batch, so a processor reads its data of
    each sentence with `SearchState.select_rows`. A subclass implements `mask`,
    or all three methods.
    """

    # Compute log-probabilities from the new logits, not from the model's.
    renormalizes = False

    def start(self, batch_size: int | Tensor, beam_size: int) -> Any:
        """Return the first own state: tensors [B, K, ...], one per beam."""
        return ()

    def process(
        self, logits: Tensor, state: SearchState, own_state: Any
    ) -> tuple[Tensor, Any]:
        """Return the new logits and the next own state.

        Args:
          logits: float [B, K, V].
          state: the search before token `state.index` is selected.
          own_state: from `start` or the last step, before `state.last_ids`.
        """
        mask = self.mask(state, shape_list(logits)[-1])
        return mask_logits(logits, mask), own_state

    def mask(self, state: SearchState, vocab_size: int) -> Tensor:
        """Return the mask of forbidden tokens: bool, broadcast to [B, K, V]."""
        raise NotImplementedError


def mask_logits(logits: Tensor, mask: Tensor) -> Tensor:
    """Set logits [B, K, V] to NEG_INF where the mask is true."""
    return ops.where(mask, ops.cast(NEG_INF, logits.dtype), logits)


@dataclasses.dataclass(frozen=True)
class Suppress(LogitsProcessor):
    """Forbids the tokens `ids`, at all positions or before index `until`."""

    ids: Sequence[int]
    until: int | None = None

    def mask(self, state: SearchState, vocab_size: int) -> Tensor:
        vocabulary = ops.arange(vocab_size, dtype="int32")
        ids = ops.convert_to_tensor(list(self.ids), "int32")
        mask = ops.any(ops.equal(vocabulary[:, None], ids), axis=-1)
        if self.until is None:
            return mask
        return ops.logical_and(mask, state.index < self.until)


@dataclasses.dataclass(frozen=True)
class NoRepeat(LogitsProcessor):
    """Forbids repeated n-grams of `size` tokens (arXiv:1705.04304)."""

    size: int

    def mask(self, state: SearchState, vocab_size: int) -> Tensor:
        ids, length = state.live_ids, shape_list(state.live_ids)[-1]
        newest = last_tokens(state, self.size - 1)  # [B, K, n - 1]
        ends = ops.arange(length, dtype="int32")  # last index of an n-gram
        repeats = ops.logical_and(ends >= self.size - 1, ends < state.index)
        repeats = ops.broadcast_to(repeats, shape_list(ids))
        for n in range(self.size - 1):
            nth = ops.maximum(ends - (self.size - 1) + n, 0)
            same = ops.equal(
                ops.take(ids, nth, axis=-1), newest[..., n : n + 1]
            )
            repeats = ops.logical_and(repeats, same)
        return _mask_of_ids(ids, repeats, vocab_size)


@dataclasses.dataclass(frozen=True)
class BadPhrases(LogitsProcessor):
    """Forbids the last token of a phrase after its other tokens."""

    # int32 [B, P, M]: optionally START, then at least one token, then NO_TOKEN;
    # only NO_TOKEN for a phrase that does not exist.
    phrases: Tensor

    def mask(self, state: SearchState, vocab_size: int) -> Tensor:
        phrases = state.select_rows(self.phrases)
        size = shape_list(phrases)[2]
        ends = count(ops.not_equal(phrases, NO_TOKEN))[..., None] - 1
        is_last = ops.equal(ops.arange(size, dtype="int32"), ends)  # [B, P, M]
        # True if the newest n tokens are the first n of the phrase, n < M.
        begun = begins_with(last_tokens(state, size - 1), phrases)
        follows = ops.any(ops.logical_and(begun, is_last[:, None]), axis=-1)
        ids = ops.max(ops.where(is_last, phrases, NO_TOKEN), axis=-1)
        ids = ops.broadcast_to(ids[:, None], shape_list(follows))  # [B, K, P]
        return _mask_of_ids(ids, follows, vocab_size)


@dataclasses.dataclass(frozen=True)
class ForcedPrefix(LogitsProcessor):
    """Forces hypotheses to begin with given tokens."""

    prefixes: Tensor  # int32 [B, M], then NO_TOKEN
    others: Sequence[LogitsProcessor] = ()  # apply only after the prefix

    def mask(self, state: SearchState, vocab_size: int) -> Tensor:
        prefixes = state.select_rows(self.prefixes)
        forced = gather_tokens(prefixes, state.index[None, None])[:, None]
        mask = ops.zeros((1, 1, 1), "bool")
        for other in self.others:
            mask = ops.logical_or(mask, other.mask(state, vocab_size))
        vocabulary = ops.arange(vocab_size, dtype="int32")
        return ops.where(
            ops.equal(forced, NO_TOKEN), mask, ops.not_equal(vocabulary, forced)
        )


def last_tokens(state: SearchState, size: int | Tensor) -> Tensor:
    """Return the newest tokens of each live hypothesis: int32 [B, K, size].

    Positions before the first token contain START.
    """
    indices = state.index - size + ops.arange(size, dtype="int32")
    return ops.where(indices < 0, START, gather_tokens(state.live_ids, indices))


def begins_with(tokens: Tensor, phrases: Tensor) -> Tensor:
    """Compare the last n tokens with the first n tokens of phrases.

    Args:
      tokens: int32 [B, N, W].
      phrases: int32 [B, P, M], M at least W.

    Returns:
      bool [B, N, P, W + 1], True if they are equal, for n from 0 to W.
    """
    batch_size, rows, width = shape_list(tokens)
    sizes = ops.arange(width + 1, dtype="int32")[:, None]
    indices = ops.arange(width, dtype="int32")
    # [W + 1, W]: row n has the last n tokens
    lasts = ops.reshape(width - sizes + indices, (-1,))
    lasts = ops.reshape(
        gather_tokens(tokens, lasts), (batch_size, rows, 1, width + 1, width)
    )
    same = ops.equal(lasts, phrases[:, None, :, None, :width])
    return ops.all(ops.logical_or(same, indices >= sizes), axis=-1)


def gather_tokens(rows: Tensor, indices: Tensor) -> Tensor:
    """Return tokens of rows by index, NO_TOKEN for an index out of range.

    Args:
      rows: int32 [..., N].
      indices: int32 [n], the same for all rows, or [..., n].
    """
    size = shape_list(rows)[-1]
    end = ops.full((*shape_list(rows)[:-1], 1), NO_TOKEN, "int32")
    rows = ops.concatenate([rows, end], axis=-1)
    inside = ops.logical_and(indices >= 0, indices < size)
    indices = ops.where(inside, indices, size)
    if len(indices.shape) == 1:
        return ops.take(rows, indices, axis=-1)
    shape = (*shape_list(rows)[:-1], shape_list(indices)[-1])
    return ops.take_along_axis(rows, ops.broadcast_to(indices, shape), axis=-1)


def count(bits: Tensor) -> Tensor:
    """Count the true values in the last axis: int32."""
    return ops.sum(ops.cast(bits, "int32"), axis=-1)


def _mask_of_ids(ids, is_set, vocab_size):
    """Return bool [B, K, V], True for `ids` [B, K, N] where `is_set` is."""
    is_set = ops.logical_and(is_set, ids >= 0)
    batch_size, beam_size, _ = shape_list(ids)
    rows = batch_size * beam_size
    starts = ops.arange(rows, dtype="int32") * vocab_size
    indices = ops.reshape(ops.maximum(ids, 0), (rows, -1)) + starts[:, None]
    found = ops.scatter(
        ops.reshape(indices, (-1, 1)),
        ops.reshape(ops.cast(is_set, "int32"), (-1,)),
        (rows * vocab_size,),
    )
    return ops.reshape(found > 0, (batch_size, beam_size, vocab_size))
