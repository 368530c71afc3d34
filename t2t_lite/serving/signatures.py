"""The signatures of an export: graphs from text to text."""

import contextlib
import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeAlias

import keras
import tensorflow as tf

from t2t_lite.decoding.search.state import NEG_INF, is_possible
from t2t_lite.decoding.token_info import END
from t2t_lite.decoding.translator import Translator
from t2t_lite.errors import UsageError
from t2t_lite.model.attention_weights import attention_weights
from t2t_lite.model.ensemble import Ensemble
from t2t_lite.tokenizers.base import EOS_ID, PAD_ID

Answers: TypeAlias = dict[str, tf.Tensor]
Precision: TypeAlias = Literal["float32", "bfloat16"]

# Outputs of a search that exist once for each text, not for each hypothesis.
_OF_TEXTS = ("source_lengths", "cut")


@dataclasses.dataclass(frozen=True)
class ServingOptions:
    """The options of an export."""

    attention: bool = False  # add the signature `attention`
    precision: Precision = "float32"  # of the stored weights
    max_length: int | None = None  # source tokens, EOS included


def translator_to_serve(
    translator: Translator, options: ServingOptions
) -> Translator:
    """Return a translator with the limit of an export.

    Raises:
      UsageError: the model or its search cannot be exported with the options.
    """
    longest = options.max_length or translator.max_length
    if not 2 <= longest <= translator.max_length:
        raise UsageError(
            "max_length must be from 2 to the max_length of the run (got "
            f"max_length={longest}, run has {translator.max_length})."
        )
    if translator.settings.sample:
        raise UsageError("An export does not support sample: leave it out.")
    if (
        translator.constraint is not None
        and not translator.settings.constrained
    ):
        raise UsageError(
            "An export for trees requires a constrained search: give "
            "`constrained=true`."
        )
    if options.attention and isinstance(translator.model, Ensemble):
        raise UsageError(
            "The signature attention requires one model: leave out the "
            "ensemble, or attention."
        )
    return Translator(
        translator.model,
        translator.source_encoder,
        translator.target_encoder,
        translator.settings,
        extra_decode_length=translator.extra_decode_length,
        max_length=longest,
        constraint=translator.constraint,
    )


class ServedTranslator(tf.Module):
    """Weights, vocabularies and signatures of an export.

    docs/serving.md describes the signatures. The first dimension of every
    input and output is the batch, and every number is finite, as batching
    servers and strict JSON parsers require.

    Args:
      translator: from `translator_to_serve`.
      options: as given to `translator_to_serve`.

    Attributes:
      answers: a `tf.function` of string [batch] tensors for each signature.
    """

    def __init__(self, translator: Translator, options: ServingOptions):
        super().__init__(name="served_translator")
        # Only the weights: other variables of the model are for training.
        of_model = translator.model.weights
        self.weights = [weight.value for weight in of_model]
        if options.precision != "float32":
            self.weights = [
                tf.Variable(tf.cast(weight, options.precision), trainable=False)
                for weight in self.weights
            ]
        self.encoders = [translator.source_encoder, translator.target_encoder]
        self.constraint = translator.constraint

        def signature(answer: Callable, *inputs: str) -> Callable:
            @tf.function(
                input_signature=[
                    tf.TensorSpec([None], tf.string, name) for name in inputs
                ],
                autograph=False,
            )
            def serve(*texts):
                for other in texts[1:]:
                    tf.debugging.assert_equal(
                        *map(tf.size, (texts[0], other)),
                        "each text needs its pair",
                    )
                with _reading(self.weights, of_model):
                    return answer(*texts)

            return serve

        search = _search(translator, translator.settings.beam_size)
        pair = ("inputs", "targets")
        self.answers = {
            "serving_default": signature(_best(translator), "inputs"),
            "nbest": signature(search, "inputs"),
            "score": signature(_score(translator), *pair),
        }
        if options.attention:
            self.answers["attention"] = signature(_attention(translator), *pair)


def _reading(
    stored: Sequence[tf.Variable], of_model: Sequence[Any]
) -> contextlib.AbstractContextManager:
    """Let a model read the stored weights, cast to its own type."""
    values = [
        (weight, tf.cast(kept, weight.dtype))
        for kept, weight in zip(stored, of_model, strict=True)
        if kept is not weight.value
    ]
    if not values:
        return contextlib.nullcontext()
    return keras.StatelessScope(state_mapping=values)


def _search(translator: Translator, count: int) -> Callable[..., Answers]:
    """Return the signature `nbest`, of `count` hypotheses.

    `outputs` of models with a form are complete, such as trees in brackets;
    `targets` are as in the training data.
    """
    # Traced again, so that the graph reads the weights of the signature.
    graph: Any = translator.graph(count)
    constraint = translator.constraint

    def answer(texts: tf.Tensor) -> Answers:
        found = graph.python_function(texts)
        answers = {
            name: found[name] for name in ("outputs", "scores", *_OF_TEXTS)
        }
        answers["lengths"] = tf.math.count_nonzero(
            found["tokens"], axis=-1, dtype=tf.int32
        )
        if constraint is None:
            return answers
        written = constraint.write(constraint.prepare(texts), found["tokens"])
        return {**answers, "outputs": written, "targets": found["outputs"]}

    return answer


def _best(translator: Translator) -> Callable[..., Answers]:
    """Return the signature `serving_default`; values [B]."""
    search = _search(translator, 1)

    def answer(texts: tf.Tensor) -> Answers:
        return {
            name: value if name in _OF_TEXTS else value[:, 0]
            for name, value in search(texts).items()
        }

    return answer


def _score(translator: Translator) -> Callable[..., Answers]:
    """Return the signature `score` of given translations; values [B]."""

    def answer(sources: tf.Tensor, targets: tf.Tensor) -> Answers:
        found = translator.score_graph.python_function(sources, targets)
        # JSON has no NaN and no infinity, which a damaged model computes.
        possible = is_possible(found["log_probabilities"])
        finite = {
            name: tf.where(possible, found[name], NEG_INF)
            for name in ("scores", "log_probabilities")
        }
        return {**finite, **{n: found[n] for n in ("lengths", *_OF_TEXTS)}}

    return answer


def _attention(translator: Translator) -> Callable[..., Answers]:
    """Return the signature `attention`: tokens [B, S], [B, T] and weights."""
    model = translator.single_model
    pieces = []  # of each vocabulary by id
    for encoder in (translator.source_encoder, translator.target_encoder):
        pieces.append(encoder.ids_to_pieces(range(encoder.vocab_size)))
        pieces[-1][PAD_ID], pieces[-1][EOS_ID] = "", END

    def answer(sources: tf.Tensor, targets: tf.Tensor) -> Answers:
        features, _, cut = translator.encode_pairs(sources, targets)
        inputs, targets = features["inputs"], features["targets"]
        weights = attention_weights(model, features)
        queries = {"encoder": inputs, "decoder": targets, "cross": targets}
        return {
            "source_tokens": tf.gather(pieces[0], inputs),
            "target_tokens": tf.gather(pieces[1], targets),
            **{
                name: _without_padding(weights[name], ids != PAD_ID)
                for name, ids in queries.items()
            },
            "cut": cut,
        }

    return answer


def _without_padding(weights: tf.Tensor, real: tf.Tensor) -> tf.Tensor:
    """Return weights [N, B, H, T, S] as [B, N, H, T, S], 0 for NaN and padding.

    `real`, bool [B, T], is False in padding.
    """
    weights = tf.transpose(weights, [1, 0, 2, 3, 4])
    wanted = real[:, None, None, :, None] & tf.math.is_finite(weights)
    return tf.where(wanted, weights, 0.0)
