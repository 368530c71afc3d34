"""A search for trees only, in graphs: the decoder's and an export's.

Shapes: B batch, K beam, V vocabulary, n words of the longest sentence.
"""

from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from t2t_lite.decoding.search.logits_processors import (
    LogitsProcessor,
    mask_logits,
)
from t2t_lite.ops import gather_rows
from t2t_lite.parsing.linearize import (
    MARKS_OR_WORDS,
    PUNCTUATION,
    PUNCTUATION_TAGS,
)
from t2t_lite.tokenizers.base import EOS_ID
from t2t_lite.tokenizers.closed import SPECIAL_TOKENS

MOST_OPEN_BRACKETS = 100
# The trees of the treebank's free sample need 6. Without a limit, a model that
# strays nests one constituent in another until its room is used up.
MOST_OPENED_IN_A_ROW = 12

# What a word may be in a target: a punctuation mark, by its number from 1; a
# plain word; or either, as some quotes may.
_WORD = 0
_WORD_OR_MARK = len(PUNCTUATION) + 1

_SPECIAL, _OPENING, _CLOSING, _LEAF = range(4)
_SHORTEST = 3  # tokens beside the leaves: two brackets and EOS
_SPACE = r"[ \t\n\v\f\r]+"  # as tf.strings.split and the tree reader have it


class TreeConstraint(tf.Module):
    """The form of sentences and their linearized trees.

    Brackets match, none is empty, there is one root, and leaf i is one that
    word i can be. After the last word, all open brackets close.

    Args:
      tokens: the vocabulary of linearized trees, in the order of its ids; it
        begins with SPECIAL_TOKENS.
    """

    kind = "trees"

    def __init__(self, tokens: Sequence[str]):
        super().__init__(name="tree_constraint")
        tags = {mark: number for number, mark in enumerate(PUNCTUATION, 1)}
        classes = {
            **{mark: tags[tag] for mark, tag in PUNCTUATION_TAGS.items()},
            **dict.fromkeys(MARKS_OR_WORDS, _WORD_OR_MARK),
        }
        self._classes = tf.lookup.StaticHashTable(
            tf.lookup.KeyValueTensorInitializer(
                tf.constant(list(classes)),
                tf.constant(list(classes.values()), tf.int32),
            ),
            default_value=_WORD,
        )
        special = len(SPECIAL_TOKENS)
        signs = {"(": _OPENING, ")": _CLOSING}
        kinds = [signs.get(token[0], _LEAF) for token in tokens[special:]]
        self.kinds = np.array([_SPECIAL] * special + kinds, np.int32)
        # One number for both brackets of a label; not used for other tokens.
        labels = {token[1:]: number for number, token in enumerate(tokens)}
        self.labels = np.array([labels[t[1:]] for t in tokens], np.int32)
        # [_WORD_OR_MARK + 1, V]: the leaves that a word of some class can be.
        of_tokens = np.array([tags.get(token, _WORD) for token in tokens])
        wanted = np.arange(_WORD_OR_MARK + 1)[:, None]
        self.leaves = (self.kinds == _LEAF) & (
            (wanted == of_tokens) | (wanted == _WORD_OR_MARK)
        )
        written = [("", "")] * special + list(map(_written, tokens[special:]))
        self._before, self._behind = np.array(written).T

    def prepare(self, texts: tf.Tensor) -> tf.Tensor:
        """Return sentences, tf.string [B], as the training data has them.

        One space is between words; `(` in a word is `-LRB-`, as in trees.
        """
        texts = tf.strings.regex_replace(texts, _SPACE, " ")
        texts = tf.strings.regex_replace(texts, r"\(", "-LRB-")
        return tf.strings.strip(tf.strings.regex_replace(texts, r"\)", "-RRB-"))

    def constrain(
        self, texts: tf.Tensor, limits: tf.Tensor
    ) -> tuple[LogitsProcessor, tf.Tensor]:
        """Return the processor that allows only trees over the words.

        Args:
          texts: tf.string [B], from `prepare`.
          limits: int32 [B], the most tokens of an answer, EOS included; also
            returned, raised if they are too small for a tree, 0 without words.
        """
        words = tf.strings.split(texts)
        classes = words.with_flat_values(
            self._classes.lookup(words.flat_values)
        )
        counts = tf.cast(words.row_lengths(), tf.int32)
        limits = tf.maximum(limits, counts + _SHORTEST)
        limits = tf.where(counts > 0, limits, 0)
        classes = classes.to_tensor(_WORD)  # [B, n]
        return _TreeLogitsProcessor(self, classes, counts), limits

    def write(self, texts: tf.Tensor, tokens: tf.Tensor) -> tf.Tensor:
        """Return trees in brackets, from tokens of a constrained search.

        Example: "It works ." and the ids of `(S (NP XX )NP (VP XX )VP . )S`
        give `(S (NP (XX It)) (VP (XX works)) (. .))`.

        Args:
          texts: tf.string [B], from `prepare`.
          tokens: int32 [B, N, L].

        Returns: tf.string [B, N]; `""` for a text without words.
        """
        words = tf.strings.split(texts).to_tensor("")  # [B, n]
        # So that there is a word to gather where there is no leaf.
        words = tf.pad(words, [[0, 0], [0, 1]], constant_values="")
        leaves = tf.gather(self.kinds == _LEAF, tokens)  # [B, N, L]
        places = tf.cumsum(tf.cast(leaves, tf.int32), axis=2, exclusive=True)
        places = tf.minimum(places, tf.shape(words)[1] - 1)
        words = tf.where(leaves, tf.gather(words, places, batch_dims=1), "")
        before, behind = (
            tf.gather(text, tokens) for text in (self._before, self._behind)
        )
        trees = tf.strings.reduce_join(before + words + behind, axis=2)
        return tf.strings.strip(trees)


class _TreeLogitsProcessor(LogitsProcessor):
    """The logits processor that forbids what leads to no tree over the words.

    Of the words it has the classes, int32 [B, n], and the counts, int32 [B].
    """

    renormalizes = True

    def __init__(self, constraint, word_classes, counts):
        self.constraint = constraint
        self.word_classes = word_classes
        self.counts = counts

    def start(self, batch_size, beam_size):
        shape = [batch_size, beam_size]
        return {
            "stack": tf.zeros([*shape, MOST_OPEN_BRACKETS], tf.int32),
            "depth": tf.zeros(shape, tf.int32),
            "leaves": tf.zeros(shape, tf.int32),
            "opened": tf.zeros(shape, tf.int32),  # in a row
        }

    def process(self, logits, state, memory):
        memory = self._advance(memory, state.last_ids)
        allowed = self._allowed(memory, state)
        # A model's V may be rounded up: what is beyond the tokens is none.
        beyond = logits.shape[-1] - len(self.constraint.kinds)
        allowed = tf.pad(allowed, [[0, 0], [0, 0], [0, beyond]])
        return mask_logits(logits, ~allowed), memory

    def _advance(self, memory, ids):
        """Return the memory after tokens [B, K]; padding changes nothing."""
        kinds = tf.gather(self.constraint.kinds, ids)
        labels = tf.gather(self.constraint.labels, ids)
        opens, depth = kinds == _OPENING, memory["depth"]
        here = depth[..., None] == tf.range(MOST_OPEN_BRACKETS)
        pushed = here & opens[..., None]
        opened, closed, taken = (
            tf.cast(kinds == kind, tf.int32)
            for kind in (_OPENING, _CLOSING, _LEAF)
        )
        return {
            **memory,
            "stack": tf.where(pushed, labels[..., None], memory["stack"]),
            "depth": depth + opened - closed,
            "leaves": memory["leaves"] + taken,
            "opened": (memory["opened"] + 1) * opened,
        }

    def _allowed(self, memory, state):
        """Return the mask of the tokens that may follow: bool [B, K, V]."""
        depth, leaves = memory["depth"], memory["leaves"]
        is_empty = memory["opened"] > 0
        left = state.select_rows(self.counts)[:, None] - leaves
        is_open = depth > 0
        # One bracket more has to leave room for the words, for the closing
        # brackets and for EOS.
        room = state.limits[:, None] - state.index - left - depth
        may_open = (
            ((left > 0) & (is_open | (leaves < 1)))
            & (depth < MOST_OPEN_BRACKETS)
            & (memory["opened"] < MOST_OPENED_IN_A_ROW)
            & (room >= _SHORTEST)
        )
        may_close = is_open & ~is_empty & ((depth > 1) | (left < 1))
        top = depth[..., None] - 1 == tf.range(MOST_OPEN_BRACKETS)
        top = tf.reduce_sum(tf.where(top, memory["stack"], 0), axis=-1)
        closing = (top[..., None] == self.constraint.labels) & (
            self.constraint.kinds == _CLOSING
        )
        last = tf.maximum(tf.shape(self.word_classes)[1] - 1, 0)
        classes = gather_rows(
            state.select_rows(self.word_classes),
            tf.clip_by_value(leaves, 0, last),
        )
        leaf = tf.gather(self.constraint.leaves, classes)  # [B, K, V]
        may_take = is_open & (left > 0)
        may_end = (depth < 1) & (left < 1)
        ending = np.arange(len(self.constraint.kinds)) == EOS_ID
        return (
            (may_open[..., None] & (self.constraint.kinds == _OPENING))
            | (may_close[..., None] & closing)
            | (may_take[..., None] & leaf)
            | (may_end[..., None] & ending)
        )


def _written(token):
    """Return the text of a token before and after the word of a leaf."""
    if token.startswith("("):
        return f" {token}", ""
    return (")", "") if token.startswith(")") else (f" ({token} ", ")")
