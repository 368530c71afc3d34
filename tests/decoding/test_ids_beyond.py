"""A model may have more ids than its vocabulary: they are never text."""

import numpy as np
import pytest
import tensorflow as tf

from support.random_translator import random_sentences
from support.rounding import approx_score
from t2t_lite.decoding.lines import score_pairs, translate_lines
from t2t_lite.decoding.search.settings import SearchSettings
from t2t_lite.decoding.texts import on_one_line
from t2t_lite.decoding.token_details import TokenDetails
from t2t_lite.decoding.translator import Translator
from t2t_lite.model.transformer import Transformer
from t2t_lite.text.encoder import UNK_ID

LINES = [*random_sentences(4), ""]


@pytest.fixture(scope="module")
def translator(encoder):
    """One that likes the ids beyond its vocabulary best."""
    model = Transformer(
        encoder.vocab_size,
        hidden_size=16,
        filter_size=32,
        num_heads=2,
        num_hidden_layers=1,
        vocab_divisor=encoder.vocab_size + 5,
    ).build_weights()
    assert model.vocab_sizes == (encoder.vocab_size + 5,) * 2
    table = np.random.default_rng(1).normal(0, 0.7, model.weights[0].shape)
    table[encoder.vocab_size :] *= 3
    model.softmax_embedding.table.assign(table)
    return Translator(
        model,
        encoder,
        encoder,
        SearchSettings(beam_size=3),
        extra_decode_length=6,
        max_length=20,
    )


@pytest.mark.slow
@pytest.mark.parametrize("sample", [False, True])
def test_what_is_beyond_is_searched_and_not_written(translator, sample):
    encoder = translator.target_encoder
    size = encoder.vocab_size
    if sample:
        translator = Translator(
            translator.model,
            encoder,
            encoder,
            SearchSettings(beam_size=3, sample=True),
            extra_decode_length=6,
            max_length=20,
        )
    details = TokenDetails(translator, token_scores=True, alignment="words")
    found = translate_lines(
        translator, LINES, num_hypotheses=3, details=details
    )
    beyond = 0
    for translation in found:
        for each in translation.hypotheses:
            known = [i if i < size else UNK_ID for i in each.tokens]
            beyond += known.count(UNK_ID)
            assert len(each.pieces) == len(each.tokens)
            assert len(each.token_log_probabilities) == len(each.tokens)
            text = on_one_line(encoder.detokenize(tf.constant([known])))
            assert each.text == text[0].numpy().decode()
    assert beyond > 5


def test_pairs_are_scored_over_all_ids(translator):
    (pair,) = score_pairs(translator, [["eins", "zwei"]])
    features, _, _ = translator.pairs(
        tf.constant(["eins"]), tf.constant(["zwei"])
    )
    logits = translator.model(features)
    assert logits.shape[-1] == translator.target_encoder.vocab_size + 5
    expected = tf.nn.sparse_softmax_cross_entropy_with_logits(
        features["targets"], logits
    )
    assert pair.log_probability == approx_score(-float(tf.reduce_sum(expected)))
