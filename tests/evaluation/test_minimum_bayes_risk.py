import pytest

from t2t_lite.errors import UsageError
from t2t_lite.evaluation.minimum_bayes_risk import choose


def test_the_candidate_most_similar_to_all_is_chosen():
    candidates = [
        "a cat sleeps in the house",
        "a dog runs in the snow",
        "a dog is running in the snow",
        "the dog runs in snow",
    ]
    index, means = choose(candidates, "chrf")
    assert index == 1
    assert means[1] == max(means)


def test_equal_candidates_count_several_times():
    one, other = "eins", "hart"  # without a character in common
    index, means = choose([one, other, other], "chrf")
    assert index == 1
    assert means == pytest.approx([100 / 3, 200 / 3, 200 / 3])


def test_an_empty_candidate_has_no_utility():
    assert choose(["eins"], "chrf") == (0, [pytest.approx(100)])
    assert choose([""], "chrf") == (0, [0])
    assert choose(["", "eins"], "chrf")[0] == 1


def test_an_unknown_utility_is_refused():
    with pytest.raises(UsageError, match="'bleu'"):
        choose(["eins"], "bleu")
