"""Utilities are sacreBLEU's own; the one chosen is most like the others."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sacrebleu.metrics import BLEU, CHRF

from t2t_lite.errors import UsageError
from t2t_lite.evaluation.minimum_bayes_risk import UTILITIES, choose

METRICS = {"chrf": CHRF(), "bleu": BLEU(effective_order=True)}
# Words that come again, beside anything at all.
TEXTS = st.lists(
    st.one_of(
        st.text(st.sampled_from("ab .,é\u3000"), max_size=24),
        st.lists(st.sampled_from(["a", "dog,", "runs", "&amp;"])).map(" ".join),
        st.text(max_size=12),
    ),
    min_size=1,
    max_size=5,
)


@pytest.mark.parametrize("utility", UTILITIES)
@settings(max_examples=150, deadline=None)
@given(texts=TEXTS)
def test_utilities_are_sacrebleus(utility, texts):
    score = METRICS[utility].sentence_score
    expected = [[score(h, [r]).score for r in texts] for h in texts]
    np.testing.assert_allclose(UTILITIES[utility](texts), expected, atol=1e-6)


@pytest.mark.parametrize("utility", UTILITIES)
@settings(max_examples=50, deadline=None)
@given(texts=TEXTS)
def test_the_chosen_has_the_highest_mean_utility(utility, texts):
    index, means = choose(texts, utility)
    expected = UTILITIES[utility](texts).mean(axis=1)
    np.testing.assert_allclose(means, expected, atol=1e-9)
    assert means[index] == max(means)
    assert texts.index(texts[index]) == index


def test_what_most_agree_on_is_chosen():
    candidates = [
        "a cat sleeps in the house",
        "a dog runs in the snow",
        "a dog is running in the snow",
        "the dog runs in snow",
    ]
    for utility in UTILITIES:
        assert choose(candidates, utility)[0] == 1


def test_equal_candidates_count_as_often_as_they_are_there():
    one, other = "eins", "hart"
    assert choose([one, other], "chrf")[0] == 0
    assert choose([one, other, other], "chrf")[0] == 1
    index, means = choose([one, one, other], "bleu")
    assert (index, means[0]) == (0, means[1])
    # Against itself each has 100, and these two have nothing in common.
    assert means == pytest.approx([200 / 3, 200 / 3, 100 / 3])


def test_one_candidate_is_the_best_and_an_empty_one_is_worth_nothing():
    assert choose(["eins"], "chrf") == (0, [pytest.approx(100)])
    for utility in UTILITIES:
        assert choose([""], utility) == (0, [0])
        assert choose(["", "eins"], utility)[0] == 1


def test_an_unknown_utility_is_refused():
    with pytest.raises(UsageError, match="one of chrf, bleu; got 'comet'"):
        choose(["eins"], "comet")
