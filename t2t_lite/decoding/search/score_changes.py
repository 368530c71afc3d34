"""Changes of scores that an option of the decoder asks for.

Each forbids tokens; what is left of a hypothesis keeps the log-probability
that the model gives it. Only `keras.ops`. Shapes are those of `state`;
P phrases a sentence, M tokens of the longest.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

from keras import ops

from t2t_lite.decoding.search.state import SearchState, forbid
from t2t_lite.model.layers.backend import Tensor

# Where a row of tokens has none: before its first, or beside a shorter one.
NO_TOKEN = -1
# What a phrase begins with that counts only where a hypothesis begins.
START = -2


class Ban:
    """A `ScoreChange` that forbids tokens, by the tokens so far."""

    renormalizes = False

    def start(self, batch_size: int | Tensor, beam_size: int) -> Any:
        return ()

    def change(
        self, logits: Tensor, state: SearchState, memory: Any
    ) -> tuple[Tensor, Any]:
        return forbid(logits, self.forbidden(state, logits)), memory

    def forbidden(self, state: SearchState, logits: Tensor) -> Tensor:
        """Bool, broadcast to [B, K, V]: what may not follow."""
        raise NotImplementedError


@dataclasses.dataclass(frozen=True)
class Suppress(Ban):
    """Forbids some tokens everywhere.

    Attributes:
      ids: of the tokens.
    """

    ids: Sequence[int]

    def forbidden(self, state: SearchState, logits: Tensor) -> Tensor:
        vocabulary = ops.arange(ops.shape(logits)[-1], dtype="int32")
        ids = ops.convert_to_tensor(list(self.ids), "int32")
        return ops.any(ops.equal(vocabulary[:, None], ids), axis=-1)


@dataclasses.dataclass(frozen=True)
class MinimumLength(Ban):
    """Forbids EOS until a hypothesis has some tokens.

    Attributes:
      length: how many, EOS not counted.
      eos_id: the token that ends a hypothesis.
    """

    length: int
    eos_id: int

    def forbidden(self, state: SearchState, logits: Tensor) -> Tensor:
        vocabulary = ops.arange(ops.shape(logits)[-1])
        return ops.logical_and(
            ops.equal(vocabulary, self.eos_id), state.index < self.length
        )


@dataclasses.dataclass(frozen=True)
class NoRepeat(Ban):
    """Forbids what would repeat an n-gram of tokens (arXiv:1705.04304).

    Attributes:
      size: n, at least 1.
    """

    size: int

    def forbidden(self, state: SearchState, logits: Tensor) -> Tensor:
        ids, length = state.live_ids, ops.shape(state.live_ids)[-1]
        before = recent(state, self.size - 1)  # [B, K, n - 1]
        ends = ops.arange(length, dtype="int32")  # where an n-gram ends
        repeats = ops.logical_and(ends >= self.size - 1, ends < state.index)
        repeats = ops.broadcast_to(repeats, ops.shape(ids))
        for place in range(self.size - 1):
            there = ops.maximum(ends - (self.size - 1) + place, 0)
            same = ops.equal(
                ops.take(ids, there, axis=-1), before[..., place : place + 1]
            )
            repeats = ops.logical_and(repeats, same)
        return _marked(ids, repeats, ops.shape(logits)[-1])


@dataclasses.dataclass(frozen=True)
class Avoid(Ban):
    """Forbids the last token of a phrase after the others.

    Attributes:
      phrases: int32 [B, P, M], at least one token each, maybe START before
        them, NO_TOKEN behind; NO_TOKEN only where there is no phrase.
    """

    phrases: Tensor

    def forbidden(self, state: SearchState, logits: Tensor) -> Tensor:
        phrases, most = state.these(self.phrases), ops.shape(self.phrases)[-1]
        lengths = ops.sum(
            ops.cast(ops.not_equal(phrases, NO_TOKEN), "int32"), axis=-1
        )
        # The tokens before the last, aligned with the newest ones of a
        # hypothesis: [B, P, M - 1].
        places = ops.arange(most - 1, dtype="int32") - (
            most - lengths[..., None]
        )
        before = tokens_at(phrases, places)
        last = tokens_at(phrases, lengths[..., None] - 1)[..., 0]  # [B, P]
        newest = recent(state, most - 1)
        newest = ops.where(ops.equal(newest, NO_TOKEN), START, newest)
        newest = newest[:, :, None]  # [B, K, 1, M - 1]
        before = before[:, None]
        follows = ops.all(
            ops.logical_or(
                ops.equal(before, NO_TOKEN), ops.equal(before, newest)
            ),
            axis=-1,
        )  # [B, K, P]
        last = ops.broadcast_to(last[:, None], ops.shape(follows))
        return _marked(last, follows, ops.shape(logits)[-1])


@dataclasses.dataclass(frozen=True)
class ForcedPrefix(Ban):
    """Hypotheses begin with given tokens; other changes apply behind them.

    Attributes:
      prefixes: int32 [B, M], NO_TOKEN after the last.
      others: changes that have no say in the prefix.
    """

    prefixes: Tensor
    others: Sequence[Ban] = ()

    def forbidden(self, state: SearchState, logits: Tensor) -> Tensor:
        prefixes = state.these(self.prefixes)
        wanted = tokens_at(prefixes, state.index[None, None])[:, None]
        vocabulary = ops.arange(ops.shape(logits)[-1], dtype="int32")
        forbidden = ops.zeros((1, 1, 1), "bool")
        for other in self.others:
            forbidden = ops.logical_or(
                forbidden, other.forbidden(state, logits)
            )
        return ops.where(
            ops.equal(wanted, NO_TOKEN),
            forbidden,
            ops.not_equal(vocabulary, wanted),
        )


def recent(state: SearchState, count: int | Tensor) -> Tensor:
    """The newest `count` tokens of each live hypothesis: int32 [B, K, count].

    NO_TOKEN where it has fewer.
    """
    return tokens_at(state.live_ids, state.index - count + ops.arange(count))


def tokens_at(rows: Tensor, places: Tensor) -> Tensor:
    """The tokens at some places of rows [..., N]; NO_TOKEN beside them.

    Args:
      rows: int32 [..., N].
      places: int32 [n], the same for all rows, or one row of them for each.
    """
    size = ops.shape(rows)[-1]
    # One more token to take where a place is outside.
    end = ops.full((*ops.shape(rows)[:-1], 1), NO_TOKEN, "int32")
    rows = ops.concatenate([rows, end], axis=-1)
    inside = ops.logical_and(places >= 0, places < size)
    places = ops.where(inside, places, size)
    if len(places.shape) == 1:
        return ops.take(rows, places, axis=-1)
    places = ops.broadcast_to(
        places, (*ops.shape(rows)[:-1], ops.shape(places)[-1])
    )
    return ops.take_along_axis(rows, places, axis=-1)


def _marked(ids, on, vocab_size):
    """Bool [B, K, V]: the tokens `ids` [B, K, N] whose place is on.

    NO_TOKEN marks nothing.
    """
    on = ops.logical_and(on, ids >= 0)
    batch_size, beam_size, _ = ops.shape(ids)
    rows = batch_size * beam_size
    starts = ops.arange(rows, dtype="int32") * vocab_size
    places = ops.reshape(ops.maximum(ids, 0), (rows, -1)) + starts[:, None]
    found = ops.scatter(
        ops.reshape(places, (-1, 1)),
        ops.reshape(ops.cast(on, "int32"), (-1,)),
        (rows * vocab_size,),
    )
    return ops.reshape(found > 0, (batch_size, beam_size, vocab_size))
