"""Signatures of exports: results equal to the decoder's, finite numbers."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from support.pairs import score_pairs
from support.random_translator import random_translator
from support.rounding import assert_scores_close
from t2t_lite.decoding.search.scores import NEG_INF
from t2t_lite.decoding.stream import translate_lines
from t2t_lite.errors import UsageError
from t2t_lite.model.attention_weights import attention_weights
from t2t_lite.model.ensemble import Ensemble
from t2t_lite.serving.options import ExportOptions
from t2t_lite.serving.signatures import ServingModule, translator_to_serve

SOURCES = ["eins zwei drei", "", "haus 😀", "katze " * 40, "   ", b"ein\xff"]
TARGETS = ["drei", "", "weiß " * 40, "haus", "hund maus", "rot\x00"]
ALL = ExportOptions(attention=True)


def call(signature, **texts):
    texts = {name: tf.constant(t, tf.string) for name, t in texts.items()}
    return {name: v.numpy() for name, v in signature(**texts).items()}


def inputs_of(signature):
    return list(signature.structured_input_signature[1])


def build_module(translator, **options):
    """Return the module of an export; the caller keeps its weights alive."""
    options = ExportOptions(**options)
    translator = translator_to_serve(translator, options)
    return ServingModule(translator, options)


def test_signatures_have_the_documented_inputs_and_outputs(served):
    assert set(served) == {"serving_default", "nbest", "score", "attention"}
    for name, shape in (("serving_default", [None]), ("nbest", [None, 3])):
        _, inputs = served[name].structured_input_signature
        assert inputs == {"inputs": tf.TensorSpec([None], tf.string, "inputs")}
        outputs = served[name].structured_outputs
        assert {
            n: (o.dtype, o.shape.as_list()) for n, o in outputs.items()
        } == {
            "outputs": (tf.string, shape),
            "scores": (tf.float32, shape),
            "lengths": (tf.int32, shape),
            "source_lengths": (tf.int32, [None]),
            "cut": (tf.bool, [None]),
        }


@pytest.mark.parametrize("name", ["serving_default", "nbest"])
def test_moved_export_translates_like_the_decoder(translator, served, name):
    lines = [*SOURCES, "zeile\u2028mit\x00allem", "eins"]
    wanted = list(translate_lines(translator, lines, num_hypotheses=3))
    for size in (1, 3, len(lines)):
        batches = [lines[i : i + size] for i in range(0, len(lines), size)]
        found = [call(served[name], inputs=batch) for batch in batches]
        found = {k: np.concatenate([x[k] for x in found]) for k in found[0]}
        for row, translation in enumerate(wanted):
            best = translation.hypotheses
            best = best if name == "nbest" else best[:1]
            texts = [text.decode() for text in np.ravel(found["outputs"][row])]
            missing = len(texts) - len(best)  # duplicates are dropped
            assert texts == [h.text for h in best] + [""] * missing
            scores = np.ravel(found["scores"][row])
            assert_scores_close(scores[: len(best)], [h.score for h in best])
            assert (scores[len(best) :] == NEG_INF).all()
        assert np.flatnonzero(found["cut"]).tolist() == [3]
    assert len(set(t.hypotheses[0].text for t in wanted)) > 4


def test_score_signature_gives_the_decoders_scores(translator, served):
    results = score_pairs(translator, zip(SOURCES, TARGETS, strict=True))
    wanted = [result.hypotheses[0] for result in results]
    texts = tf.constant([text.strip() for text in SOURCES])
    ids = translator.source_encoder.encode_tf(texts)
    read = np.minimum(ids.row_lengths() + 1, translator.max_length)
    expected = {
        "scores": [pair.score for pair in wanted],
        "log_probabilities": [pair.log_probability for pair in wanted],
        "lengths": [len(pair.tokens) for pair in wanted],
        "source_lengths": read,
        "cut": [False, False, True, True, False, False],
    }
    for size in (1, len(SOURCES)):
        found = [
            call(
                served["score"],
                inputs=SOURCES[i : i + size],
                targets=TARGETS[i : i + size],
            )
            for i in range(0, len(SOURCES), size)
        ]
        assert all(each.keys() == expected.keys() for each in found)
        for name, values in expected.items():
            given = np.concatenate([each[name] for each in found])
            assert_scores_close(given, values)


def test_attention_equals_that_of_each_pair_alone_and_is_zero_in_padding(
    translator, served
):
    found = call(served["attention"], inputs=SOURCES, targets=TARGETS)
    assert found["cut"].tolist() == [False, False, True, True, False, False]
    for row, (source, target) in enumerate(zip(SOURCES, TARGETS, strict=True)):
        features, _, _ = translator.encode_pairs(
            tf.constant([source]), tf.constant([target])
        )
        s, t = (features[name].shape[1] for name in ("inputs", "targets"))
        weights = attention_weights(translator.model, features)
        for name, sizes in (
            ("encoder", (s, s)),
            ("decoder", (t, t)),
            ("cross", (t, s)),
        ):
            wanted = np.zeros(found[name].shape[1:], np.float32)
            wanted[:, :, : sizes[0], : sizes[1]] = np.array(weights[name])[:, 0]
            assert_scores_close(found[name][row], wanted)
        for side, size in (("source_tokens", s), ("target_tokens", t)):
            pieces = [piece.decode() for piece in found[side][row]]
            assert pieces[size - 1] == "⟨end⟩"
            assert "" not in pieces[:size]
            assert set(pieces[size:]) <= {""}
    shown = "".join(p.decode() for p in found["source_tokens"][0])
    assert "eins" in shown and "drei" in shown


def test_attention_requires_one_model(translator):
    ensemble = random_translator(translator.source_encoder, layers=2)
    ensemble.model = Ensemble([translator.model] * 2)
    with pytest.raises(UsageError, match="ensemble"):
        translator_to_serve(ensemble, ALL)
    options = dataclasses.replace(ALL, attention=False)
    assert translator_to_serve(ensemble, options).model is ensemble.model


@pytest.mark.parametrize("name", ["score", "attention"])
def test_unequal_numbers_of_texts_are_rejected(served, name):
    (other,) = set(inputs_of(served[name])) - {"inputs"}
    for first, second in (("inputs", other), (other, "inputs")):
        texts = {first: ["haus"], second: ["katze", "hund"]}
        with pytest.raises(
            tf.errors.InvalidArgumentError, match="equally many"
        ):
            call(served[name], **texts)


@pytest.mark.parametrize("rows", [0, len(SOURCES)])
def test_outputs_have_a_batch_dimension_and_finite_numbers(served, rows):
    for signature in served.values():
        shapes = signature.structured_outputs.values()
        assert all(value.shape[0] is None for value in shapes)
        texts = {name: SOURCES[:rows] for name in inputs_of(signature)}
        for value in call(signature, **texts).values():
            assert value.shape[0] == rows
            assert value.dtype != np.float32 or np.isfinite(value).all()


@pytest.mark.slow
def test_model_with_nan_weights_gives_finite_numbers(encoder):
    translator = random_translator(encoder)
    for weight in translator.model.trainable_variables:
        weight.assign(weight.value * np.nan)
    module = build_module(translator, attention=True)
    for name, sides in (("serving_default", 1), ("score", 2), ("attention", 2)):
        texts = [tf.constant(["eins", ""])] * sides
        for value in module.functions[name](*texts).values():
            if value.dtype == tf.float32:
                assert np.isfinite(value.numpy()).all()


@pytest.mark.slow
def test_shorter_max_length_truncates_like_the_decoder(translator):
    module = build_module(translator, max_length=3)
    found = module.functions["serving_default"](tf.constant(SOURCES))
    assert found["cut"].numpy().tolist() == [True, False, True] * 2
    shorter = translator_to_serve(translator, ExportOptions(max_length=3))
    assert [text.decode() for text in found["outputs"].numpy()] == [
        each.hypotheses[0].text for each in translate_lines(shorter, SOURCES)
    ]


@pytest.mark.parametrize("limit", [1, 21])
def test_max_length_must_be_between_2_and_that_of_the_run(translator, limit):
    with pytest.raises(UsageError, match=f"max_length={limit}, .* has 20"):
        translator_to_serve(translator, ExportOptions(max_length=limit))


@pytest.mark.slow
@pytest.mark.parametrize("models", [1, 2])
def test_bfloat16_export_equals_a_model_with_rounded_weights(encoder, models):
    one, other = random_translator(encoder), random_translator(encoder, 2)
    if models == 2:
        one.model = Ensemble([one.model, other.model])
    module = build_module(one, precision="bfloat16")
    answers = module.functions
    texts, pairs = tf.constant(SOURCES), map(tf.constant, (SOURCES, TARGETS))
    found, scored = answers["nbest"](texts), answers["score"](*pairs)
    for weight in one.model.weights:
        weight.assign(tf.cast(tf.cast(weight.value, "bfloat16"), "float32"))
    wanted = one.translate(texts, 3)
    outputs, scores = wanted["outputs"].numpy(), wanted["scores"].numpy()
    earlier = np.tri(3, k=-1, dtype=bool)  # [hypothesis, earlier hypothesis]
    same = outputs[:, :, None] == outputs[:, None]
    is_duplicate = (same & earlier).any(axis=2)  # and is dropped
    outputs[is_duplicate], scores[is_duplicate] = b"", NEG_INF
    np.testing.assert_array_equal(found["outputs"], outputs)
    assert_scores_close(found["scores"], scores)
    wanted = one.score(*map(tf.constant, (SOURCES, TARGETS)))
    assert_scores_close(scored["scores"], wanted["scores"])
