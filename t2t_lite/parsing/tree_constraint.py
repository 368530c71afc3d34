"""Constrained search: outputs are valid trees over the words of the source.

It runs inside the graphs of the decoder and of exports. Shapes: B batch size,
K beam size, V vocabulary size, n words of the longest sentence.
"""

from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from t2t_lite.decoding.search import logits_processors
from t2t_lite.ops import gather_rows
from t2t_lite.parsing import linearize
from t2t_lite.parsing.linearize import PUNCTUATION, PUNCTUATION_TAGS
from t2t_lite.tokenizers.base import EOS_ID, lookup_table
from t2t_lite.tokenizers.closed import SPECIAL_TOKENS

MAX_OPEN_BRACKETS = 100
# The trees of the treebank's free sample need 6. Without a limit, a model may
# open constituents until it reaches the length limit.
MAX_OPENED_IN_A_ROW = 12

# Classes of words: 1 and up are the tags of PUNCTUATION; _WORD is any other
# word; _WORD_OR_MARK can be both, such as some quotes.
_WORD = 0
_WORD_OR_MARK = len(PUNCTUATION) + 1

_SPECIAL, _OPENING, _CLOSING, _LEAF = range(4)  # types of tokens
_MIN_OTHER_TOKENS = 3  # tokens in addition to leaves: two brackets and EOS
_SPACE = r"[ \t\n\v\f\r]+"  # as in tf.strings.split and the tree reader


class TreeConstraint(tf.Module):
    """Output constraint: linearized trees over the words of the source.

    Brackets match, no constituent is empty, there is one root, and the class of
    word i allows leaf i. After the last word, all open brackets close. `tokens`
    is the vocabulary, beginning with SPECIAL_TOKENS.
    """

    output_format = "trees"

    def __init__(self, tokens: Sequence[str]):
        super().__init__(name="tree_constraint")
        tags = {mark: number for number, mark in enumerate(PUNCTUATION, 1)}
        classes = {
            **{mark: tags[tag] for mark, tag in PUNCTUATION_TAGS.items()},
            **dict.fromkeys(linearize.MARKS_OR_WORDS, _WORD_OR_MARK),
        }
        self._classes = lookup_table(classes, _WORD)
        special = len(SPECIAL_TOKENS)
        signs = {"(": _OPENING, ")": _CLOSING}
        types = [signs.get(token[0], _LEAF) for token in tokens[special:]]
        self.token_types = np.array([_SPECIAL] * special + types, np.int32)
        # Both brackets of a label have the same number.
        labels = {token[1:]: number for number, token in enumerate(tokens)}
        self.labels = np.array([labels[t[1:]] for t in tokens], np.int32)
        # [_WORD_OR_MARK + 1, V]: the leaves that each class of words allows.
        token_classes = np.array([tags.get(token, _WORD) for token in tokens])
        word_classes = np.arange(_WORD_OR_MARK + 1)[:, None]
        self.leaves = (self.token_types == _LEAF) & (
            (word_classes == token_classes) | (word_classes == _WORD_OR_MARK)
        )
        affixes = [("", "")] * special + list(map(_affixes, tokens[special:]))
        self._prefixes, self._suffixes = np.array(affixes).T

    def prepare(self, texts: tf.Tensor) -> tf.Tensor:
        """Normalize sentences, tf.string [B], as in the training data.

        One space separates words; `(` becomes `-LRB-`, as in trees.
        """
        texts = tf.strings.regex_replace(texts, _SPACE, " ")
        texts = tf.strings.regex_replace(texts, r"\(", "-LRB-")
        return tf.strings.strip(tf.strings.regex_replace(texts, r"\)", "-RRB-"))

    def constrain(
        self, texts: tf.Tensor, max_lengths: tf.Tensor
    ) -> tuple[logits_processors.LogitsProcessor, tf.Tensor]:
        """Return a logits processor that allows only trees over the words.

        Args:
          texts: tf.string [B], from `prepare`.
          max_lengths: int32 [B], maximum number of output tokens, EOS included.

        Returns:
          The processor; and `max_lengths`, increased if too small for a tree, 0
          for texts without words.
        """
        words = tf.strings.split(texts)
        flat = self._classes.lookup(words.flat_values)
        classes = words.with_flat_values(flat)
        counts = tf.cast(words.row_lengths(), tf.int32)
        max_lengths = tf.maximum(max_lengths, counts + _MIN_OTHER_TOKENS)
        max_lengths = tf.where(counts > 0, max_lengths, 0)
        classes = classes.to_tensor(_WORD)  # [B, n]
        return _TreeLogitsProcessor(self, classes, counts), max_lengths

    def write(self, texts: tf.Tensor, tokens: tf.Tensor) -> tf.Tensor:
        """Convert tokens of a constrained search to trees in brackets.

        Example: "It works ." and the ids of `(S (NP XX )NP (VP XX )VP . )S`
        give `(S (NP (XX It)) (VP (XX works)) (. .))`. Texts [B] from `prepare`
        and tokens [B, N, L] give tf.string [B, N], `""` without words.
        """
        words = tf.strings.split(texts).to_tensor("")  # [B, n]
        # The padding keeps the indices of tokens after the last leaf valid.
        words = tf.pad(words, [[0, 0], [0, 1]], constant_values="")
        is_leaf = tf.gather(self.token_types == _LEAF, tokens)  # [B, N, L]
        indices = tf.cumsum(tf.cast(is_leaf, tf.int32), axis=2, exclusive=True)
        indices = tf.minimum(indices, tf.shape(words)[1] - 1)
        words = tf.where(is_leaf, tf.gather(words, indices, batch_dims=1), "")
        prefixes = tf.gather(self._prefixes, tokens)
        suffixes = tf.gather(self._suffixes, tokens)
        trees = tf.strings.reduce_join(prefixes + words + suffixes, axis=2)
        return tf.strings.strip(trees)


class _TreeLogitsProcessor(logits_processors.LogitsProcessor):
    """Logits processor that masks tokens that cannot lead to a valid tree."""

    renormalizes = True

    def __init__(self, constraint, word_classes, counts):
        self.constraint = constraint
        self.word_classes = word_classes  # int32 [B, n]
        self.counts = counts  # numbers of words, int32 [B]

    def start(self, batch_size, beam_size):
        shape = [batch_size, beam_size]
        return {
            "stack": tf.zeros([*shape, MAX_OPEN_BRACKETS], tf.int32),
            "depth": tf.zeros(shape, tf.int32),
            "leaves": tf.zeros(shape, tf.int32),
            "opened": tf.zeros(shape, tf.int32),  # brackets opened in a row
        }

    def process(self, logits, state, own_state):
        own_state = self._advance(own_state, state.last_ids)
        allowed = self._allowed(own_state, state)
        # The model's V may be rounded up; the additional ids are masked.
        extra_ids = logits.shape[-1] - len(self.constraint.token_types)
        allowed = tf.pad(allowed, [[0, 0], [0, 0], [0, extra_ids]])
        return logits_processors.mask_logits(logits, ~allowed), own_state

    def _advance(self, own_state, ids):
        """Return the own state after ids [B, K]; padding has no effect."""
        types = tf.gather(self.constraint.token_types, ids)
        labels = tf.gather(self.constraint.labels, ids)
        opens, depth = types == _OPENING, own_state["depth"]
        is_top = depth[..., None] == tf.range(MAX_OPEN_BRACKETS)
        pushed = is_top & opens[..., None]
        opened, closed, taken = (
            tf.cast(types == each, tf.int32)
            for each in (_OPENING, _CLOSING, _LEAF)
        )
        return {
            **own_state,
            "stack": tf.where(pushed, labels[..., None], own_state["stack"]),
            "depth": depth + opened - closed,
            "leaves": own_state["leaves"] + taken,
            "opened": (own_state["opened"] + 1) * opened,
        }

    def _allowed(self, own_state, state):
        """Return the mask of allowed tokens: bool [B, K, V]."""
        depth, leaves = own_state["depth"], own_state["leaves"]
        is_empty = own_state["opened"] > 0
        left = state.select_rows(self.counts)[:, None] - leaves
        is_open = depth > 0
        # Tokens that are not needed for words and closing brackets; another
        # constituent needs two brackets, and the tree needs EOS.
        remaining = state.limits[:, None] - state.index - left - depth
        may_open = (
            ((left > 0) & (is_open | (leaves < 1)))
            & (depth < MAX_OPEN_BRACKETS)
            & (own_state["opened"] < MAX_OPENED_IN_A_ROW)
            & (remaining >= _MIN_OTHER_TOKENS)
        )
        may_close = is_open & ~is_empty & ((depth > 1) | (left < 1))
        is_top = depth[..., None] - 1 == tf.range(MAX_OPEN_BRACKETS)
        top = tf.reduce_sum(tf.where(is_top, own_state["stack"], 0), axis=-1)
        closing = (top[..., None] == self.constraint.labels) & (
            self.constraint.token_types == _CLOSING
        )
        last = tf.maximum(tf.shape(self.word_classes)[1] - 1, 0)
        classes = state.select_rows(self.word_classes)
        classes = gather_rows(classes, tf.clip_by_value(leaves, 0, last))
        leaf = tf.gather(self.constraint.leaves, classes)  # [B, K] -> [B, K, V]
        may_take = is_open & (left > 0)
        may_end = (depth < 1) & (left < 1)
        is_eos = np.arange(len(self.constraint.token_types)) == EOS_ID
        return (
            (may_open[..., None] & (self.constraint.token_types == _OPENING))
            | (may_close[..., None] & closing)
            | (may_take[..., None] & leaf)
            | (may_end[..., None] & is_eos)
        )


def _affixes(token):
    """Return the text before and after the word of a leaf or of a bracket."""
    if token.startswith("("):
        return f" {token}", ""
    return (")", "") if token.startswith(")") else (f" ({token} ", ")")
