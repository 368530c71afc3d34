"""A search that finds only trees over the words of its sentences.

Only `keras.ops`. The search itself is unchanged: its `step_fn` masks the tokens
that may not follow.

Shapes: B batch, K beam, V vocabulary, n words of the longest sentence, D the
deepest brackets.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from keras import ops

from t2t_lite.decoding.log_probs import IMPOSSIBLE, gather_rows
from t2t_lite.parsing.linearization import PUNCTUATION
from t2t_lite.text.sentencepiece_model import EOS_ID, UNK_ID

MOST_OPEN_BRACKETS = 100

# What a word may be in a target: a punctuation mark, by its number from 1; a
# plain word; or either, as some quotes may.
WORD = 0
WORD_OR_MARK = len(PUNCTUATION) + 1

SPECIAL = UNK_ID + 1  # tokens that are not part of trees, the first ones
_OTHER, _OPENING, _CLOSING, _LEAF = range(4)
_SHORTEST = 3  # tokens beside the leaves: two brackets and EOS


class TreeGrammar:
    """Which tokens of a linearized tree may follow others.

    Brackets match, none is empty, there is one root, and leaf i is one that
    word i can be. After the last word, all open brackets close.

    Args:
      tokens: the vocabulary in the order of its ids, special tokens first.
    """

    def __init__(self, tokens: Sequence[str]):
        signs = {"(": _OPENING, ")": _CLOSING}
        kinds = [signs.get(token[0], _LEAF) for token in tokens[SPECIAL:]]
        marks = {mark: number for number, mark in enumerate(PUNCTUATION, 1)}
        labels = {token[1:]: number for number, token in enumerate(tokens)}
        self._kinds = np.array([_OTHER] * SPECIAL + kinds, np.int32)
        # One number for both brackets of a label; not used for other tokens.
        self._labels = np.array([labels[t[1:]] for t in tokens], np.int32)
        # [WORD_OR_MARK + 1, V]: the leaves that a word of some class can be.
        classes = np.array([marks.get(token, WORD) for token in tokens])
        wanted = np.arange(WORD_OR_MARK + 1)[:, None]
        self._leaves = (self._kinds == _LEAF) & (
            (wanted == classes) | (wanted == WORD_OR_MARK)
        )

    def constrain(
        self,
        word_classes: Any,
        counts: Any,
        limits: Any,
        beam_size: int,
        step_fn: Callable,
        follow_fn: Callable,
    ) -> tuple[Callable, Callable, dict[str, Any], Any]:
        """See `TreeForm.constrain`.

        Args:
          word_classes: int32 [B, n], from WORD to WORD_OR_MARK.
          counts: int32 [B], words of each sentence.
          limits: int32 [B], the most tokens, EOS included.
          beam_size: K.
          step_fn: of `beam_search`.
          follow_fn: likewise.

        Returns: `(step_fn, follow_fn, state, limits)`; the limits leave room
          for some tree, and are 0 where there are no words.
        """
        limits = ops.maximum(limits, counts + _SHORTEST)
        limits = ops.where(counts > 0, limits, 0)
        shape = (ops.shape(counts)[0], beam_size)
        state = {
            "word_classes": word_classes,
            "counts": counts,
            "limits": limits,
            "stack": ops.zeros((*shape, MOST_OPEN_BRACKETS), "int32"),
            "depth": ops.zeros(shape, "int32"),
            "leaves": ops.zeros(shape, "int32"),
            "is_empty": ops.zeros(shape, "bool"),
        }

        def step(ids, index, cache):
            inner, state = cache
            logits, inner = step_fn(ids, index, inner)
            state = self._advance(state, ids)
            allowed = self._allowed(state, index)
            return ops.where(allowed, logits, IMPOSSIBLE), (inner, state)

        def follow(cache, parents):
            inner, state = cache
            followed = {
                name: gather_rows(state[name], parents)
                for name in ("stack", "depth", "leaves", "is_empty")
            }
            return follow_fn(inner, parents), {**state, **followed}

        return step, follow, state, limits

    def _advance(self, state, ids):
        """The state after the tokens `ids` [B, K]; padding changes nothing."""
        kinds = ops.take(self._kinds, ids, axis=0)
        labels = ops.take(self._labels, ids, axis=0)
        opens, closes, is_leaf = (
            ops.equal(kinds, kind) for kind in (_OPENING, _CLOSING, _LEAF)
        )
        depth = state["depth"]
        here = ops.equal(ops.arange(MOST_OPEN_BRACKETS), depth[..., None])
        pushed = here & opens[..., None]
        change = ops.cast(opens, "int32") - ops.cast(closes, "int32")
        return {
            **state,
            "stack": ops.where(pushed, labels[..., None], state["stack"]),
            "depth": depth + change,
            "leaves": state["leaves"] + ops.cast(is_leaf, "int32"),
            "is_empty": opens,
        }

    def _allowed(self, state, index):
        """Bool [B, K, V]: what may follow at this index."""
        depth, leaves = state["depth"], state["leaves"]
        left = state["counts"][:, None] - leaves
        is_open = depth > 0
        # One bracket more has to leave room for the words, for the closing
        # brackets and for EOS.
        room = state["limits"][:, None] - index - left - depth
        may_open = (
            ((left > 0) & (is_open | (leaves < 1)))
            & (depth < MOST_OPEN_BRACKETS)
            & (room >= _SHORTEST)
        )
        may_close = is_open & ~state["is_empty"] & ((depth > 1) | (left < 1))
        top = ops.equal(ops.arange(MOST_OPEN_BRACKETS), depth[..., None] - 1)
        top = ops.sum(ops.where(top, state["stack"], 0), axis=-1)
        closing = ops.equal(self._kinds, _CLOSING) & ops.equal(
            self._labels, top[..., None]
        )
        last = ops.shape(state["word_classes"])[1] - 1
        classes = gather_rows(
            state["word_classes"], ops.clip(leaves, 0, ops.maximum(last, 0))
        )
        leaf = ops.take(self._leaves, classes, axis=0)  # [B, K, V]
        may_take = is_open & (left > 0)
        may_end = (depth < 1) & (left < 1)
        ending = ops.equal(ops.arange(len(self._kinds)), EOS_ID)
        return (
            (may_open[..., None] & ops.equal(self._kinds, _OPENING))
            | (may_close[..., None] & closing)
            | (may_take[..., None] & leaf)
            | (may_end[..., None] & ending)
        )
