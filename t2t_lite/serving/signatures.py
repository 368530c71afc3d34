"""The signatures of an export: graphs that take and return texts."""

import contextlib
from collections.abc import Callable
from typing import Any, TypeAlias

import keras
import tensorflow as tf

from t2t_lite.decoding.search.scores import NEG_INF, is_possible
from t2t_lite.decoding.token_info import END
from t2t_lite.decoding.translator import Translator
from t2t_lite.errors import UsageError
from t2t_lite.model.attention_weights import attention_weights
from t2t_lite.model.ensemble import Ensemble
from t2t_lite.serving.options import ExportOptions
from t2t_lite.tokenizers.base import EOS_ID, PAD_ID

Answers: TypeAlias = dict[str, tf.Tensor]

# Outputs with one value per text; other outputs have one per hypothesis.
_TEXT_OUTPUTS = ("source_lengths", "cut")


def translator_to_serve(
    translator: Translator, options: ExportOptions
) -> Translator:
    """Copy a translator with the length limit of an export.

    Raises:
      UsageError: the model, its settings or `options` cannot be exported.
    """
    max_length = options.max_length or translator.max_length
    if not 2 <= max_length <= translator.max_length:
        raise UsageError(
            "max_length must be from 2 to the max_length of the run (got "
            f"max_length={max_length}, run has {translator.max_length})."
        )
    if translator.settings.sample:
        raise UsageError("sample is not supported in an export: remove it.")
    is_free = not translator.settings.constrained
    if translator.constraint is not None and is_free:
        raise UsageError(
            "An export of this problem requires constrained search: add "
            "`constrained=true`."
        )
    if options.attention and isinstance(translator.model, Ensemble):
        raise UsageError(
            "The signature attention conflicts with an ensemble: remove one of "
            "them."
        )
    return translator.copy(max_length=max_length)


class ServingModule(tf.Module):
    """Weights, vocabularies and signatures of an export.

    docs/serving.md describes the signatures. The first dimension of every input
    and output is the batch, for batching servers. All numbers are finite, for
    strict JSON parsers.

    The translator is from `translator_to_serve`, with the same options.

    Attributes:
      functions: a function for each signature; its inputs are strings [B]. They
        are traced: `tf.saved_model.save` and the first call would each trace
        a `tf.function` again.
    """

    def __init__(self, translator: Translator, options: ExportOptions):
        super().__init__(name="served_translator")
        # Other variables of the model are for training only.
        model_weights = translator.model.weights
        self.weights = [weight.value for weight in model_weights]
        if options.precision != "float32":
            self.weights = [
                tf.Variable(tf.cast(weight, options.precision), trainable=False)
                for weight in self.weights
            ]
        self.encoders = [translator.source_encoder, translator.target_encoder]
        self.constraint = translator.constraint

        def with_weights(answer):
            def call(*values):
                with _use_weights(self.weights, model_weights):
                    return answer(*values)

            return call

        def signature(answer: Callable, *inputs: str) -> Callable:
            specs = [tf.TensorSpec([None], tf.string, name) for name in inputs]

            @tf.function(input_signature=specs, autograph=False)
            def serve(*texts):
                for other in texts[1:]:
                    sizes = map(tf.size, (texts[0], other))
                    reason = "inputs and targets need equally many texts"
                    tf.debugging.assert_equal(*sizes, reason)
                return answer(*texts)

            return serve.get_concrete_function()

        graph: Any = translator.graph(None)
        # Tracing the function again makes the graph use the stored weights. The
        # signatures share it, because a search takes seconds to trace.
        search = tf.function(
            with_weights(graph.python_function),
            input_signature=[
                tf.TensorSpec([None], tf.string),
                tf.TensorSpec([], tf.int32),
            ],
            autograph=False,
        )
        best = _translate(translator, search, nbest=False)
        nbest = _translate(translator, search, nbest=True)
        score = with_weights(_score(translator))
        self.functions = {
            "serving_default": signature(best, "inputs"),
            "nbest": signature(nbest, "inputs"),
            "score": signature(score, "inputs", "targets"),
        }
        if options.attention:
            answer = with_weights(attention(translator))
            self.functions["attention"] = signature(answer, "inputs", "targets")


def _use_weights(stored, model_weights):
    """Make a model use the stored weights, cast to the model's type."""
    values = [
        (weight, tf.cast(variable, weight.dtype))
        for variable, weight in zip(stored, model_weights, strict=True)
        if variable is not weight.value
    ]
    if not values:
        return contextlib.nullcontext()
    return keras.StatelessScope(state_mapping=values)


def _translate(
    translator: Translator, search: Callable, nbest: bool
) -> Callable[..., Answers]:
    """Return the signature `nbest`, or `serving_default` with outputs [B].

    `search(texts, N)` returns the outputs of `Translator.translate`.

    With an output constraint, `outputs` are complete, such as trees in
    brackets, and `targets` have the format of the training data.
    """
    count = translator.settings.beam_size if nbest else 1
    constraint = translator.constraint

    def answer(texts: tf.Tensor) -> Answers:
        outputs = search(texts, count)
        for name in ("outputs", "scores", "tokens"):
            outputs[name].set_shape([None, count, *outputs[name].shape[2:]])
        by_text = {name: outputs[name] for name in _TEXT_OUTPUTS}
        tokens = outputs["tokens"]
        answers = {name: outputs[name] for name in ("outputs", "scores")}
        answers["lengths"] = tf.math.count_nonzero(tokens, -1, dtype=tf.int32)
        if constraint is not None:
            answers["targets"] = outputs["outputs"]
            prepared = constraint.prepare(texts)
            answers["outputs"] = constraint.write(prepared, tokens)
        if nbest:
            answers = _distinct(answers)
        else:
            answers = {name: value[:, 0] for name, value in answers.items()}
        return answers | by_text

    return answer


def _distinct(answers: Answers) -> Answers:
    """Replace hypotheses [B, K] whose text a better one has; they come last."""
    texts = answers["outputs"]
    is_equal = texts[:, :, None] == texts[:, None, :]
    rank = tf.range(tf.shape(texts)[1])
    repeated = tf.reduce_any(is_equal & (rank < rank[:, None]), axis=2)
    order = tf.argsort(tf.cast(repeated, tf.int32), axis=1, stable=True)
    missing = {"scores": NEG_INF, "lengths": 0}  # others are texts
    for name, value in answers.items():
        value = tf.where(repeated, missing.get(name, ""), value)
        answers[name] = tf.gather(value, order, batch_dims=1)
    return answers


def _score(translator: Translator) -> Callable[..., Answers]:
    def answer(sources: tf.Tensor, targets: tf.Tensor) -> Answers:
        outputs = translator.score_graph.python_function(sources, targets)
        # A damaged model computes NaN or infinity, which JSON does not support.
        possible = is_possible(outputs["log_probabilities"])
        finite = {
            name: tf.where(possible, outputs[name], NEG_INF)
            for name in ("scores", "log_probabilities")
        }
        others = {name: outputs[name] for name in ("lengths", *_TEXT_OUTPUTS)}
        return finite | others

    return answer


def attention(translator: Translator) -> Callable[..., Answers]:
    """Return the signature `attention`.

    Its outputs are pieces `source_tokens` [B, S] and `target_tokens` [B, T];
    weights `encoder` [B, N, H, S, S], `decoder` [B, N, H, T, T], where column t
    is the token before row t, and `cross` [B, N, H, T, S]; and `cut` [B].
    """
    model = translator.single_model
    pieces = []  # pieces by id, of the source and the target vocabulary
    for encoder in (translator.source_encoder, translator.target_encoder):
        pieces.append(encoder.ids_to_pieces(range(encoder.vocab_size)))
        pieces[-1][PAD_ID], pieces[-1][EOS_ID] = "", END

    def answer(sources: tf.Tensor, targets: tf.Tensor) -> Answers:
        features, _, truncated = translator.encode_pairs(sources, targets)
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
            "cut": truncated,
        }

    return answer


def _without_padding(layers: list[tf.Tensor], real: tf.Tensor) -> tf.Tensor:
    """Stack the weights of N layers, with 0 for NaN and padding.

    `real`, bool [B, T], is False for padding.
    """
    weights = tf.stack(layers, axis=1)  # [B, N, H, T, S]
    is_valid = real[:, None, None, :, None] & tf.math.is_finite(weights)
    return tf.where(is_valid, weights, 0.0)
