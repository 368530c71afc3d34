"""Beam search on small tables, compared with manual or exhaustive results."""

import functools
import json

import numpy as np
import pytest
import tensorflow as tf

from support.places import SHARED_DATA
from support.rounding import approx_score, assert_scores_close
from support.search_tables import (
    all_hypotheses,
    greedy,
    keep_rows,
    log_softmax,
    random_table,
    search_one,
    search_tables,
)
from t2t_lite.decoding.search.beam_search import beam_search
from t2t_lite.decoding.search.scores import is_possible
from t2t_lite.decoding.search.selection import best_log_probs

T2T_DECODE = SHARED_DATA / "t2t" / "decode"


@pytest.mark.parametrize("seed", range(4))
def test_beam_one_is_greedy(seed):
    table = random_table(seed, length=6, vocab_size=5)
    ((ids, score),) = search_one(table, 6, beam_size=1, alpha=0.6)
    wanted_ids, log_prob = greedy(table, 6)
    assert ids == wanted_ids
    assert score == approx_score(log_prob / ((5 + len(ids)) / 6) ** 0.6)


@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.0, 2.0])
@pytest.mark.parametrize("seed", range(3))
def test_full_width_beam_finds_all_hypotheses_in_order(seed, alpha):
    table = random_table(seed)
    # At most 3 ** 4 = 81 hypotheses are live, so 81 beams lose none.
    found = search_one(table, 4, beam_size=81, alpha=alpha)
    wanted = all_hypotheses(table, 4, alpha)[:81]
    assert [ids for ids, _ in found] == [ids for ids, _ in wanted]
    assert_scores_close([score for _, score in found], [s for _, s in wanted])


def table_of_two(short, long):
    """Return a table with log-probs `short` of EOS and `long` of 2 2 2 EOS."""
    table = np.full((4, 3, 3), -30.0)
    table[:, :, 2] = 0.0
    table[0, 0, 1:] = [short, long]
    table[0, 0, 0] = np.log(1 - np.exp(short) - np.exp(long))
    # After PAD as the first token all tokens are equal, so it cannot win.
    table[1:, 0, :] = np.log([1 / 3] * 3)
    table[3, 2, :] = [-30.0, 0.0, -30.0]
    return table


@pytest.mark.parametrize("alpha, ids", [(0.0, [1]), (1.0, [2, 2, 2, 1])])
def test_length_penalty_decides_between_short_and_long(alpha, ids):
    # Log-prob -1.0 at length 1 or -1.4 at length 4: -1.0 against -1.4
    # without a penalty, -1.0 against -1.4 / 1.5 = -0.93 with alpha 1.
    best_ids, score = search_one(table_of_two(-1.0, -1.4), 4, 2, alpha)[0]
    assert best_ids == ids
    assert score == approx_score(-1.0 if alpha == 0 else -1.4 / 1.5)


def test_no_eos_by_the_limit_still_returns_a_hypothesis():
    table = np.zeros((3, 4, 4))
    table[:, :, 1] = -np.inf
    table[:, :, 3] = 2.0
    log_prob = 3 * (2 - np.log(np.e**2 + 2))
    for beam_size in (1, 2):
        ids, score = search_one(table, 3, beam_size, alpha=1.0)[0]
        assert ids == [3, 3, 3]
        assert score == approx_score(log_prob / (8 / 6))


@pytest.mark.parametrize("select_fn", [None, keep_rows])
@pytest.mark.parametrize("seed", range(4))
def test_results_of_a_sentence_do_not_depend_on_the_batch(seed, select_fn):
    tables = np.stack([random_table(seed + 10 * i, 7, 6) for i in range(5)])
    first_ids = [0, 2, 3, 4, 5]
    limits = [7, 1, 0, 4, 6]
    together = search_tables(
        tables, first_ids, limits, 3, 0.6, select_fn=select_fn
    )
    for b, limit in enumerate(limits):
        ids, scores = search_tables(
            tables[b : b + 1], first_ids[b : b + 1], [limit], 3, 0.6
        )
        np.testing.assert_array_equal(together[0][b, :, :limit], ids[0])
        np.testing.assert_array_equal(together[0][b, :, limit:], 0)
        assert_scores_close(together[1][b], scores[0])


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.5])
def test_requesting_fewer_hypotheses_does_not_change_them(seed, alpha):
    table = random_table(seed, length=8, vocab_size=6)
    table[:, :, 1] += 1.0  # so that some hypotheses end early
    all_four = search_one(table, 8, 4, alpha)
    for count in (1, 2, 3):
        found = search_one(table, 8, 4, alpha, num_hypotheses=count)
        assert found == all_four[:count]


def steps_taken(table, limit, beam_size, alpha, **options):
    """Return the number of calls of `step_fn`."""
    steps = []
    table = np.asarray(table, np.float32)

    def step_fn(ids, index, cache):
        steps.append(int(index))
        return tf.gather(tf.constant(table)[index], ids), cache

    beam_search(
        step_fn,
        lambda cache, parents: cache,
        {},
        batch_size=1,
        beam_size=beam_size,
        limits=[limit],
        alpha=alpha,
        **options,
    )
    return len(steps)


def test_search_stops_when_no_better_hypothesis_is_possible():
    table = np.zeros((10, 3, 3))
    table[0, 0] = np.log([0.05, 0.9, 0.05])  # EOS first: log-prob -0.105
    # Live hypotheses have at most -3.0, so -3.0 / 2.5 = -1.2 at length 10.
    assert steps_taken(table, 10, 2, 1.0, num_hypotheses=1) == 1
    # With alpha 4 the same bound is -3.0 / 2.5 ** 4 = -0.077.
    assert steps_taken(table, 10, 2, 4.0, num_hypotheses=1) > 1
    # The second hypothesis is not found yet.
    assert steps_taken(table, 10, 2, 1.0, num_hypotheses=2) > 1


def test_bound_uses_the_limit_of_each_sentence():
    table = np.zeros((40, 3, 3))
    table[0, 0] = np.log([0.3, 0.4, 0.3])
    assert steps_taken(table, 2, 2, 1.0, num_hypotheses=1) == 1
    assert steps_taken(table, 40, 2, 1.0, num_hypotheses=1) > 1


def test_scores_are_finite_for_nan_and_infinite_logits():
    table = random_table(0, length=4, vocab_size=5)
    table[2:] = np.nan
    for value in (np.nan, np.inf):
        table[2:] = value
        ids, scores = search_tables(table[None], [0], [4], 3, 0.6)
        assert np.isfinite(scores).all()
        # Hypotheses that ended before step 2 are kept; others are impossible.
        assert is_possible(scores[0, 0]) and not is_possible(scores[0, -1])
        np.testing.assert_array_equal(ids[0, -1], 0)
    table[:] = np.nan
    ids, scores = search_tables(table[None], [0], [4], 3, 0.6)
    assert np.isfinite(scores).all() and not is_possible(scores).any()
    np.testing.assert_array_equal(ids, 0)


def test_limit_zero_gives_an_empty_hypothesis():
    ids, scores = search_tables(random_table(0)[None], [0], [0], 2, 0.6)
    assert ids.shape == (1, 2, 0)
    assert scores[0, 0] == 0 and not is_possible(scores[0, 1])


@pytest.mark.parametrize("vocab_size", [10, 2048, 3000, 4099])
@pytest.mark.parametrize("width", [1, 8])
def test_best_log_probs_equal_those_of_a_sort(vocab_size, width):
    rng = np.random.default_rng(0)
    logits = rng.normal(0, 3, (6, vocab_size)).astype(np.float32)
    logits[2] = np.round(logits[2])  # ties go to the smaller id
    log_probs, ids = best_log_probs(tf.constant(logits), width)
    wanted = np.argsort(-logits, axis=-1, kind="stable")[:, :width]
    np.testing.assert_array_equal(ids, wanted)
    assert_scores_close(
        log_probs, np.take_along_axis(log_softmax(logits), wanted, -1)
    )


@pytest.mark.skipif(
    not T2T_DECODE.exists(), reason="needs ../shared/data/t2t/decode"
)
def test_agrees_with_tensor2tensor():
    """Compare with recorded results of tensor2tensor where the rules agree.

    Two rules differ on purpose. A hypothesis truncated at the limit is scored
    like any other; tensor2tensor returns its log-probability without penalty,
    and only if no hypothesis finished. The search of a sentence stops only when
    none of the requested hypotheses can be beaten.
    """
    arrays = np.load(T2T_DECODE / "bare_search_table.npz")
    table = arrays[arrays.files[0]]
    cases = json.loads((T2T_DECODE / "bare_search.json").read_text())

    @functools.cache
    def search(first_ids, limit, beam_size, alpha):
        tables = np.repeat(table[None], len(first_ids), axis=0)
        limits = [limit] * len(first_ids)
        return search_tables(tables, first_ids, limits, beam_size, alpha)

    compared = 0
    for case in cases:
        first_ids, limit = tuple(case["initial_ids"]), case["decode_length"]
        alpha = case["alpha"]
        found = search(first_ids, limit, case["beam"], alpha)
        for b, k in np.ndindex(len(first_ids), case["beam"]):
            wanted, score = case["ids"][b][k][1:], case["scores"][b][k]
            if score < -1e6:
                continue  # tensor2tensor has no hypothesis in this row
            if 1 not in wanted:
                score /= ((5 + len(wanted)) / 6) ** alpha
            ids = list(found[0][b, k][: len(wanted)])
            assert ids == wanted + [0] * (len(ids) - len(wanted))
            assert found[1][b, k] == approx_score(score)
            compared += 1
    assert compared > len(cases)
