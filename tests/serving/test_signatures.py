"""Every signature gives what the decoder gives, in numbers fit for JSON."""

import dataclasses
import json

import numpy as np
import pytest
import tensorflow as tf

from support.random_translator import random_translator, train_encoder
from support.rounding import assert_scores_close
from support.warmup import logged_requests
from t2t_lite.decoding.lines import score_pairs
from t2t_lite.errors import UsageError
from t2t_lite.model.attention_weights import attention_weights
from t2t_lite.model.ensemble import Ensemble
from t2t_lite.serving.export import export_saved_model
from t2t_lite.serving.options import ServingOptions
from t2t_lite.serving.served import (
    ServedTranslator,
    translator_to_serve,
)

SOURCES = ["eins zwei drei", "", "haus 😀", "katze " * 40, "   ", b"ein\xff"]
TARGETS = ["drei", "", "weiß " * 40, "haus", "hund maus", "rot\x00"]
SCORED = {
    *("scores", "log_probabilities", "lengths", "source_lengths", "cut"),
}
ALL = ServingOptions(prefixed=True, attention=True)


@pytest.fixture(scope="module")
def translator(tmp_path_factory):
    encoder = train_encoder(tmp_path_factory.mktemp("vocabulary"))
    return random_translator(encoder, layers=2)


@pytest.fixture(scope="module")
def folder(translator, tmp_path_factory):
    return export_saved_model(
        translator, tmp_path_factory.mktemp("e"), options=ALL, warmup=3
    )


@pytest.fixture(scope="module")
def served(folder):
    return tf.saved_model.load(str(folder)).signatures


def ask(signature, **texts):
    texts = {name: tf.constant(t, tf.string) for name, t in texts.items()}
    return {name: v.numpy() for name, v in signature(**texts).items()}


def inputs_of(signature):
    return list(signature.structured_input_signature[1])


def read_by(translator):
    """Tokens of each source, EOS included, none beyond the limit."""
    texts = tf.constant([text.strip() for text in SOURCES])
    ids = translator.source_encoder.tokenize(texts)
    return np.minimum(ids.row_lengths() + 1, translator.max_length)


def test_searches_tell_how_many_tokens_they_read(translator, served):
    for name in ("serving_default", "nbest"):
        found = ask(served[name], inputs=SOURCES)["source_lengths"]
        assert found.tolist() == read_by(translator).tolist()


@pytest.mark.parametrize("name", ["score", "prefixed", "attention"])
def test_a_text_without_its_pair_is_refused(served, name):
    for few, many in (("inputs", "other"), ("other", "inputs")):
        texts = {few: ["haus"], many: ["katze", "hund"]}
        (other,) = set(inputs_of(served[name])) - {"inputs"}
        texts[other] = texts.pop("other")
        with pytest.raises(
            tf.errors.InvalidArgumentError, match="each text needs its pair"
        ):
            ask(served[name], **texts)


def test_given_pairs_have_the_decoders_scores(translator, served):
    wanted = list(score_pairs(translator, zip(SOURCES, TARGETS, strict=True)))
    for size in (1, len(SOURCES)):
        found = [
            ask(
                served["score"],
                inputs=SOURCES[i : i + size],
                targets=TARGETS[i : i + size],
            )
            for i in range(0, len(SOURCES), size)
        ]
        assert all(set(each) == SCORED for each in found)
        for name, values in (
            ("scores", [pair.score for pair in wanted]),
            ("log_probabilities", [pair.log_probability for pair in wanted]),
            ("lengths", [pair.tokens for pair in wanted]),
            ("source_lengths", read_by(translator)),
            ("cut", [False, False, True, True, False, False]),
        ):
            given = np.concatenate([each[name] for each in found])
            assert_scores_close(given, values)


def test_an_empty_batch_gets_an_empty_batch(served):
    assert set(served) == {
        "serving_default",
        "nbest",
        "score",
        "prefixed",
        "attention",
    }
    for signature in served.values():
        empty = {name: [] for name in inputs_of(signature)}
        for value in ask(signature, **empty).values():
            assert value.shape[0] == 0


def test_the_first_dimension_is_the_batch_and_every_number_finite(served):
    for signature in served.values():
        assert all(
            value.shape[0] is None
            for value in signature.structured_outputs.values()
        )
        texts = {name: SOURCES for name in inputs_of(signature)}
        for value in ask(signature, **texts).values():
            assert value.shape[0] == len(SOURCES)
            if value.dtype == np.float32:
                assert np.isfinite(value).all()


@pytest.mark.slow
def test_a_damaged_model_gives_finite_numbers_too(tmp_path):
    translator = random_translator(train_encoder(tmp_path))
    for weight in translator.model.trainable_variables:
        weight.assign(weight.value * np.nan)
    answers = ServedTranslator(translator, ALL).answers
    for name, other in (
        ("serving_default", None),
        ("score", "targets"),
        ("attention", "targets"),
    ):
        texts = [tf.constant(["eins", ""])] * (2 if other else 1)
        for value in answers[name](*texts).values():
            if value.dtype == tf.float32:
                assert np.isfinite(value.numpy()).all()


def test_attention_is_that_of_each_pair_alone_and_zero_in_padding(
    translator, served
):
    found = ask(served["attention"], inputs=SOURCES, targets=TARGETS)
    assert found["cut"].tolist() == [False, False, True, True, False, False]
    for row, (source, target) in enumerate(zip(SOURCES, TARGETS, strict=True)):
        features, _, _ = translator.pairs(
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
            wanted[:, :, : sizes[0], : sizes[1]] = weights[name][:, 0]
            assert_scores_close(found[name][row], wanted)
        for side, size in (("source_tokens", s), ("target_tokens", t)):
            pieces = [piece.decode() for piece in found[side][row]]
            assert pieces[size - 1] == "⟨end⟩"
            assert "" not in pieces[:size]
            assert set(pieces[size:]) <= {""}
    shown = "".join(p.decode() for p in found["source_tokens"][0])
    assert "eins" in shown and "drei" in shown


def test_attention_needs_one_model(translator):
    one = translator.model
    ensemble = random_translator(translator.source_encoder, layers=2)
    ensemble.model = Ensemble([one, one])
    with pytest.raises(UsageError, match="leave out the ensemble"):
        translator_to_serve(ensemble, ALL)
    options = dataclasses.replace(ALL, attention=False)
    assert translator_to_serve(ensemble, options).model is ensemble.model


def test_an_export_says_what_it_is(translator, folder, served):
    about = json.loads((folder / "assets.extra" / "t2t-lite.json").read_text())
    assert about["format"] == 1
    assert about["problem"] is about["source_language"] is None
    assert about["signatures"] == list(served)
    assert about["parameters"] == sum(
        int(tf.size(weight)) for weight in translator.model.trainable_variables
    )
    assert about["hparams"]["num_hidden_layers"] == 2
    assert about["search"]["beam_size"] == 3
    assert (about["max_length"], about["max_batch"]) == (20, None)
    assert (about["precision"], about["form"]) == ("float32", None)


def test_warmup_asks_each_signature_at_several_lengths(
    translator, folder, served
):
    lengths = {name: [] for name in served}
    for request in logged_requests(folder):
        texts = {
            name: tf.make_ndarray(value)
            for name, value in request.inputs.items()
        }
        name = request.model_spec.signature_name
        assert set(texts) == set(inputs_of(served[name]))
        for value in ask(served[name], **texts).values():
            assert value.shape[0] == 1
        (ids,) = translator.source_encoder.tokenize(texts["inputs"])
        lengths[name].append(len(ids))
    for found in lengths.values():
        assert len(found) == 3 and found == sorted(found)
        assert found[-1] >= translator.max_length - 1  # the longest there is
