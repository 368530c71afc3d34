"""A tag that is asked for is the same as one that is typed."""

import pytest

from support.random_translator import random_translator
from support.rounding import approx_score
from t2t_lite.decoding.lines import score_pairs, translate_lines
from t2t_lite.decoding.streams.requests import Pair, Request

TAGS = ("<haus>", "<maus>")


@pytest.fixture(scope="module")
def translator(encoder):
    return random_translator(encoder)


def test_requests_with_a_tag_are_translated_as_lines_that_have_it(translator):
    requests = [
        Request("eins zwei", tag="haus"),
        Request("drei", tag="<maus>"),
        Request("vier", tag="hund", id=7),
        Request("", tag="haus"),
    ]
    one, two, unknown, blank = translate_lines(translator, requests, tags=TAGS)
    lines = ["<haus> eins zwei", "<maus> drei", ""]
    typed = list(translate_lines(translator, lines, tags=TAGS))
    found = [each.hypotheses[0].text for each in (one, two, blank)]
    assert found == [each.hypotheses[0].text for each in typed]
    assert one.source == "<haus> eins zwei"
    assert unknown.id == 7 and not unknown.hypotheses
    assert unknown.error.endswith("<haus>, <maus>; got 'hund'.")


def test_pairs_with_a_tag_are_scored_as_those_that_have_it(translator):
    pairs = [
        Pair("eins", "zwei", tag="haus"),
        Pair("<haus> eins", "zwei"),
        Pair("eins", "zwei"),
        Pair("eins", "zwei", tag="hund"),
    ]
    asked, typed, without, unknown = score_pairs(translator, pairs, tags=TAGS)
    assert asked.score == approx_score(typed.score)
    assert abs(asked.score - without.score) > 1e-3
    assert unknown.error
