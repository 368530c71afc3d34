"""The model as a task of KerasHub: generation, training and presets."""

import importlib.util
import json
import os
import subprocess
import sys

import keras
import keras_hub
import numpy as np
import pytest
import tensorflow as tf

from support.places import ROOT
from support.random_translator import (
    random_model,
    random_sentences,
    train_encoder,
)
from t2t_lite.decoding.search.settings import SearchSettings
from t2t_lite.decoding.translator import Translator
from t2t_lite.errors import UsageError
from t2t_lite.keras_hub import T2TSeq2SeqLM
from t2t_lite.tokenizers.base import EOS_ID

LENGTH = 16  # of targets, the start token included
LINES = random_sentences(100)
SCRIPT = ROOT / "tests" / "support" / "keras_hub_on_another_backend.py"


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    return train_encoder(tmp_path_factory.mktemp("vocabulary"))


@pytest.fixture(scope="module")
def translator(encoder):
    """Greedy search with random weights, which gives diverse outputs."""
    return Translator(
        random_model(encoder.vocab_size, seed=3, shared_embedding=False),
        encoder,
        encoder,
        SearchSettings(beam_size=1, max_new_tokens=LENGTH - 1),
        max_length=20,
    )


@pytest.fixture(scope="module")
def greedy(translator):
    """Tokens of the greedy search of all lines, with EOS: [N, T]."""
    tokens = translator.translate(tf.constant(LINES))["tokens"].numpy()[:, 0]
    ended = (tokens == EOS_ID).any(axis=1)
    assert 5 < ended.sum() < 95
    assert len({tuple(row) for row in tokens}) > 50
    return tokens


@pytest.fixture(scope="module")
def model(translator):
    model = T2TSeq2SeqLM.from_translator(translator)
    model.compile(sampler="greedy")
    return model


def test_greedy_generation_equals_greedy_search(model, encoder, greedy):
    assert model.generate(LINES, max_length=LENGTH) == encoder.decode(greedy)
    one = model.generate(LINES[0], max_length=LENGTH)
    assert [one] == encoder.decode(greedy[:1])


# Samplers with a single candidate are greedy. `ContrastiveSampler` also reads
# the states of the decoder.
SAMPLERS = {
    "BeamSampler": {"num_beams": 1},
    "ContrastiveSampler": {"k": 3, "alpha": 0.0},
    "TopKSampler": {"k": 1},
    "TopPSampler": {"p": 1e-6},
    "RandomSampler": {"temperature": 1e-4},
}


@pytest.mark.parametrize("name", SAMPLERS)
def test_samplers_continue_forced_tokens(translator, greedy, name):
    task = T2TSeq2SeqLM.from_translator(translator)
    sampler = getattr(keras_hub.samplers, name)(**SAMPLERS[name])
    task.compile(sampler=sampler, run_eagerly=True)
    rows = np.flatnonzero((greedy != EOS_ID).all(axis=1))[:6]  # not ended
    sources = [LINES[row] for row in rows]
    features = task.preprocessor.generate_preprocess(
        sources, sequence_length=LENGTH
    )
    # The start token and 2, 3 or 4 tokens of the result.
    forced = np.arange(LENGTH) < 3 + np.arange(6)[:, None] % 3
    targets = np.pad(greedy[rows], ((0, 0), (1, 0)))
    features["decoder_token_ids"] = np.where(forced, targets, 0)
    features["decoder_padding_mask"] = forced
    task.preprocessor = None
    found = task.generate(features, stop_token_ids=(EOS_ID,))
    np.testing.assert_array_equal(found["decoder_token_ids"], targets)
    assert found["decoder_padding_mask"].all()


@pytest.mark.slow
def test_fit_reduces_the_loss_and_presets_keep_everything(translator, tmp_path):
    task = T2TSeq2SeqLM.from_translator(translator)
    task.compile(keras.optimizers.Adam(0.01), sampler="greedy")
    pairs = {"encoder_text": LINES, "decoder_text": LINES}
    losses = task.fit(pairs, batch_size=25, epochs=3, verbose=0).history["loss"]
    assert losses[2] < losses[1] < losses[0]
    task.save_to_preset(str(tmp_path))
    # The preset stores its class.
    same = keras_hub.models.Seq2SeqLM.from_preset(str(tmp_path))
    assert type(same) is T2TSeq2SeqLM
    assert same.get_config() == task.get_config() | {"name": same.name}
    for weight, saved in zip(task.weights, same.weights, strict=True):
        np.testing.assert_array_equal(weight, saved)
    ours, theirs = (each.preprocessor(pairs) for each in (task, same))
    keras.tree.map_structure(np.testing.assert_array_equal, ours, theirs)


def test_logits_equal_those_of_the_model(model, translator):
    pairs = {"encoder_text": LINES[:8], "decoder_text": LINES[8:16]}
    features, targets, _ = model.preprocessor(pairs)
    encoded, *_ = translator.encode_pairs(*map(tf.constant, pairs.values()))
    np.testing.assert_array_equal(
        targets[:, : encoded["targets"].shape[1]], encoded["targets"]
    )
    expected = translator.model(encoded).numpy()
    logits = model(features).numpy()[:, : expected.shape[1]]
    real = (encoded["targets"] != 0).numpy()
    np.testing.assert_allclose(logits[real], expected[real], atol=1e-5)
    states = model.backbone(features)["decoder_sequence_output"]
    assert states.shape == (8, 20, 16)


def test_two_vocabularies_are_refused(translator, encoder, tmp_path):
    other = train_encoder(tmp_path)
    with pytest.raises(UsageError, match="one vocabulary"):
        T2TSeq2SeqLM.from_translator(
            Translator(translator.model, encoder, other)
        )


@pytest.mark.slow
@pytest.mark.skipif(
    importlib.util.find_spec("jax") is None, reason="JAX is not installed"
)
def test_presets_generate_alike_and_train_on_jax(
    model, encoder, greedy, tmp_path
):
    model.save_to_preset(str(tmp_path / "preset"))
    expected = dict(zip(LINES, encoder.decode(greedy), strict=True))
    (tmp_path / "expected.json").write_text(json.dumps(expected))
    result = subprocess.run(
        [sys.executable, SCRIPT, tmp_path],
        env={**os.environ, "KERAS_BACKEND": "jax"},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert "runs on jax" in result.stdout, result.stderr
