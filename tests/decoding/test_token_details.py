"""What is told of tokens: their scores add up, their sources are the looked at.

The searches are those of a model with random weights.
"""

import numpy as np
import pytest
import tensorflow as tf

from support.random_translator import (
    random_sentences,
    random_translator,
)
from support.rounding import approx_score
from t2t_lite.decoding.lines import score_pairs, translate_lines
from t2t_lite.decoding.token_details import (
    TokenDetails,
    most_attended,
    pairs_of_words,
    pharaoh,
    prefixes_of,
)
from t2t_lite.errors import UsageError
from t2t_lite.text.encoder import EOS_ID, PAD_ID

LINES = [*random_sentences(9), "", "ein haus\u3000é"]


@pytest.fixture(scope="module")
def translator(encoder):
    return random_translator(encoder, layers=2)


@pytest.mark.parametrize("count", [1, 3])
def test_scores_of_tokens_sum_to_that_of_the_hypothesis(translator, count):
    details = TokenDetails(translator, token_scores=True)
    found = translate_lines(
        translator, LINES, num_hypotheses=count, details=details
    )
    for translation in found:
        for each in translation.hypotheses:
            assert len(each.token_log_probabilities) == len(each.tokens)
            assert each.pieces == translator.target_encoder.pieces(each.tokens)
            if PAD_ID in each.tokens:
                continue  # no target of a corpus has it
            # A hypothesis that was cut has the penalty of the limit.
            length = len(each.tokens)
            penalty = ((5 + length) / 6) ** translator.settings.alpha
            total = sum(each.token_log_probabilities) / penalty
            assert total == approx_score(each.score)


def test_details_change_nothing_else(translator):
    details = TokenDetails(translator, token_scores=True, alignment="tokens")
    plain = translate_lines(translator, LINES, num_hypotheses=2)
    told = translate_lines(
        translator, LINES, num_hypotheses=2, batch_size=4, details=details
    )
    names = {"pieces", "token_log_probabilities", "alignment"}
    for one, other in zip(plain, told, strict=True):
        one, other = one.to_dict(), other.to_dict()
        assert other.pop("source_pieces") is not None
        for ours, more in zip(
            one.pop("hypotheses"), other.pop("hypotheses"), strict=True
        ):
            assert more.keys() - ours.keys() == names
            assert [ours[n] for n in ("text", "tokens")] == [
                more[n] for n in ("text", "tokens")
            ]
        assert one == other


def test_scores_of_a_given_pair_sum_to_its_own(translator):
    pairs = [*zip(LINES, reversed(LINES), strict=True), ("", "")]
    details = TokenDetails(translator, alignment="tokens")
    for pair in score_pairs(translator, pairs, details=details):
        ids = translator.target_encoder.encode([pair.target])[0].tolist()
        ids = [*ids[: translator.max_length - 1], EOS_ID]
        assert pair.pieces == translator.target_encoder.pieces(ids)
        assert len(pair.token_log_probabilities) == pair.tokens == len(ids)
        assert sum(pair.token_log_probabilities) == approx_score(
            pair.log_probability
        )
        # Every token but EOS has one source token, if there is any.
        targets = [target for _, target in pair.alignment]
        assert targets == list(range(len(ids) - 1) if pair.source else ())
        sources = {source for source, _ in pair.alignment}
        assert sources <= set(range(len(pair.source_pieces)))
    (plain,) = score_pairs(translator, pairs[:1])
    assert plain.to_dict().keys() == (
        {"line", "source", "target", "score", "log_probability", "tokens"}
    )


def test_a_token_is_from_the_source_token_that_is_looked_at_most():
    weights = tf.constant(
        [[[0.2, 0.5, 0.3], [0.1, 0.2, 0.7], [0.6, 0.2, 0.2]]] * 3
    )
    inputs = tf.constant([[5, 6, 1], [5, 1, 0], [1, 0, 0]])
    targets = tf.constant([[7, 8, 1], [7, 1, 0], [7, 1, 0]])
    # Not from EOS, even where it is looked at most; and EOS is from nothing.
    assert most_attended(weights, inputs, targets).numpy().tolist() == [
        [1, 1, -1],
        [0, -1, -1],
        [-1, -1, -1],
    ]


def test_prefixes_say_what_the_first_tokens_do(translator):
    encoder = translator.target_encoder
    ids = encoder.encode(["ein haus\u3000é", "rot"])
    tokens = tf.ragged.constant([[*each, EOS_ID] for each in ids]).to_tensor()
    prefixes = prefixes_of(encoder, tf.cast(tokens, tf.int32)).numpy()
    for row, each in zip(prefixes.tolist(), ids, strict=True):
        expected = encoder.decode([each[: n + 1] for n in range(len(row))])
        assert [text.decode() for text in row] == expected


def test_words_are_aligned_if_any_of_their_tokens_are():
    # ein_haus -> a _small_house
    source = [range(0, 1), range(1, 2), range(1, 2)]
    target = [range(0, 1), range(0), range(1, 3)]
    pairs = [(0, 0), (2, 1), (1, 2), (2, 2)]
    found = pairs_of_words(pairs, source, target)
    assert found == [(0, 0), (1, 1), (1, 2)]
    assert pharaoh(found) == "0-0 1-1 1-2"


def test_the_stated_layer_is_asked_and_its_heads_are_averaged(
    translator, monkeypatch
):
    """Heads that look at 0 and 1 lose to the two that look at 2."""
    source, target = "haus rot blau", "blau katze"
    ids = translator.source_encoder.encode([source, target])
    rows, columns = len(ids[1]) + 1, len(ids[0]) + 1

    def of(*places):
        weights = np.zeros((1, len(places), rows, columns), np.float32)
        for head, place in enumerate(places):
            weights[0, head, :, place] = 1
        return tf.constant(weights)

    for number, layer in enumerate(translator.model.decoder_layers):
        places = ([0, 2, 2, 1], [1, 1, 0, 2])[number]
        monkeypatch.setattr(
            layer.cross_attention,
            "weights_of",
            lambda x, bias, memory, places=places: of(*places),
        )
    for layer, place in ((None, 2), (1, 2), (2, 1)):
        details = TokenDetails(
            translator, alignment="tokens", alignment_layer=layer
        )
        (pair,) = score_pairs(translator, [(source, target)], details=details)
        assert {s for s, _ in pair.alignment} == {place}
        words = TokenDetails(
            translator, alignment="words", alignment_layer=layer
        )
        (pair,) = score_pairs(translator, [(source, target)], details=words)
        (word,) = translator.source_encoder.words_of_text(source)[place]
        assert pair.alignment == [[word, 0], [word, 1]]


def test_words_of_an_alignment_are_words_of_the_texts(translator):
    details = TokenDetails(translator, alignment="words")
    for translation in translate_lines(translator, LINES, details=details):
        (best,) = translation.hypotheses
        assert {s for s, _ in best.alignment} <= set(
            range(len(translation.source.split()))
        )
        if translation.source:
            assert {t for _, t in best.alignment} == set(
                range(len(best.text.split()))
            )


def test_what_cannot_be_told_is_refused(translator):
    for message, options in (
        ("one of tokens, words; got 'all'", {"alignment": "all"}),
        (
            "from 1 to the model's 2; got",
            {"alignment": "words", "alignment_layer": 3},
        ),
        ("goes with alignment", {"alignment_layer": 1}),
    ):
        with pytest.raises(UsageError, match=message):
            TokenDetails(translator, **options)
