"""Token scores add up to scores; alignments follow the largest attention."""

import json

import numpy as np
import pytest
import tensorflow as tf

from support import random_translator
from support.pairs import score_pairs
from support.rounding import approx_score
from t2t_lite.decoding.batching import Batching
from t2t_lite.decoding.stream import translate_lines
from t2t_lite.decoding.token_info import TokenDetails, argmax_alignment
from t2t_lite.errors import UsageError
from t2t_lite.tokenizers.base import EOS_ID, PAD_ID

LINES = [*random_translator.random_sentences(9), "", "ein haus\u3000é"]


@pytest.fixture(scope="module")
def translator(encoder):
    return random_translator.random_translator(encoder, layers=2)


@pytest.mark.slow
def test_details_add_fields_and_change_nothing_else(translator):
    details = TokenDetails(translator, token_scores=True, alignment="words")
    plain = translate_lines(translator, LINES, num_hypotheses=2)
    found = translate_lines(
        translator,
        LINES,
        num_hypotheses=2,
        batching=Batching(4),
        details=details,
    )
    added = {"pieces", "token_log_probabilities", "alignment"}
    for one, other in zip(plain, found, strict=True):
        one, other = json.loads(one.to_json()), json.loads(other.to_json())
        for ours, more in zip(
            one.pop("hypotheses"), other.pop("hypotheses"), strict=True
        ):
            assert more.keys() - ours.keys() == added
            assert (ours["text"], ours["tokens"]) == (
                more["text"],
                more["tokens"],
            )
            scores = more["token_log_probabilities"]
            assert len(scores) == len(more["tokens"]) == len(more["pieces"])
            # PAD, which no target of a corpus contains, has no score. The
            # penalty of a truncated hypothesis is that of its limit.
            if PAD_ID not in more["tokens"]:
                penalty = ((5 + len(scores)) / 6) ** translator.settings.alpha
                assert sum(scores) / penalty == approx_score(more["score"])
        assert one == other


def test_token_scores_of_a_pair_sum_to_its_score(translator):
    pairs = [*zip(LINES, reversed(LINES), strict=True), ("", "")]
    details = TokenDetails(translator)
    for result in score_pairs(translator, pairs, details=details):
        (pair,) = result.hypotheses
        ids = translator.target_encoder.encode([pair.text])[0].tolist()
        ids = [*ids[: translator.max_length - 1], EOS_ID]
        assert pair.pieces == translator.target_encoder.ids_to_pieces(ids)
        assert len(pair.token_log_probabilities) == len(ids)
        assert pair.tokens == ids
        assert sum(pair.token_log_probabilities) == approx_score(
            pair.log_probability
        )


def test_a_token_is_aligned_to_the_source_token_with_the_most_attention():
    weights = tf.constant(
        [[[0.2, 0.5, 0.3], [0.1, 0.2, 0.7], [0.6, 0.2, 0.2]]] * 3
    )
    inputs = tf.constant([[5, 6, 1], [5, 1, 0], [1, 0, 0]])
    targets = tf.constant([[7, 8, 1], [7, 1, 0], [7, 1, 0]])
    # EOS is not aligned, even if it has the most attention.
    assert argmax_alignment(weights, inputs, targets).numpy().tolist() == [
        [1, 1, -1],
        [0, -1, -1],
        [-1, -1, -1],
    ]


def test_the_heads_of_the_layer_are_averaged(translator, monkeypatch):
    """Set two heads to attend to token 2, one to token 0 and one to token 1."""
    index = 2
    source, target = "haus rot blau", "blau katze"
    ids = translator.source_encoder.encode([source, target])
    rows, columns = len(ids[1]) + 1, len(ids[0]) + 1
    for indices, each in zip(
        ([0, 2, 2, 1], [1, 1, 0, 2]),
        translator.model.decoder_layers,
        strict=True,
    ):
        weights = np.eye(columns, dtype=np.float32)[indices]  # [H, S]
        weights = np.repeat(weights[None, :, None], rows, axis=2)
        monkeypatch.setattr(
            each.cross_attention,
            "attention_weights",
            lambda x, bias, memory, weights=weights: tf.constant(weights),
        )
    details = TokenDetails(translator, alignment="words")
    (result,) = score_pairs(translator, [(source, target)], details=details)
    (word,) = translator.source_encoder.words_of_text(source)[index]
    assert result.hypotheses[0].alignment == [[word, 0], [word, 1]]


def test_an_unknown_alignment_is_refused(translator):
    with pytest.raises(UsageError, match="alignment.*got 'all'"):
        TokenDetails(translator, alignment="all")
