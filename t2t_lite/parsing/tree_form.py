"""What graphs, the decoder's and an export's, must know about trees."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from t2t_lite.parsing.linearization import MARKS, MARKS_OR_WORDS, PUNCTUATION
from t2t_lite.parsing.tree_search import (
    SPECIAL,
    WORD,
    WORD_OR_MARK,
    TreeGrammar,
)

_SPACE = r"[ \t\n\v\f\r]+"  # as tf.strings.split and the tree reader have it


class TreeForm(tf.Module):
    """The `TextForm` of sentences and their linearized trees.

    Args:
      tokens: the vocabulary of linearized trees, in the order of its ids; the
        first three are special.
    """

    def __init__(self, tokens: Sequence[str]):
        super().__init__(name="tree_form")
        self._grammar = TreeGrammar(tokens)
        classes = {
            **{mark: PUNCTUATION.index(tag) + 1 for mark, tag in MARKS.items()},
            **dict.fromkeys(MARKS_OR_WORDS, WORD_OR_MARK),
        }
        self._classes = tf.lookup.StaticHashTable(
            tf.lookup.KeyValueTensorInitializer(
                tf.constant(list(classes)),
                tf.constant(list(classes.values()), tf.int32),
            ),
            default_value=WORD,
        )
        written = [("", "")] * SPECIAL + list(map(_written, tokens[SPECIAL:]))
        self._before, self._behind = np.array(written).T
        self._is_leaf = self._behind == ")"

    def prepare(self, texts: tf.Tensor) -> tf.Tensor:
        """Sentences, tf.string [B], in the form of the training data.

        One space is between words; `(` in a word is `-LRB-`, as in trees.
        """
        texts = tf.strings.regex_replace(texts, _SPACE, " ")
        texts = tf.strings.regex_replace(texts, r"\(", "-LRB-")
        return tf.strings.strip(tf.strings.regex_replace(texts, r"\)", "-RRB-"))

    def constrain(
        self,
        texts: tf.Tensor,
        limits: tf.Tensor,
        beam_size: int,
        step_fn: Callable,
        follow_fn: Callable,
    ) -> tuple[Callable, Callable, Any, tf.Tensor]:
        """A search that gives only trees over the words of the texts.

        Args:
          texts: tf.string [B], from `prepare`.
          limits: int32 [B], the most tokens of an answer.
          beam_size: K.
          step_fn: of `beam_search`.
          follow_fn: likewise.

        Returns: `(step_fn, follow_fn, state, limits)`; the cache of the new
          functions is a pair, the former cache and the state. Limits too small
          for a tree are raised.
        """
        words = tf.strings.split(texts)
        classes = words.with_flat_values(
            self._classes.lookup(words.flat_values)
        )
        return self._grammar.constrain(
            classes.to_tensor(WORD),
            tf.cast(words.row_lengths(), tf.int32),
            limits,
            beam_size,
            step_fn,
            follow_fn,
        )

    def write(self, texts: tf.Tensor, tokens: tf.Tensor) -> tf.Tensor:
        """Trees in brackets, from tokens of a constrained search.

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
        leaves = tf.gather(self._is_leaf, tokens)  # [B, N, L]
        places = tf.cumsum(tf.cast(leaves, tf.int32), axis=2, exclusive=True)
        places = tf.minimum(places, tf.shape(words)[1] - 1)
        words = tf.where(leaves, tf.gather(words, places, batch_dims=1), "")
        before, behind = (
            tf.gather(text, tokens) for text in (self._before, self._behind)
        )
        trees = tf.strings.reduce_join(before + words + behind, axis=2)
        return tf.strings.strip(trees)


def _written(token):
    """How a token is written: before and after the word of a leaf."""
    if token.startswith("("):
        return f" {token}", ""
    return (")", "") if token.startswith(")") else (f" ({token} ", ")")
