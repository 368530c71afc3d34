"""BLEU: scores by hand, and invalid input."""

import math

import pytest

from t2t_lite.errors import T2TLiteError
from t2t_lite.evaluation.bleu import bleu


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
