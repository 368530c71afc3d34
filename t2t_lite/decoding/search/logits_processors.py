"""Logits processors: options of a search that forbid tokens.

The allowed tokens keep the log-probability that the model gives them. Only
`keras.ops`. Shapes are those of `state`; P phrases of a sentence, M tokens of
the longest.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

from keras import ops

from t2t_lite.decoding.search.state import NEG_INF, SearchState
from t2t_lite.ops import Tensor

# Fills rows of tokens before their first and after their last one.
NO_TOKEN = -1
# The token before a hypothesis; a phrase with it matches at the start only.
START = -2


class LogitsProcessor:
    """Changes the logits of the next tokens before candidates are selected.

    Sentences that are done may leave the batch: what a processor keeps of each
    sentence is read with `SearchState.select_rows`. A subclass defines `mask`,
    or all three methods.

    Attributes:
      renormalizes: whether log-probabilities are those of the new logits.
        Otherwise they stay those of the model.
    """

    renormalizes = False

    def start(self, batch_size: int | Tensor, beam_size: int) -> Any:
        """Return its state: tensors [B, K, ...], reordered with the beams."""
        return ()

    def process(
        self, logits: Tensor, state: SearchState, own_state: Any
    ) -> tuple[Tensor, Any]:
        """Return the new logits, and its own state after `state.last_ids`.

        Args:
          logits: float [B, K, V].
          state: about to choose token `state.index`.
          own_state: from `start` or the last step.
        """
        mask = self.mask(state, ops.shape(logits)[-1])
        return mask_logits(logits, mask), own_state

    def mask(self, state: SearchState, vocab_size: int) -> Tensor:
        """Return the forbidden tokens: bool, broadcast to [B, K, V]."""
        raise NotImplementedError


def mask_logits(logits: Tensor, mask: Tensor) -> Tensor:
    """Return logits [B, K, V] that are impossible where the mask is true."""
    return ops.where(mask, ops.cast(NEG_INF, logits.dtype), logits)


@dataclasses.dataclass(frozen=True)
class Suppress(LogitsProcessor):
    """Forbids the tokens `ids` everywhere."""

    ids: Sequence[int]

    def mask(self, state: SearchState, vocab_size: int) -> Tensor:
        vocabulary = ops.arange(vocab_size, dtype="int32")
        ids = ops.convert_to_tensor(list(self.ids), "int32")
        return ops.any(ops.equal(vocabulary[:, None], ids), axis=-1)


@dataclasses.dataclass(frozen=True)
class MinimumLength(LogitsProcessor):
    """Forbids EOS before `length` tokens."""

    length: int
    eos_id: int

    def mask(self, state: SearchState, vocab_size: int) -> Tensor:
        is_eos = ops.equal(ops.arange(vocab_size), self.eos_id)
        return ops.logical_and(is_eos, state.index < self.length)


@dataclasses.dataclass(frozen=True)
class NoRepeat(LogitsProcessor):
    """Forbids repeated n-grams of `size` tokens (arXiv:1705.04304)."""

    size: int

    def mask(self, state: SearchState, vocab_size: int) -> Tensor:
        ids, length = state.live_ids, ops.shape(state.live_ids)[-1]
        newest = last_tokens(state, self.size - 1)  # [B, K, n - 1]
        ends = ops.arange(length, dtype="int32")  # where an n-gram ends
        repeats = ops.logical_and(ends >= self.size - 1, ends < state.index)
        repeats = ops.broadcast_to(repeats, ops.shape(ids))
        for n in range(self.size - 1):
            nth = ops.maximum(ends - (self.size - 1) + n, 0)
            same = ops.equal(
                ops.take(ids, nth, axis=-1), newest[..., n : n + 1]
            )
            repeats = ops.logical_and(repeats, same)
        return _mask_of_ids(ids, repeats, vocab_size)


@dataclasses.dataclass(frozen=True)
class BadPhrases(LogitsProcessor):
    """Forbids the last token of a phrase after its other tokens.

    Attributes:
      phrases: int32 [B, P, M], maybe START, then at least one token, then
        NO_TOKEN; NO_TOKEN only where there is no phrase.
    """

    phrases: Tensor

    def mask(self, state: SearchState, vocab_size: int) -> Tensor:
        phrases = state.select_rows(self.phrases)
        most = ops.shape(phrases)[2]
        ends = count(ops.not_equal(phrases, NO_TOKEN))[..., None] - 1
        is_last = ops.equal(ops.arange(most, dtype="int32"), ends)  # [B, P, M]
        # Whether the newest n tokens are the first n of the phrase, n < M.
        begun = begins_with(last_tokens(state, most - 1), phrases)
        follows = ops.any(ops.logical_and(begun, is_last[:, None]), axis=-1)
        ids = ops.max(ops.where(is_last, phrases, NO_TOKEN), axis=-1)
        ids = ops.broadcast_to(ids[:, None], ops.shape(follows))  # [B, K, P]
        return _mask_of_ids(ids, follows, vocab_size)


@dataclasses.dataclass(frozen=True)
class ForcedPrefix(LogitsProcessor):
    """Makes hypotheses begin with given tokens.

    Attributes:
      prefixes: int32 [B, M], NO_TOKEN after the last.
      others: processors that apply after the prefix only.
    """

    prefixes: Tensor
    others: Sequence[LogitsProcessor] = ()

    def mask(self, state: SearchState, vocab_size: int) -> Tensor:
        prefixes = state.select_rows(self.prefixes)
        wanted = gather_tokens(prefixes, state.index[None, None])[:, None]
        mask = ops.zeros((1, 1, 1), "bool")
        for other in self.others:
            mask = ops.logical_or(mask, other.mask(state, vocab_size))
        vocabulary = ops.arange(vocab_size, dtype="int32")
        return ops.where(
            ops.equal(wanted, NO_TOKEN),
            mask,
            ops.not_equal(vocabulary, wanted),
        )


def last_tokens(state: SearchState, size: int | Tensor) -> Tensor:
    """Return the newest tokens of each live hypothesis: int32 [B, K, size].

    START stands before the first token.
    """
    indices = state.index - size + ops.arange(size, dtype="int32")
    return ops.where(indices < 0, START, gather_tokens(state.live_ids, indices))


def begins_with(tokens: Tensor, phrases: Tensor) -> Tensor:
    """Return whether the last n tokens are the first n of a phrase.

    Args:
      tokens: int32 [B, N, W].
      phrases: int32 [B, P, M], M at least W.

    Returns:
      Bool [B, N, P, W + 1], for n from 0 to W.
    """
    batch_size, rows, width = ops.shape(tokens)
    sizes = ops.arange(width + 1, dtype="int32")[:, None]
    indices = ops.arange(width, dtype="int32")
    # [W + 1, W]: the last n tokens, n in each row
    lasts = ops.reshape(width - sizes + indices, (-1,))
    lasts = ops.reshape(
        gather_tokens(tokens, lasts), (batch_size, rows, 1, width + 1, width)
    )
    same = ops.equal(lasts, phrases[:, None, :, None, :width])
    return ops.all(ops.logical_or(same, indices >= sizes), axis=-1)


def gather_tokens(rows: Tensor, indices: Tensor) -> Tensor:
    """Return tokens of rows [..., N] by index; NO_TOKEN outside.

    Args:
      rows: int32 [..., N].
      indices: int32 [n], the same for all rows, or [..., n].
    """
    size = ops.shape(rows)[-1]
    end = ops.full((*ops.shape(rows)[:-1], 1), NO_TOKEN, "int32")
    rows = ops.concatenate([rows, end], axis=-1)
    inside = ops.logical_and(indices >= 0, indices < size)
    indices = ops.where(inside, indices, size)
    if len(indices.shape) == 1:
        return ops.take(rows, indices, axis=-1)
    shape = (*ops.shape(rows)[:-1], ops.shape(indices)[-1])
    return ops.take_along_axis(rows, ops.broadcast_to(indices, shape), axis=-1)


def count(bits: Tensor) -> Tensor:
    """Return the number of true values in the last axis: int32."""
    return ops.sum(ops.cast(bits, "int32"), axis=-1)


def _mask_of_ids(ids, on, vocab_size):
    """Return bool [B, K, V], true for those `ids` [B, K, N] that are `on`."""
    on = ops.logical_and(on, ids >= 0)
    batch_size, beam_size, _ = ops.shape(ids)
    rows = batch_size * beam_size
    starts = ops.arange(rows, dtype="int32") * vocab_size
    indices = ops.reshape(ops.maximum(ids, 0), (rows, -1)) + starts[:, None]
    found = ops.scatter(
        ops.reshape(indices, (-1, 1)),
        ops.reshape(ops.cast(on, "int32"), (-1,)),
        (rows * vocab_size,),
    )
    return ops.reshape(found > 0, (batch_size, beam_size, vocab_size))
