"""Ids of a model beyond its vocabulary never become text."""

import numpy as np
import pytest
import tensorflow as tf

from support.pairs import score_pairs
from support.random_translator import random_model, random_sentences
from support.rounding import approx_score
from t2t_lite.decoding.search.settings import SearchSettings
from t2t_lite.decoding.stream import translate_lines
from t2t_lite.decoding.token_info import TokenDetails
from t2t_lite.decoding.translator import Translator, on_one_line
from t2t_lite.tokenizers.base import UNK_ID


@pytest.fixture(scope="module")
def make(encoder):
    """Make a translator that prefers the ids beyond its vocabulary."""
    size = encoder.vocab_size
    model = random_model(size, vocab_divisor=size + 5)
    assert model.vocab_sizes == (size + 5,) * 2
    table = np.random.default_rng(1).normal(0, 0.7, model.weights[0].shape)
    table[size:] *= 3
    model.softmax_embedding.table.assign(table)
    return lambda **settings: Translator(
        model,
        encoder,
        encoder,
        SearchSettings(beam_size=3, **settings),
        extra_decode_length=6,
        max_length=20,
    )


@pytest.mark.slow
@pytest.mark.parametrize("sample", [False, True])
def test_ids_beyond_are_searched_but_not_in_texts(make, encoder, sample):
    translator = make(sample=sample)
    beyond = 0
    for translation in translate_lines(
        translator,
        [*random_sentences(4), ""],
        num_hypotheses=3,
        details=TokenDetails(translator, token_scores=True, alignment="words"),
    ):
        for each in translation.hypotheses:
            size = encoder.vocab_size
            ids = [i if i < size else UNK_ID for i in each.tokens]
            beyond += ids.count(UNK_ID)
            assert len(each.pieces) == len(each.tokens)
            assert len(each.token_log_probabilities) == len(each.tokens)
            text = on_one_line(encoder.decode_tf(tf.constant([ids])))
            assert each.text == text[0].numpy().decode()
    assert beyond > 5


def test_pairs_are_scored_over_all_ids(make):
    translator = make()
    (result,) = score_pairs(translator, [["eins", "zwei"]])
    (pair,) = result.hypotheses
    features, _, _ = translator.encode_pairs(
        tf.constant(["eins"]), tf.constant(["zwei"])
    )
    logits = translator.model(features)
    assert logits.shape[-1] == translator.target_encoder.vocab_size + 5
    expected = tf.nn.sparse_softmax_cross_entropy_with_logits(
        features["targets"], logits
    )
    assert pair.log_probability == approx_score(-float(tf.reduce_sum(expected)))
