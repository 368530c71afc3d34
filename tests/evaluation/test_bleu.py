"""BLEU is sacreBLEU's, with its signature."""

import math

import pytest

from t2t_lite.errors import T2TLiteError
from t2t_lite.evaluation.bleu import bleu


def test_a_score_worked_by_hand():
    # Of a b c d e, against a b c d x: 4 of 5 words, 3 of 4 pairs, 2 of 3
    # triples and 1 of 2 fours are right; the lengths are equal.
    report = bleu(["a b c d e"], ["a b c d x"])
    assert report["sentences"] == 1
    assert report["score"] == pytest.approx(
        100 * math.prod([4 / 5, 3 / 4, 2 / 3, 1 / 2]) ** 0.25
    )


def test_too_short_text_is_punished():
    # All n-grams right, 4 words for 8: exp(1 - 8 / 4).
    score = bleu(["a b c d"], ["a b c d e f g h"])["score"]
    assert score == pytest.approx(100 * math.exp(-1))
    assert bleu(["", ""], ["a b c d", "e f g h"])["score"] == 0


def test_unequal_and_empty_lists_are_refused():
    with pytest.raises(T2TLiteError, match="1 hypotheses and 2 references"):
        bleu(["a"], ["a", "b"])
    with pytest.raises(T2TLiteError, match="empty"):
        bleu([], [])
