"""What a model says of each target token: how likely it is, and its source.

One pass with the target given tells it, so a search stays as it is.
"""

import functools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from t2t_lite.decoding.engine import Engine
from t2t_lite.decoding.texts import prepare, with_eos
from t2t_lite.decoding.translator import Translator
from t2t_lite.errors import UsageError
from t2t_lite.model.attention_weights import source_attention
from t2t_lite.text.encoder import EOS_ID, TextEncoder
from t2t_lite.text.words import words_of_prefixes

ALIGNMENTS = ("tokens", "words")
# What `tell` needs to know, by name.
KNOWN = {"token_log_probabilities", "sources", "prefixes"}
_NONE = -1  # in place of a source token
# How the ends of a target are shown beside its pieces.
START = "⟨start⟩"
END = "⟨end⟩"


class TokenDetails:
    """Tells of each token of given targets what is asked for.

    A target token is aligned to the source token, EOS left out, that the
    position which chooses it attends to most, averaged over the heads of one
    decoder layer (arXiv:1909.02074). Two words are aligned if any
    of their tokens are.

    Args:
      translator: whose model and encoders to use.
      token_scores: the log-probability of each token of hypotheses; pairs that
        are scored have it anyway.
      alignment: of "tokens" or "words"; None: this is not asked.
      alignment_layer: of the decoder, from 1; None: the last but one, as there.

    Raises:
      UsageError: the engine does not let look into its model; there is no such
        layer; or the answers have a form, such as trees, and so no words.
    """

    def __init__(
        self,
        translator: Engine,
        *,
        token_scores: bool = False,
        alignment: str | None = None,
        alignment_layer: int | None = None,
    ):
        self._translator = translator
        self._scores = token_scores
        self._alignment = alignment
        aligned = alignment is not None or alignment_layer is not None
        if token_scores or aligned:
            if not isinstance(translator, Translator):
                raise UsageError(
                    "token_scores and alignment look into a model in "
                    "TensorFlow: leave out the other backend."
                )
            if aligned:
                _, layers = translator.one_model.hparams.layers
                has_form = translator.form is not None
                _check(alignment, alignment_layer, layers, has_form)
                self._layer = alignment_layer or max(1, layers - 1)
        self._graph = functools.cache(self._new_graph)
        # Asked for each hypothesis of a source, one after another.
        words_of_text = translator.source_encoder.words_of_text
        self._source_words = functools.lru_cache(maxsize=1)(words_of_text)

    def of_hypotheses(
        self, translator: Engine, texts: tf.Tensor, tokens: tf.Tensor
    ) -> dict[str, tf.Tensor]:
        """As `of_targets`, for N targets of each source: [B, N, ...].

        Args:
          translator: whose model to ask; a replica of the one given before.
          texts: tf.string [B], the sources.
          tokens: int32 [B, N, L]; EOS, then zeros.
        """
        # One after another: they take no more memory than the search did.
        graph = self._graph(translator)
        told = [graph(texts, row) for row in tf.unstack(tokens, axis=1)]
        return {
            name: tf.stack([each[name] for each in told], axis=1)
            for name in told[0]
        }

    def of_targets(
        self, translator: Engine, texts: tf.Tensor, tokens: tf.Tensor
    ) -> dict[str, tf.Tensor]:
        """What `tell` needs to know, by name: [B, ...].

        Args:
          translator: whose model to ask; a replica of the one given before.
          texts: tf.string [B], the sources.
          tokens: int32 [B, T], a target of each; EOS, then zeros.
        """
        if not (self._scores or self._alignment):
            return {}
        return self._graph(translator)(texts, tokens)

    def _new_graph(self, translator):
        return tf.function(
            functools.partial(self._pass, translator),
            input_signature=[
                tf.TensorSpec([None], tf.string),
                tf.TensorSpec([None, None], tf.int32),
            ],
            autograph=False,
        )

    def _pass(self, translator, texts, tokens):
        inputs, _, _ = with_eos(
            translator.source_encoder.tokenize(prepare(texts, translator.form)),
            translator.max_length,
        )
        features = {"inputs": inputs, "targets": tokens}
        told = {}
        if self._scores:
            scores = translator.model.token_log_probs(features)
            told["token_log_probabilities"] = scores
        if self._alignment:
            weights = source_attention(
                translator.one_model, features, self._layer
            )
            told["sources"] = most_attended(weights, inputs, tokens)
        if self._alignment == "words":
            told["prefixes"] = prefixes_of(translator.target_encoder, tokens)
        return told

    def tell(
        self,
        source: str,
        tokens: Sequence[int],
        known: Mapping[str, np.ndarray],
        target: str | None = None,
    ) -> dict[str, Any]:
        """What is told of one target, fit for JSON.

        Args:
          source: the text.
          tokens: of the target, EOS included.
          known: of this target, from `of_targets`; or with the scores of
            `Translator.score`.
          target: the text, where it is given; None: what the tokens say.

        Returns: some of `pieces`, `token_log_probabilities`, both with the EOS,
          and `alignment`, pairs [source, target] from 0 in the target's order.
        """
        encoder = self._translator.target_encoder
        told: dict[str, Any] = {}
        scores = known.get("token_log_probabilities")
        if scores is not None or self._alignment == "tokens":
            told["pieces"] = encoder.pieces(tokens)
        if scores is not None:
            told["token_log_probabilities"] = scores[: len(tokens)].tolist()
        if self._alignment:
            pairs = [
                (int(start), end)
                for end, start in enumerate(known["sources"][: len(tokens)])
                if start != _NONE
            ]
            if self._alignment == "words":
                if target is None:
                    prefixes = known["prefixes"][: len(tokens)].tolist()
                    words = words_of_prefixes(prefixes)
                else:
                    words = encoder.words_of_text(target)
                pairs = pairs_of_words(pairs, self._source_words(source), words)
            told["alignment"] = [list(pair) for pair in pairs]
        return told

    def source_pieces(self, source: str) -> list[str] | None:
        """What an alignment of tokens names in the source; else None."""
        if self._alignment != "tokens":
            return None
        encoder = self._translator.source_encoder
        (ids,) = encoder.tokenize(
            prepare(tf.constant([source]), self._translator.form)
        )
        return encoder.pieces(ids[: self._translator.max_length - 1].numpy())


def most_attended(
    weights: tf.Tensor, inputs: tf.Tensor, targets: tf.Tensor
) -> tf.Tensor:
    """The source token that each target token looks at most.

    Args:
      weights: float32 [B, T, S].
      inputs: int32 [B, S].
      targets: int32 [B, T].

    Returns: int32 [B, T]; -1 for EOS and padding, and where the source has
      nothing but these.
    """
    readable, written = (ids > EOS_ID for ids in (inputs, targets))
    weights = tf.where(readable[:, None], weights, -1.0)
    best = tf.argmax(weights, axis=-1, output_type=tf.int32)
    exists = written & tf.reduce_any(readable, axis=-1, keepdims=True)
    return tf.where(exists, best, _NONE)


def prefixes_of(encoder: TextEncoder, tokens: tf.Tensor) -> tf.Tensor:
    """The text of the first 1, 2, ... tokens: tf.string [B, T].

    Args:
      encoder: whose tokens they are.
      tokens: int32 [B, T].
    """
    batch, length = tf.unstack(tf.shape(tokens))
    seen = tf.sequence_mask(tf.range(1, length + 1), length, tokens.dtype)
    rows = tf.reshape(tokens[:, None] * seen, [batch * length, length])
    return tf.reshape(encoder.detokenize(rows), [batch, length])


def pairs_of_words(
    pairs: Iterable[tuple[int, int]],
    source_words: Sequence[range],
    target_words: Sequence[range],
) -> list[tuple[int, int]]:
    """The words that pairs of tokens align, each once, in the target's order.

    Args:
      pairs: (source token, target token).
      source_words: the words that each token lies in.
      target_words: likewise.
    """
    words = {
        (target, source)
        for i, j in pairs
        for source in source_words[i]
        for target in target_words[j]
    }
    return [(source, target) for target, source in sorted(words)]


def pharaoh(alignment: Iterable[Sequence[int]]) -> str:
    """[[0, 0], [2, 1]] as "0-0 2-1"."""
    return " ".join(f"{source}-{target}" for source, target in alignment)


def _check(alignment, layer, layers, has_form):
    if alignment not in (None, *ALIGNMENTS):
        raise UsageError(
            f"alignment must be one of {', '.join(ALIGNMENTS)}; got "
            f"{alignment!r}."
        )
    if layer is not None and not (alignment and 1 <= layer <= layers):
        raise UsageError(
            "alignment_layer goes with alignment and is from 1 to the model's "
            f"{layers}; got alignment_layer={layer}, alignment={alignment}."
        )
    if alignment == "words" and has_form:
        raise UsageError(
            "Answers that have a form, such as trees, have no words to align; "
            "got alignment=words. Choose alignment=tokens."
        )
