"""Options of a search, through the whole graph of a model with random weights.

`search/test_logits_processors.py` compares each of them with all hypotheses of
a small table.
"""

import functools

import numpy as np
import pytest
import tensorflow as tf

from support.random_translator import random_model, random_sentences
from t2t_lite.decoding.batching import Batching
from t2t_lite.decoding.requests import Request
from t2t_lite.decoding.search.settings import SearchSettings
from t2t_lite.decoding.stream import translate_lines
from t2t_lite.decoding.translator import Translator
from t2t_lite.errors import UsageError
from t2t_lite.model.ensemble import Ensemble
from t2t_lite.tokenizers.base import EOS_ID

LINES = random_sentences(12)


@pytest.fixture(scope="module")
def make(encoder, model):
    """Return a cached function that makes a translator with some settings."""

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


def search(translator, lines, count=1, **options):
    """Return the hypotheses of each line."""
    options = {"note": lambda *_: None, **options}
    results = translate_lines(
        translator, lines, num_hypotheses=count, **options
    )
    return [result.hypotheses for result in results]


def assert_same(some, others):
    """Assert equal texts and tokens, and scores up to the order of sums."""
    for one, other in zip(some, others, strict=True):
        assert [(x.text, x.tokens) for x in one] == [
            (x.text, x.tokens) for x in other
        ]
        scores = [[x.score for x in each] for each in (one, other)]
        np.testing.assert_allclose(*scores, atol=1e-3)


def log_prob(translator, line, hypothesis, model=None):
    """Return (log-probability of a hypothesis by one full pass, features)."""
    (ids,) = translator.source_encoder.encode([line])
    features = {
        "inputs": tf.constant([[*ids, EOS_ID]]),
        "targets": tf.constant([hypothesis.tokens]),
    }
    model = model or translator.model
    return float(tf.reduce_sum(model.token_log_probs(features))), features


def test_a_line_and_its_seed_determine_the_samples(make):
    translator = make(sample=True, temperature=1.5)
    lines = [Request(line, seed=i % 3) for i, line in enumerate(LINES[:6])]
    together = search(translator, lines, 4, batching=Batching(6))
    for line, wanted in zip(lines, together, strict=True):
        assert_same(search(translator, [line], 4), [wanted])
    assert len({each.text for each in together[0]}) > 1
    scores = [each.score for each in together[0]]
    assert scores == sorted(scores, reverse=True)
    # Fewer samples are a subset; another seed gives other samples.
    (alone,) = search(translator, lines[:1], 1)
    assert alone[0].text in {each.text for each in together[0]}
    other = search(translator, [Request(LINES[0], seed=9)], 4)[0]
    assert {x.text for x in other} != {x.text for x in together[0]}
    # Lines without a seed use the seed of the settings.
    assert_same(
        search(translator, LINES[:1], 4),
        search(translator, [Request(LINES[0], seed=1)], 4),
    )


@pytest.mark.slow
def test_a_sample_has_the_score_of_its_pair(make):
    translator = make(sample=True, temperature=0.8, top_k=20, top_p=0.9)
    lines = LINES[:4]
    for hypotheses, line in zip(
        search(translator, lines, 3), lines, strict=True
    ):
        for each in hypotheses:
            penalty = ((5 + len(each.tokens)) / 6) ** 0.6
            score = log_prob(translator, line, each)[0] / penalty
            assert each.score == pytest.approx(score, abs=1e-3)


@pytest.mark.slow
def test_padding_is_never_drawn(make):
    translator = make(sample=True, temperature=1e3)  # nearly uniform
    results = search(translator, LINES[:8], 50)
    tokens = [token for each in results for x in each for token in x.tokens]
    assert len(tokens) > 10 * translator.model.vocab_sizes[1]
    assert 0 not in tokens and len(set(tokens)) > 20


def test_a_translation_begins_with_its_prefix(make, encoder):
    lines = [
        Request(LINES[0], prefix="katze hund"),
        Request(LINES[1]),
        Request(LINES[2], prefix="eins zwei drei vier eins zwei drei vier"),
    ]
    for translator in (make(), make(sample=True, max_new_tokens=2)):
        together = search(translator, lines, 3)
        for line, hypotheses in zip(lines, together, strict=True):
            assert all(each.text.startswith(line.prefix) for each in hypotheses)
        assert_same(together[1:2], search(translator, LINES[1:2], 3))
    # With a prefix of its own result, a greedy search has the same result.
    compared = 0
    greedy = make(beam_size=1)
    for line, plain in zip(LINES[:5], search(greedy, LINES[:5]), strict=True):
        (prefix,) = encoder.decode([plain[0].tokens[:3]])
        if encoder.encode([prefix])[0].tolist() == plain[0].tokens[:3]:
            request = Request(line, prefix=prefix)
            assert_same(search(greedy, [request]), [plain])
            compared += 1
    assert compared


@pytest.mark.slow
def test_constraints_appear_and_avoided_words_do_not(make):
    translator = make(beam_size=8, extra_decode_length=12)
    plain = search(translator, LINES[3:4], 8)
    lines = [
        Request(line, constraints=("hund", "rot blau"), bad_phrases=("grün",))
        for line in LINES[:6]
    ]
    lines[3] = Request(LINES[3])
    results = search(translator, lines, 1, batching=Batching(4))
    assert_same([results[3][:1]], [plain[0][:1]])
    for number, (best, *_) in enumerate(results):
        if number != 3:
            assert "hund" in best.text and "rot blau" in best.text
            assert "grün" not in best.text.split()
            assert not best.facts


@pytest.mark.slow
def test_bad_phrases_of_the_settings_are_avoided(make):
    (plain,) = search(make(), LINES[:1])
    word = plain[0].text.split()[0]
    (other,) = search(make(bad_phrases=(word,)), LINES[:1])
    assert word not in other[0].text.split()


@pytest.mark.slow
def test_violated_constraints_are_reported(make):
    notes = {}
    lines = [Request(LINES[0], constraints=("eins zwei drei vier " * 8,)), ""]
    translator = make(beam_size=8, extra_decode_length=12)
    first, _ = search(translator, lines, note=notes.__setitem__)
    assert first[0].facts["missing"]
    assert "eins" in notes[1] and 2 not in notes


@pytest.mark.slow
def test_lengths_and_repetitions_keep_their_limits(make):
    for best, *_ in search(make(max_new_tokens=4), LINES):
        assert len(best.tokens) <= 4
    for count in (7, 70):  # 70 is more than the usual maximum
        for best, *_ in search(make(min_new_tokens=count), LINES):
            assert len([x for x in best.tokens if x != EOS_ID]) >= count
    translator = make(no_repeat_ngram_size=2, extra_decode_length=30)
    for best, *_ in search(translator, LINES):
        pairs = list(zip(best.tokens, best.tokens[1:], strict=False))
        assert len(set(pairs)) == len(pairs)


def test_suppressed_pieces_never_appear(make, encoder):
    (plain,) = search(make(), LINES[:1])
    pieces = tuple(set(encoder.ids_to_pieces(plain[0].tokens[:-1])))
    (other,) = search(make(suppress_tokens=pieces), LINES[:1])
    assert not set(pieces) & set(encoder.ids_to_pieces(other[0].tokens))
    with pytest.raises(UsageError, match="'▁eisn'"):
        make(suppress_tokens="▁eisn")


@pytest.mark.slow
def test_an_ensemble_averages_probabilities(make, encoder, model):
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
    # The search has the same scores.
    translator = make(model=both, alpha=0.0)
    lines = LINES[:4]
    for line, hypotheses in zip(
        lines, search(translator, lines, 3), strict=True
    ):
        for hypothesis in hypotheses:
            assert hypothesis.score == pytest.approx(
                log_prob(translator, line, hypothesis)[0], abs=1e-3
            )
    with pytest.raises(UsageError, match="vocabularies"):
        Ensemble([model, random_model(encoder.vocab_size + 1)])


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"temperature": 2.0}, ["temperature", "sample"]),
        ({"seed": 3}, ["seed", "sample"]),
        ({"sample": True, "beam_size": 2}, ["beam_size", "sample"]),
        (
            {"constrained": True, "bad_phrases": "a"},
            ["bad_phrases", "constrained"],
        ),
        ({"top_p": 0.0, "sample": True}, ["top_p", "above 0"]),
        ({"alpha": -1}, ["alpha", "at least 0; got -1"]),
        (
            {"min_new_tokens": 4, "max_new_tokens": 4},
            ["min_new_tokens", "max_new_tokens"],
        ),
        ({"suppress_tokens": ["", "a"]}, ["suppress_tokens"]),
        ({"no_repeat_ngram": 2}, ["Did you mean no_repeat_ngram_size?"]),
        ({"no_repeat_ngram_size": 10**9}, ["from 0 to 100"]),
        ({"sample": True, "seed": 2**63}, ["seed"]),
        ({"max_new_tokens": 2**31}, ["max_new_tokens"]),
    ],
)
def test_wrong_and_conflicting_settings_are_refused_by_name(settings, words):
    with pytest.raises(UsageError) as refused:
        SearchSettings.from_options(settings)
    assert all(word in str(refused.value) for word in words)


@pytest.mark.parametrize(
    ("settings", "options", "words"),
    [
        ({}, {"seed": 3}, ["seed", "sample"]),
        (
            {"sample": True, "temperature": 1.5},
            {"constraints": ("a",)},
            ["constraints", "sample"],
        ),
    ],
)
def test_a_request_that_conflicts_with_the_search_has_an_error(
    make, settings, options, words
):
    lines = [Request(LINES[0]), Request(LINES[1], **options)]
    first, second = translate_lines(make(**settings), lines)
    assert first.hypotheses
    assert all(word in second.error for word in words)
