import pytest

from t2t_lite.evaluation.minimum_bayes_risk import mean_utilities


def test_candidate_most_similar_to_all_has_the_highest_utility():
    candidates = [
        "a cat sleeps in the house",
        "a dog runs in the snow",
        "a dog is running in the snow",
        "the dog runs in snow",
    ]
    means = mean_utilities(candidates)
    assert means.index(max(means)) == 1


def test_equal_candidates_count_several_times():
    one, other = "eins", "hart"  # no characters in common
    means = mean_utilities([one, other, other])
    assert means == pytest.approx([100 / 3, 200 / 3, 200 / 3])


def test_empty_candidate_has_utility_0():
    assert mean_utilities(["eins"]) == [pytest.approx(100)]
    assert mean_utilities([""]) == [0]
    assert mean_utilities(["", "eins"])[0] == 0
