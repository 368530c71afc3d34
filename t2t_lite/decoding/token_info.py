"""Scores and source alignments of single target tokens.

One pass of the model over given targets computes them, so a search stays as it
is.
"""

import functools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from t2t_lite.decoding.translator import (
    Engine,
    Translator,
    encode_sources,
    prepare,
)
from t2t_lite.errors import UsageError
from t2t_lite.model.attention_weights import source_attention
from t2t_lite.text.encoder import EOS_ID, words_of_prefixes

ALIGNMENTS = ("tokens", "words")
_NONE = -1  # in place of a source token
# Shown in place of the ends of a target.
START = "⟨start⟩"
END = "⟨end⟩"


class TokenDetails:
    """Adds scores and alignments to the results of a translator.

    A target token is aligned to the source token, EOS left out, that gets the
    most attention from the position that predicts it, averaged over the heads
    of the last but one decoder layer (arXiv:1909.02074). Two words are aligned
    if any of their tokens are.

    Args:
      translator: the engine, whose encoders are used.
      token_scores: add the log-probability of each token of hypotheses; scored
        pairs have it anyway.
      alignment: of "tokens" or "words"; None: none.

    Raises:
      UsageError: the engine is not a `Translator` of one model, or answers with
        a form, such as trees, have no words.
    """

    def __init__(
        self,
        translator: Engine,
        *,
        token_scores: bool = False,
        alignment: str | None = None,
    ):
        self._translator = translator
        self._scores = token_scores
        self._alignment = alignment
        requested = token_scores or alignment is not None
        if requested and not isinstance(translator, Translator):
            raise UsageError(
                "token_scores and alignment require TensorFlow: leave out "
                "the other backend."
            )
        if alignment not in (None, *ALIGNMENTS):
            raise UsageError(
                f"alignment must be one of {', '.join(ALIGNMENTS)}; got "
                f"{alignment!r}."
            )
        if alignment == "words" and translator.form is not None:
            raise UsageError(
                "alignment=words conflicts with answers that have a form, such "
                "as trees: choose alignment=tokens."
            )
        if alignment and isinstance(translator, Translator):
            _, layers = translator.one_model.hparams.layers
            self._layer = max(1, layers - 1)
        self._graph = functools.cache(self._new_graph)
        # Used for each hypothesis of a source, one after another.
        words_of_text = translator.source_encoder.words_of_text
        self._source_words = functools.lru_cache(maxsize=1)(words_of_text)

    def compute(
        self, translator: Engine, texts: tf.Tensor, tokens: tf.Tensor
    ) -> dict[str, tf.Tensor]:
        """Return the values that `describe` needs, by name, as `tokens`.

        Args:
          translator: the engine, or a replica of it.
          texts: tf.string [B], the sources.
          tokens: int32 [B, T], a target of each, or [B, N, T], N targets of
            each; EOS, then zeros.
        """
        if not (self._scores or self._alignment):
            return {}
        graph = self._graph(translator)
        if len(tokens.shape) == 2:
            return graph(texts, tokens)
        # One after another: they take no more memory than the search did.
        found = [graph(texts, row) for row in tf.unstack(tokens, axis=1)]
        return {
            name: tf.stack([each[name] for each in found], axis=1)
            for name in found[0]
        }

    def _new_graph(self, translator):
        @tf.function(
            input_signature=[
                tf.TensorSpec([None], tf.string),
                tf.TensorSpec([None, None], tf.int32),
            ],
            autograph=False,
        )
        def compute(texts, tokens):
            inputs, _, _ = encode_sources(translator, texts)
            features = {"inputs": inputs, "targets": tokens}
            found = {}
            if self._scores:
                found["token_log_probabilities"] = (
                    translator.model.token_log_probs(features)
                )
            if self._alignment:
                found["sources"] = argmax_alignment(
                    source_attention(
                        translator.one_model, features, self._layer
                    ),
                    inputs,
                    tokens,
                )
            return found

        return compute

    def describe(
        self,
        source: str,
        tokens: Sequence[int],
        row: Mapping[str, np.ndarray],
        target: str | None = None,
    ) -> dict[str, Any]:
        """Return the fields to add to a result.

        Args:
          source: the text.
          tokens: of the target, EOS included.
          row: values of this target, from `compute` or `Translator.score`.
          target: the text, if it is given; None: the text of the tokens.

        Returns:
          Some of `pieces` and `token_log_probabilities`, both with the EOS, and
          `alignment`, pairs [source, target] from 0 in the target's order.
        """
        encoder = self._translator.target_encoder
        fields: dict[str, Any] = {}
        scores = row.get("token_log_probabilities")
        if scores is not None or self._alignment == "tokens":
            fields["pieces"] = encoder.pieces(tokens)
        if scores is not None:
            fields["token_log_probabilities"] = scores[: len(tokens)].tolist()
        if self._alignment:
            pairs = [
                (int(start), end)
                for end, start in enumerate(row["sources"][: len(tokens)])
                if start != _NONE
            ]
            if self._alignment == "words":
                if target is None:
                    ends = range(1, len(tokens) + 1)
                    prefixes = encoder.decode([tokens[:end] for end in ends])
                    words = words_of_prefixes(prefixes)
                else:
                    words = encoder.words_of_text(target)
                pairs = pairs_of_words(pairs, self._source_words(source), words)
            fields["alignment"] = [list(pair) for pair in pairs]
        return fields

    def source_pieces(self, source: str) -> list[str] | None:
        """Return the source tokens that an alignment of tokens counts."""
        if self._alignment != "tokens":
            return None
        encoder = self._translator.source_encoder
        (ids,) = encoder.tokenize(
            prepare(tf.constant([source]), self._translator.form)
        )
        return encoder.pieces(ids[: self._translator.max_length - 1].numpy())


def argmax_alignment(
    weights: tf.Tensor, inputs: tf.Tensor, targets: tf.Tensor
) -> tf.Tensor:
    """Return the source token with the highest weight for each target token.

    Args:
      weights: float32 [B, T, S].
      inputs: int32 [B, S].
      targets: int32 [B, T].

    Returns:
      int32 [B, T]; -1 for EOS and padding, and where the source has only these.
    """
    readable, written = (ids > EOS_ID for ids in (inputs, targets))
    weights = tf.where(readable[:, None], weights, -1.0)
    best = tf.argmax(weights, axis=-1, output_type=tf.int32)
    exists = written & tf.reduce_any(readable, axis=-1, keepdims=True)
    return tf.where(exists, best, _NONE)


def pairs_of_words(
    pairs: Iterable[tuple[int, int]],
    source_words: Sequence[range],
    target_words: Sequence[range],
) -> list[tuple[int, int]]:
    """Return the words that pairs of tokens align, in the target's order.

    Args:
      pairs: (source token, target token).
      source_words: the words of each source token.
      target_words: the words of each target token.
    """
    words = {
        (target, source)
        for i, j in pairs
        for source in source_words[i]
        for target in target_words[j]
    }
    return [(source, target) for target, source in sorted(words)]


def pharaoh(alignment: Iterable[Sequence[int]]) -> str:
    """Return [[0, 0], [2, 1]] as "0-0 2-1"."""
    return " ".join(f"{source}-{target}" for source, target in alignment)
