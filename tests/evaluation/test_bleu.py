"""BLEU: scores by hand, and invalid input."""

import math

import pytest

from t2t_lite.errors import T2TLiteError
from t2t_lite.evaluation.bleu import bleu


def test_score_matches_a_value_by_hand():
    # a b c d e and a b c d x share 4 of 5 words, 3 of 4 bigrams, 2 of 3
    # trigrams and 1 of 2 4-grams; the lengths are equal.
    report = bleu(["a b c d e"], ["a b c d x"])
    assert report["sentences"] == 1
    assert report["score"] == pytest.approx(
        100 * math.prod([4 / 5, 3 / 4, 2 / 3, 1 / 2]) ** 0.25
    )


def test_short_text_has_a_brevity_penalty():
    # All n-grams match, 4 words instead of 8: exp(1 - 8 / 4).
    score = bleu(["a b c d"], ["a b c d e f g h"])["score"]
    assert score == pytest.approx(100 * math.exp(-1))
    assert bleu(["", ""], ["a b c d", "e f g h"])["score"] == 0


def test_unequal_and_empty_lists_are_refused():
    with pytest.raises(T2TLiteError, match="1 hypotheses and 2 references"):
        bleu(["a"], ["a", "b"])
    with pytest.raises(T2TLiteError, match="empty"):
        bleu([], [])
