"""Limits and the type of weights change an export as they say, no more."""

import numpy as np
import pytest
import tensorflow as tf

from support.random_translator import random_translator, train_encoder
from support.rounding import assert_scores_close
from t2t_lite.decoding.lines import translate_lines
from t2t_lite.errors import UsageError
from t2t_lite.model.ensemble import Ensemble
from t2t_lite.serving.export import export_saved_model
from t2t_lite.serving.options import ServingOptions
from t2t_lite.serving.served import ServedTranslator, translator_to_serve

TEXTS = ["eins zwei drei", "", "haus", "katze " * 9, "maus rot"]
TARGETS = ["drei", "zwei eins", "", "haus", "weiß " * 30]


@pytest.fixture(scope="module")
def translator(tmp_path_factory):
    return random_translator(train_encoder(tmp_path_factory.mktemp("v")))


def answers_of(translator, **options):
    options = ServingOptions(**options)
    translator = translator_to_serve(translator, options)
    return ServedTranslator(translator, options).answers


@pytest.mark.slow
def test_a_batch_worked_through_in_parts_gets_the_same_answers(translator):
    whole = answers_of(translator, attention=True)
    parts = answers_of(translator, attention=True, max_batch=2)
    assert set(whole) == set(parts)
    for name in ("nbest", "score", "attention"):
        answer = whole[name]
        for rows in (len(TEXTS), 2, 0):
            texts = [TEXTS, TARGETS][: len(answer.input_signature)]
            batch = [tf.constant(side[:rows], tf.string) for side in texts]
            wanted, found = answer(*batch), parts[name](*batch)
            assert set(wanted) == set(found)
            for output, value in wanted.items():
                assert found[output].shape == value.shape
                if value.dtype == tf.float32:
                    assert_scores_close(found[output], value)
                else:
                    np.testing.assert_array_equal(found[output], value)


def test_a_shorter_limit_cuts_as_a_decoder_with_it(translator):
    answer = answers_of(translator, max_length=3)["serving_default"]
    found = answer(tf.constant(TEXTS))
    assert found["cut"].numpy().tolist() == [True, False, False, True, False]
    shorter = translator_to_serve(translator, ServingOptions(max_length=3))
    notes = []
    wanted = list(
        translate_lines(shorter, TEXTS, note=lambda line, _: notes.append(line))
    )
    assert notes == [1, 4]
    assert [text.decode() for text in found["outputs"].numpy()] == [
        each.hypotheses[0].text for each in wanted
    ]


@pytest.mark.parametrize("limit", [1, 21])
def test_a_limit_is_at_most_that_of_the_run(translator, limit):
    with pytest.raises(UsageError, match=f"got max_length={limit}, .* has 20"):
        translator_to_serve(translator, ServingOptions(max_length=limit))


@pytest.mark.slow
def test_bfloat16_halves_the_weights_and_answers_as_rounded_ones_do(
    translator, tmp_path
):
    before = [np.array(weight) for weight in translator.model.weights]
    folder = export_saved_model(
        translator, tmp_path, options=ServingOptions(precision="bfloat16")
    )
    stored = tf.train.load_checkpoint(str(folder / "variables" / "variables"))
    types = stored.get_variable_to_dtype_map()
    weights = [types[name] for name in types if name.startswith("weights/")]
    assert weights == [tf.bfloat16] * len(before)
    for value, weight in zip(before, translator.model.weights, strict=True):
        np.testing.assert_array_equal(weight, value)
        weight.assign(tf.cast(tf.cast(weight.value, "bfloat16"), "float32"))
    wanted = translator.translate(tf.constant(TEXTS), 3)
    pairs = tf.constant(TEXTS), tf.constant(TARGETS)
    scored = translator.score(*pairs)
    for value, weight in zip(before, translator.model.weights, strict=True):
        weight.assign(value)
    served = tf.saved_model.load(str(folder)).signatures
    found = served["nbest"](tf.constant(TEXTS))
    np.testing.assert_array_equal(found["outputs"], wanted["outputs"])
    assert_scores_close(found["scores"], wanted["scores"])
    found = served["score"](inputs=pairs[0], targets=pairs[1])
    assert_scores_close(found["scores"], scored["scores"])


def test_every_model_of_an_ensemble_is_rounded(translator):
    ensemble = random_translator(translator.source_encoder)
    ensemble.model = Ensemble([translator.model, ensemble.model])
    options = ServingOptions(precision="bfloat16")
    rounded = translator_to_serve(ensemble, options).model
    assert len(rounded.models) == 2
    for new, old in zip(rounded.weights, ensemble.model.weights, strict=True):
        wanted = tf.cast(tf.cast(old.value, "bfloat16"), "float32")
        np.testing.assert_array_equal(new, wanted)
