"""What an export computes: its signatures, graphs from text to text."""

import contextlib
import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

import keras
import tensorflow as tf

from t2t_lite.decoding.search.log_probs import IMPOSSIBLE, is_possible
from t2t_lite.decoding.token_details import END
from t2t_lite.decoding.translator import Translator
from t2t_lite.errors import UsageError
from t2t_lite.model.attention_weights import attention_weights
from t2t_lite.model.ensemble import Ensemble
from t2t_lite.model.transformer import Transformer
from t2t_lite.serving.options import Precision, ServingOptions
from t2t_lite.text.encoder import EOS_ID, PAD_ID, TextEncoder

Answers: TypeAlias = dict[str, tf.Tensor]

# What a search says of a text, and not of each of its hypotheses.
_OF_TEXTS = ("source_lengths", "cut")
# The type of every output, by name.
_TYPES = {
    **dict.fromkeys(("outputs", "targets"), tf.string),
    **dict.fromkeys(("source_tokens", "target_tokens"), tf.string),
    **dict.fromkeys(("scores", "log_probabilities"), tf.float32),
    **dict.fromkeys(("encoder", "decoder", "cross"), tf.float32),
    **dict.fromkeys(("lengths", "source_lengths"), tf.int32),
    "cut": tf.bool,
}


def translator_to_serve(
    translator: Translator, options: ServingOptions
) -> Translator:
    """A translator with the weights and the limit that an export is to have.

    The one that is given stays as it is.

    Raises:
      UsageError: more tokens are asked for than it takes, or another rule of
        `ServedTranslator` is broken.
    """
    longest = options.max_length or translator.max_length
    if not 2 <= longest <= translator.max_length:
        raise UsageError(
            "An export takes from 2 tokens of a text, EOS included, to those "
            f"of its run; got max_length={longest}, and the run has "
            f"{translator.max_length}."
        )
    if translator.settings.sample:
        raise UsageError("An export searches: leave out sample.")
    if translator.form is not None and not translator.settings.constrained:
        raise UsageError(
            "A server cannot repair answers, so its search must be "
            "constrained to their form. Export with --constrained=true."
        )
    if options.attention and isinstance(translator.model, Ensemble):
        raise UsageError(
            "The signature attention looks into one model: leave out the "
            "ensemble, or attention."
        )
    model = translator.model
    if options.precision != "float32":
        model = _rounded(model, options.precision)
    return Translator(
        model,
        translator.source_encoder,
        translator.target_encoder,
        translator.settings,
        extra_decode_length=translator.extra_decode_length,
        max_length=longest,
        form=translator.form,
    )


def _rounded(
    model: Transformer | Ensemble, precision: Precision
) -> Transformer | Ensemble:
    """A copy of a model, with weights that a type can hold."""
    if isinstance(model, Ensemble):
        return Ensemble([_copy(each, precision) for each in model.models])
    return _copy(model, precision)


def _copy(model: Transformer, precision: Precision) -> Transformer:
    copy = Transformer.from_config(model.get_config()).build_weights()
    for new, old in zip(copy.weights, model.weights, strict=True):
        new.assign(tf.cast(tf.cast(old.value, precision), old.dtype))
    return copy


class ServedTranslator(tf.Module):
    """What an export holds: weights, vocabularies and signatures.

    docs/serving.md says what each signature takes and gives. The first
    dimension of every input and output is the batch, and every number is
    finite, as batching servers and strict JSON readers need.

    Args:
      translator: from `translator_to_serve`.
      options: likewise.

    Attributes:
      answers: what each signature gives, by its name: a `tf.function` of
        string [batch] tensors.
    """

    def __init__(self, translator: Translator, options: ServingOptions):
        super().__init__(name="served_translator")
        # The export holds only the weights of the model: its other variables
        # are for training, and the server does not know its classes.
        of_model = translator.model.weights
        self.weights = [weight.value for weight in of_model]
        if options.precision != "float32":
            self.weights = [
                tf.Variable(tf.cast(weight, options.precision), trainable=False)
                for weight in self.weights
            ]
        self.encoders = [translator.source_encoder, translator.target_encoder]
        self.form = translator.form

        def signature(answer: Callable, *inputs: str) -> Callable:
            @tf.function(
                input_signature=[
                    tf.TensorSpec([None], tf.string, name) for name in inputs
                ],
                autograph=False,
            )
            def serve(*texts):
                _require_equally_many(texts)
                with _reading(self.weights, of_model):
                    return answer(*texts)

            return serve

        beam_size, most = translator.settings.beam_size, options.max_batch
        pair = ("inputs", "targets")
        self.answers = {
            "serving_default": signature(_best(translator, most), "inputs"),
            "nbest": signature(_search(translator, beam_size, most), "inputs"),
            "score": signature(_score(translator, most), *pair),
        }
        if options.prefixed:
            self.answers["prefixed"] = signature(
                _best(translator, most, ("prefix",)), "inputs", "prefix"
            )
        if options.attention:
            self.answers["attention"] = signature(
                _attention(translator, most), *pair
            )


def _require_equally_many(inputs: Sequence[tf.Tensor]) -> None:
    """Refuses a batch in which a row of one would stand for several others."""
    first, *others = inputs
    for other in others:
        tf.debugging.assert_equal(
            tf.size(first), tf.size(other), "each text needs its pair"
        )


def _reading(
    stored: Sequence[tf.Variable], of_model: Sequence[Any]
) -> contextlib.AbstractContextManager:
    """Within it, a model reads the weights that are stored, as its own type."""
    values = [
        (weight, tf.cast(kept, weight.dtype))
        for kept, weight in zip(stored, of_model, strict=True)
        if kept is not weight.value
    ]
    if not values:
        return contextlib.nullcontext()
    return keras.StatelessScope(state_mapping=values)


def _search(
    translator: Translator,
    count: int,
    most: int | None,
    columns: tuple[str, ...] = (),
) -> Callable[..., Answers]:
    """Translates texts, with values [B, count]; those of texts are [B].

    `lengths` are the tokens of each answer, EOS included.

    Answers that have a form are written in it, trees in brackets, and are
    `targets` as they are in the training data.
    """
    # Traced anew, so that the graph is of the signature and of its weights.
    graph: Any = translator.graph(count, columns)
    form = translator.form

    def answer(texts: tf.Tensor, *asked: tf.Tensor) -> Answers:
        found = graph.python_function(texts, *asked)
        answers = {
            name: found[name] for name in ("outputs", "scores", *_OF_TEXTS)
        }
        answers["lengths"] = tf.math.count_nonzero(
            found["tokens"], axis=-1, dtype=tf.int32
        )
        if form is None:
            return answers
        written = form.write(form.prepare(texts), found["tokens"])
        return {**answers, "outputs": written, "targets": found["outputs"]}

    names = ["outputs", "scores", "lengths", *_OF_TEXTS]
    names += ["targets"] if form else []
    return functools.partial(_in_parts, answer, names, most)


def _best(
    translator: Translator, most: int | None, columns: tuple[str, ...] = ()
) -> Callable[..., Answers]:
    """Translates texts, with values [B]."""
    search = _search(translator, 1, most, columns)

    def answer(*texts: tf.Tensor) -> Answers:
        return {
            name: value if name in _OF_TEXTS else value[:, 0]
            for name, value in search(*texts).items()
        }

    return answer


def _score(translator: Translator, most: int | None) -> Callable[..., Answers]:
    """Scores given translations, as the decoder does; values [B]."""
    numbers = ("scores", "log_probabilities")
    others = ("lengths", *_OF_TEXTS)

    def answer(sources: tf.Tensor, targets: tf.Tensor) -> Answers:
        found = translator.score_graph.python_function(sources, targets)
        # A damaged model says NaN or infinity, and JSON has no word for them.
        possible = is_possible(found["log_probabilities"])
        finite = {
            name: tf.where(possible, found[name], IMPOSSIBLE)
            for name in numbers
        }
        return {**finite, **{name: found[name] for name in others}}

    return functools.partial(_in_parts, answer, (*numbers, *others), most)


def _attention(
    translator: Translator, most: int | None
) -> Callable[..., Answers]:
    """Tokens [B, S], [B, T], and what every head attends to, 0 in padding."""
    model = translator.one_model
    shown = [
        _shown_pieces(encoder)
        for encoder in (translator.source_encoder, translator.target_encoder)
    ]

    # Which side's tokens attend.
    sides = {"encoder": "inputs", "decoder": "targets", "cross": "targets"}

    def attend(inputs: tf.Tensor, targets: tf.Tensor) -> Answers:
        features = {"inputs": inputs, "targets": targets}
        weights = attention_weights(model, features)
        return {
            name: _clean(weights[name], features[side] != PAD_ID)
            for name, side in sides.items()
        }

    def answer(sources: tf.Tensor, targets: tf.Tensor) -> Answers:
        features, _, cut = translator.pairs(sources, targets)
        inputs, targets = features["inputs"], features["targets"]
        return {
            "source_tokens": tf.gather(shown[0], inputs),
            "target_tokens": tf.gather(shown[1], targets),
            **_in_parts(attend, tuple(sides), most, inputs, targets),
            "cut": cut,
        }

    return answer


def _shown_pieces(encoder: TextEncoder) -> list[str]:
    """The vocabulary by id, as people are shown it."""
    pieces = encoder.pieces(range(encoder.vocab_size))
    pieces[PAD_ID], pieces[EOS_ID] = "", END
    return pieces


def _clean(weights: tf.Tensor, real: tf.Tensor) -> tf.Tensor:
    """Weights [N, B, H, rows, columns] as [B, N, H, ...], 0 in padding.

    Args:
      weights: what padding has of its own is not wanted; nor is a NaN.
      real: bool [B, rows].
    """
    weights = tf.transpose(weights, [1, 0, 2, 3, 4])
    wanted = real[:, None, None, :, None] & tf.math.is_finite(weights)
    return tf.where(wanted, weights, 0.0)


def _in_parts(
    answer: Callable[..., Answers],
    names: Iterable[str],
    most: int | None,
    *batch: tf.Tensor,
) -> Answers:
    """What `answer` gives for a batch, computed for so many rows at a time.

    Args:
      answer: gives tensors with a row for each row it is given, the other
        dimensions being equal for all parts of the batch.
      names: of what it gives, see `_TYPES`.
      most: rows of a part; None: all.
      batch: tensors with equal first dimensions.
    """
    if most is None:
        return answer(*batch)
    rows = tf.shape(batch[0])[0]
    shapes: dict[str, tf.TensorShape] = {}
    # One part even of an empty batch, so that there are parts to join.
    count = tf.maximum((rows + most - 1) // most, 1)

    def step(index, joined):
        part = answer(*(x[index * most : (index + 1) * most] for x in batch))
        shapes.update({name: value.shape[1:] for name, value in part.items()})
        return index + 1, {
            name: joined[name].write(index, value)
            for name, value in part.items()
        }

    _, joined = tf.while_loop(
        lambda index, _: index < count,
        step,
        (
            tf.constant(0),
            {
                name: tf.TensorArray(_TYPES[name], count, infer_shape=False)
                for name in names
            },
        ),
    )
    return {
        name: tf.ensure_shape(parts.concat(), [None, *shapes[name]])
        for name, parts in joined.items()
    }
