"""Log-probabilities and source alignments of target tokens.

One forward pass over the finished targets computes them, so the search does
not change.
"""

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from t2t_lite.decoding.results import Hypothesis
from t2t_lite.decoding.translator import Engine, Translator, encode_sources
from t2t_lite.errors import UsageError
from t2t_lite.model.attention_weights import attention_weights
from t2t_lite.tokenizers.base import EOS_ID, words_of_prefixes
from t2t_lite.validators import check, one_of, optional

_ALIGNMENT = optional(one_of("words"))
_TEXTS = tf.TensorSpec([None], tf.string)
_TOKENS = tf.TensorSpec([None, None], tf.int32)
_NONE = -1  # index of a source token that does not exist
END = "⟨end⟩"  # displayed for EOS


class TokenDetails:
    """Adds token log-probabilities and alignments to results.

    The position that predicts a target token aligns it to the source token, EOS
    excluded, with the largest attention weight, averaged over the heads of the
    penultimate decoder layer (arXiv:1909.02074). Two words are aligned if any
    of their tokens are.

    The `alignment` is "words", or None. Scored pairs always contain token
    scores; `token_scores` adds them to translations.

    Raises:
      UsageError: the engine is not a `Translator` of one model, the alignment
        is unknown, or an output constraint, such as trees, conflicts with it.
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
        self._aligns = check("alignment", alignment, _ALIGNMENT) is not None
        if token_scores or self._aligns:
            if not isinstance(translator, Translator):
                raise UsageError(
                    "token_scores and alignment require a run; got an export."
                )
            if self._aligns:
                _, layers = translator.single_model.hparams.num_layers
                self._layer = max(1, layers - 1)
        if self._aligns and translator.constraint is not None:
            raise UsageError(
                "alignment is not supported for constrained outputs, such as "
                "trees: remove it."
            )
        self._graph = functools.cache(self._new_graph)
        # All hypotheses of a source come one after another.
        words_of_text = translator.source_encoder.words_of_text
        self._source_words = functools.lru_cache(maxsize=1)(words_of_text)

    def compute(
        self, translator: Engine, texts: tf.Tensor, tokens: tf.Tensor
    ) -> dict[str, tf.Tensor]:
        """Compute the values that `add` needs.

        Args:
          translator: the engine or one of its replicas.
          texts: sources, tf.string [B].
          tokens: N targets per source, int32 [B, N, T]; EOS, then zeros.

        Returns:
          If requested, `token_log_probabilities` and `sources` [B, N, T].
        """
        if not (self._scores or self._aligns):
            return {}
        graph = self._graph(translator)
        # One hypothesis at a time needs no more memory than the search.
        columns = [graph(texts, row) for row in tf.unstack(tokens, axis=1)]
        return {
            name: tf.stack([each[name] for each in columns], axis=1)
            for name in columns[0]
        }

    def _new_graph(self, translator):
        @tf.function(input_signature=[_TEXTS, _TOKENS], autograph=False)
        def compute(texts, tokens):
            inputs, _, _ = encode_sources(translator, texts)
            features = {"inputs": inputs, "targets": tokens}
            outputs = {}
            if self._scores:
                scores = translator.model.token_log_probs(features)
                outputs["token_log_probabilities"] = scores
            if self._aligns:
                layers = attention_weights(translator.single_model, features)
                weights = layers["cross"][self._layer - 1]  # [B, H, T, S]
                mean = tf.reduce_mean(weights, axis=1)  # of the heads
                outputs["sources"] = argmax_alignment(mean, inputs, tokens)
            return outputs

        return compute

    def add(
        self,
        hypothesis: Hypothesis,
        source: str,
        outputs: Mapping[str, np.ndarray],
        index: tuple[int, int],
    ) -> Hypothesis:
        """Add the requested details of its tokens to a hypothesis.

        `outputs` are from `compute` or `Translator.score`, and `index` is the
        index of the hypothesis in them.
        """
        encoder = self._translator.target_encoder
        tokens = hypothesis.tokens or []
        fields: dict[str, Any] = {}
        if "token_log_probabilities" in outputs:
            scores = outputs["token_log_probabilities"][index]
            fields["pieces"] = encoder.ids_to_pieces(tokens)
            fields["token_log_probabilities"] = scores[: len(tokens)].tolist()
        if self._aligns:
            if hypothesis.log_probability is None:
                ends = range(1, len(tokens) + 1)
                prefixes = encoder.decode([tokens[:end] for end in ends])
                words = words_of_prefixes(prefixes)
            else:
                words = encoder.words_of_text(hypothesis.text, len(tokens))
            length = self._translator.max_length
            pairs = {
                (target_word, source_word)
                for token, aligned in enumerate(outputs["sources"][index])
                if aligned != _NONE and token < len(tokens)
                for source_word in self._source_words(source, length)[aligned]
                for target_word in words[token]
            }
            fields["alignment"] = [[s, t] for t, s in sorted(pairs)]
        return dataclasses.replace(hypothesis, **fields)


def argmax_alignment(
    weights: tf.Tensor, inputs: tf.Tensor, targets: tf.Tensor
) -> tf.Tensor:
    """Return the source token with the largest weight for each target token.

    `weights` are [B, T, S], `inputs` [B, S] and `targets` [B, T]. The result is
    int32 [B, T]; -1 for EOS and padding, and for an empty source.
    """
    is_source, is_target = (ids > EOS_ID for ids in (inputs, targets))
    weights = tf.where(is_source[:, None], weights, -1.0)
    best = tf.argmax(weights, axis=-1, output_type=tf.int32)
    exists = is_target & tf.reduce_any(is_source, axis=-1, keepdims=True)
    return tf.where(exists, best, _NONE)
