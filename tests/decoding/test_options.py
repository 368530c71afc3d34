"""What is asked of a translation, through the whole graph.

The searches are those of a model with random weights.
"""

import functools

import numpy as np
import pytest
import tensorflow as tf

from support.random_translator import (
    random_model,
    random_sentences,
)
from t2t_lite.decoding.lines import translate_lines
from t2t_lite.decoding.search.settings import SearchSettings
from t2t_lite.decoding.streams.requests import Request
from t2t_lite.decoding.translator import Translator
from t2t_lite.errors import UsageError
from t2t_lite.model.attention_weights import attention_weights
from t2t_lite.model.ensemble import Ensemble
from t2t_lite.text.encoder import EOS_ID

LINES = random_sentences(12)


@pytest.fixture(scope="module")
def searching(encoder, model):
    """Makes a translator with some settings, once."""

    @functools.cache
    def make(*, model=model, extra_decode_length=8, **settings):
        return Translator(
            model,
            encoder,
            encoder,
            SearchSettings(**{"beam_size": 3, **settings}),
            extra_decode_length=extra_decode_length,
            max_length=20,
        )

    return make


def found(translator, lines, count=1, **options):
    """All hypotheses of each line."""
    options = {"note": lambda *_: None, **options}
    answers = translate_lines(
        translator, lines, num_hypotheses=count, **options
    )
    return [answer.hypotheses for answer in answers]


def assert_same(some, others):
    """Equal texts and tokens, and scores up to the order of sums."""
    for one, other in zip(some, others, strict=True):
        assert [x.tokens for x in one] == [x.tokens for x in other]
        assert [x.text for x in one] == [x.text for x in other]
        scores = [[x.score for x in each] for each in (one, other)]
        np.testing.assert_allclose(*scores, atol=1e-3)


def test_a_line_and_its_seed_give_one_text(searching):
    translator = searching(sample=True, temperature=1.5)
    lines = [Request(line, seed=i % 3) for i, line in enumerate(LINES)]
    together = found(translator, lines, 4, batch_size=12)
    for line, wanted in zip(lines, together, strict=True):
        assert_same(found(translator, [line], 4), [wanted])
    assert len({each.text for each in together[0]}) > 1
    scores = [each.score for each in together[0]]
    assert scores == sorted(scores, reverse=True)
    # Fewer samples are some of them; another seed gives others.
    (alone,) = found(translator, lines[:1], 1)
    assert alone[0].text in {each.text for each in together[0]}
    other = found(translator, [Request(LINES[0], seed=9)], 4)[0]
    assert {x.text for x in other} != {x.text for x in together[0]}
    # The seed of the settings is that of lines which name none.
    assert_same(
        found(translator, LINES[:1], 4),
        found(translator, [Request(LINES[0], seed=1)], 4),
    )


def test_a_sample_has_the_score_of_its_pair(searching):
    translator = searching(sample=True, temperature=0.8, top_k=20, top_p=0.9)
    for hypotheses, line in zip(
        found(translator, LINES[:4], 3), LINES, strict=False
    ):
        for each in hypotheses:
            targets = np.array([each.tokens])
            scored = translator.model.token_log_probs(
                {"inputs": _ids(translator, line), "targets": targets}
            )
            length = ((5 + len(each.tokens)) / 6) ** 0.6
            assert float(tf.reduce_sum(scored)) / length == pytest.approx(
                each.score, abs=1e-3
            )


def _ids(translator, line):
    ids = translator.source_encoder.encode([line])[0]
    return tf.constant([[*ids, EOS_ID]])


def test_a_translation_begins_with_its_prefix(searching):
    lines = [
        Request(LINES[0], prefix="katze hund"),
        Request(LINES[1]),
        Request(LINES[2], prefix="eins zwei drei vier eins zwei drei vier"),
    ]
    together = found(searching(), lines, 3)
    for line, hypotheses in zip(lines, together, strict=True):
        assert all(each.text.startswith(line.prefix) for each in hypotheses)
    assert_same(together[1:2], found(searching(), LINES[1:2], 3))


def test_behind_a_prefix_the_model_goes_on_by_itself(searching, encoder):
    tried = 0
    greedy = searching(beam_size=1)
    for line, (plain, *_) in zip(LINES, found(greedy, LINES), strict=True):
        (begun,) = encoder.decode([plain.tokens[:3]])
        if encoder.encode([begun])[0].tolist() == plain.tokens[:3]:
            (forced,) = found(greedy, [Request(line, prefix=begun)])
            assert forced[0].tokens == plain.tokens
            assert forced[0].score == pytest.approx(plain.score, abs=1e-3)
            tried += 1
    assert tried


def test_what_must_appear_appears_and_what_must_not_does_not(searching):
    translator = searching(beam_size=8, extra_decode_length=12)
    plain = found(translator, LINES, 8)
    lines = [
        Request(line, constraints=("hund", "rot blau"), avoid=("grün",))
        for line in LINES
    ]
    lines[3] = Request(LINES[3])
    asked = found(translator, lines, 1, batch_size=5)
    assert_same([asked[3][:1]], [plain[3][:1]])
    for number, (best, *_) in enumerate(asked):
        if number != 3:
            assert "hund" in best.text and "rot blau" in best.text
            assert "grün" not in best.text.split()
            assert not best.facts


def test_what_is_avoided_everywhere_is_avoided(searching):
    (plain,) = found(searching(), LINES[:1])
    word = plain[0].text.split()[0]
    (other,) = found(searching(avoid=(word,)), LINES[:1])
    assert word not in other[0].text.split()


def test_what_cannot_be_met_is_said(searching):
    said = {}
    lines = [Request(LINES[0], constraints=("eins zwei drei vier " * 8,)), ""]
    answers = list(
        translate_lines(
            searching(extra_decode_length=1), lines, note=said.__setitem__
        )
    )
    assert answers[0].hypotheses[0].facts["missing"]
    assert "not in the translation: eins" in said[1] and 2 not in said


@pytest.mark.slow
def test_lengths_and_repetitions_keep_to_their_limits(searching):
    for (best, *_), line in zip(
        found(searching(max_new_tokens=4), LINES), LINES, strict=True
    ):
        assert len(best.tokens) <= 4, line
    translator = searching(min_new_tokens=7)
    for best, *_ in found(translator, LINES):
        assert len([x for x in best.tokens if x != EOS_ID]) >= 7
    translator = searching(no_repeat_ngram_size=2, extra_decode_length=30)
    for best, *_ in found(translator, LINES):
        pairs = list(zip(best.tokens, best.tokens[1:], strict=False))
        assert len(set(pairs)) == len(pairs)


def test_suppressed_pieces_never_come(searching, encoder):
    (plain,) = found(searching(), LINES[:1])
    pieces = tuple(set(encoder.pieces(plain[0].tokens[:-1])))
    (other,) = found(searching(suppress=pieces), LINES[:1])
    assert not set(pieces) & set(encoder.pieces(other[0].tokens))
    with pytest.raises(UsageError, match="must have the piece '▁eisn'"):
        searching(suppress="▁eisn")


def test_coverage_is_the_attention_that_source_tokens_got(searching, encoder):
    beta, model = 0.7, random_model(encoder.vocab_size, layers=2)
    translator = searching(model=model, coverage_penalty=beta, alpha=0.0)
    for line, hypotheses in zip(
        LINES[:5], found(translator, LINES[:5], 3), strict=True
    ):
        for each in hypotheses:
            features = {
                "inputs": _ids(translator, line),
                "targets": tf.constant([each.tokens]),
            }
            cross = attention_weights(model, features)["cross"]
            covered = np.minimum(np.mean(cross[-1, 0], 0).sum(0), 1)
            wanted = float(tf.reduce_sum(model.token_log_probs(features)))
            wanted += beta * np.log(covered).sum()
            assert each.score == pytest.approx(wanted, abs=1e-3)


def test_an_ensemble_averages_probabilities(searching, encoder, model):
    other = random_model(encoder.vocab_size, seed=2)
    features = {
        "inputs": tf.constant([[5, 6, 7, 1]]),
        "targets": tf.constant([[8, 9, 1, 0]]),
    }
    each = [np.exp(m.token_log_probs(features)) for m in (model, other)]
    both = Ensemble([model, other])
    np.testing.assert_allclose(
        np.exp(both.token_log_probs(features)), np.mean(each, 0), rtol=1e-5
    )
    # The search finds what it scores.
    translator = searching(model=both, alpha=0.0)
    for line, hypotheses in zip(
        LINES[:4], found(translator, LINES[:4], 3), strict=True
    ):
        for hypothesis in hypotheses:
            scored = both.token_log_probs(
                {
                    "inputs": _ids(translator, line),
                    "targets": tf.constant([hypothesis.tokens]),
                }
            )
            assert float(tf.reduce_sum(scored)) == pytest.approx(
                hypothesis.score, abs=1e-3
            )
    # One model twice is that model.
    twice = found(searching(model=Ensemble([model, model])), LINES[:4])
    assert [x[0].tokens for x in twice] == [
        x[0].tokens for x in found(searching(), LINES[:4])
    ]
    with pytest.raises(UsageError, match="equal vocabularies"):
        Ensemble([model, random_model(encoder.vocab_size + 1)])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"temperature": 2.0}, "temperature is for samples"),
        ({"seed": 3}, "seed is for samples"),
        (
            {"sample": True, "coverage_penalty": 1.0},
            "coverage_penalty and sample do",
        ),
        ({"sample": True, "beam_size": 2}, "beam_size and sample do not go"),
        ({"constrained": True, "avoid": "a"}, "avoid and constrained do not"),
        ({"top_p": 0.0, "sample": True}, "top_p must be a number above 0"),
        ({"alpha": -1}, "alpha must be a number, at least 0; got -1"),
        ({"min_new_tokens": 4, "max_new_tokens": 4}, "must be less than max_"),
        ({"suppress": ["", "a"]}, "suppress must be texts"),
        ({"no_repeat_ngram": 2}, "Did you mean no_repeat_ngram_size?"),
        ({"no_repeat_ngram_size": 10**9}, "a whole number from 0 to 100"),
        ({"sample": True, "seed": 2**63}, "seed must be a whole number from"),
        ({"max_new_tokens": 2**31}, "max_new_tokens must be a whole number"),
    ],
)
def test_what_does_not_go_together_is_refused_by_name(settings, message):
    with pytest.raises(UsageError) as refused:
        SearchSettings.from_options(settings)
    assert message in str(refused.value)


@pytest.mark.parametrize(
    ("asked", "rule"),
    [
        ({"constraints": "hund"}, "a list of strings .* got 'hund'"),
        ({"avoid": (3,)}, "a list of strings"),
        ({"prefix": None}, "a string; got None"),
        ({"seed": -3}, "a whole number from 0"),
        ({"seed": 2**70}, "a whole number from 0"),
    ],
)
def test_a_request_of_the_wrong_kind_is_refused(asked, rule):
    with pytest.raises(UsageError, match=rule):
        Request("eins", **asked)


def test_chance_never_falls_on_padding(searching):
    translator = searching(sample=True, temperature=1e3)  # all about as likely
    answers = found(translator, LINES[:8], 50)
    tokens = [token for each in answers for x in each for token in x.tokens]
    assert len(tokens) > 10 * translator.model.vocab_sizes[1]
    assert 0 not in tokens and len(set(tokens)) > 20


@pytest.mark.parametrize(
    ("settings", "asked", "message"),
    [
        ({}, {"seed": 3}, "seed is for samples"),
        (
            {"sample": True},
            {"constraints": ("a",)},
            "constraints and sample do not go",
        ),
    ],
)
def test_a_request_that_the_search_cannot_meet_is_answered_with_that(
    searching, settings, asked, message
):
    lines = [Request(LINES[0]), Request(LINES[1], **asked)]
    first, second = translate_lines(searching(**settings), lines)
    assert first.hypotheses and message in second.error
