"""Each change of scores against every hypothesis that a small table has."""

import numpy as np
import pytest
import tensorflow as tf

from support.rounding import assert_scores_close
from support.search_tables import (
    all_hypotheses,
    keep_rows,
    random_table,
    search_one,
    search_tables,
)
from t2t_lite.decoding.search.choice import Sample
from t2t_lite.decoding.search.required import Required
from t2t_lite.decoding.search.score_changes import (
    NO_TOKEN,
    START,
    Avoid,
    ForcedPrefix,
    MinimumLength,
    NoRepeat,
    Suppress,
)

EOS = 1


def rows(*tokens):
    """Lists of tokens as one int32 array, NO_TOKEN behind them."""
    width = max(1, *map(len, tokens))
    filled = [[*x, *[NO_TOKEN] * (width - len(x))] for x in tokens]
    return np.array(
        filled, np.int32
    )  # no tensor: TensorFlow must not start yet


def has(ids, phrase):
    """Whether the phrase stands somewhere in the ids."""
    places = range(len(ids) - len(phrase) + 1)
    return any(ids[i : i + len(phrase)] == phrase for i in places)


def repeats(ids, size):
    grams = [tuple(ids[i : i + size]) for i in range(len(ids) - size + 1)]
    return len(set(grams)) < len(grams)


# What is asked for, and whether ids (up to EOS) keep to it.
CASES = {
    "suppress": ([Suppress([2])], lambda ids: 2 not in ids),
    "suppress several": ([Suppress([0, 3])], lambda ids: not {0, 3} & {*ids}),
    "minimum": (
        [MinimumLength(2, EOS)],
        lambda ids: EOS not in ids[:2],
    ),
    "no token twice": ([NoRepeat(1)], lambda ids: not repeats(ids, 1)),
    "no pair twice": ([NoRepeat(2)], lambda ids: not repeats(ids, 2)),
    "no triple twice": ([NoRepeat(3)], lambda ids: not repeats(ids, 3)),
    "avoid a token": ([Avoid(rows([2])[None])], lambda ids: 2 not in ids),
    "avoid phrases": (
        [Avoid(rows([2, 3], [0, 0, 2], [])[None])],
        lambda ids: not has(ids, [2, 3]) and not has(ids, [0, 0, 2]),
    ),
    "avoid an end": (
        [Avoid(rows([2, EOS])[None])],
        lambda ids: not has(ids, [2, EOS]),
    ),
    "avoid a beginning": (
        [Avoid(rows([START, 2], [START, 3, 0], [0, 0])[None])],
        lambda ids: (
            ids[:1] != [2] and ids[:2] != [3, 0] and not has(ids, [0, 0])
        ),
    ),
    "prefix": ([ForcedPrefix(rows([3, 0]))], lambda ids: ids[:2] == [3, 0]),
    "no prefix": ([ForcedPrefix(rows([]))], lambda ids: True),
    "prefix that others forbid": (
        [ForcedPrefix(rows([2, 2]), [Suppress([2]), NoRepeat(1)])],
        lambda ids: (
            ids[:2] == [2, 2] and 2 not in ids[2:] and not repeats(ids[2:], 1)
        ),
    ),
    "several": (
        [MinimumLength(1, EOS), NoRepeat(1), Suppress([0])],
        lambda ids: ids[0] != EOS and not repeats(ids, 1) and 0 not in ids,
    ),
    "all": (
        [
            ForcedPrefix(
                rows([3]),
                [
                    MinimumLength(2, EOS),
                    NoRepeat(2),
                    Suppress([0]),
                    Avoid(rows([3, 2], [2, 2, EOS])[None]),
                ],
            )
        ],
        lambda ids: (
            ids[0] == 3
            and EOS not in ids[:2]
            and not repeats(ids, 2)
            and 0 not in ids
            and not has(ids, [3, 2])
            and not has(ids, [2, 2, EOS])
        ),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_full_width_beam_finds_all_that_is_allowed(name):
    changes, allowed = CASES[name]
    for seed, alpha in enumerate((0.0, 0.8)):
        table = random_table(seed, length=5)
        wanted = all_hypotheses(table, 5, alpha, allowed)[:240]
        found = search_one(table, 5, 250, alpha, changes=changes)
        assert [ids for ids, _ in found[: len(wanted)]] == [
            ids for ids, _ in wanted
        ]
        # The model's own log-probabilities, whatever is forbidden.
        assert_scores_close(
            [score for _, score in found[: len(wanted)]],
            [score for _, score in wanted],
        )


@pytest.mark.parametrize("name", CASES)
def test_the_n_best_of_all_that_is_allowed_are_found(name):
    """Though the search for fewer hypotheses ends sooner."""
    changes, allowed = CASES[name]
    alpha, count = 1.5, 3
    table = random_table(7, length=5)
    table[:, :, EOS] += 1.0
    wanted = all_hypotheses(table, 5, alpha, allowed)[:count]
    found = search_one(
        table, 5, 250, alpha, changes=changes, num_hypotheses=count
    )[: len(wanted)]
    assert [ids for ids, _ in found] == [ids for ids, _ in wanted]
    assert_scores_close([score for _, score in found], [s for _, s in wanted])


@pytest.mark.parametrize(("alpha", "count"), [(0.0, 3), (0.6, 1), (2.0, 240)])
def test_the_best_with_a_bonus_are_found(alpha, count):
    # Like coverage: at most 0, known when a hypothesis ends.
    table = random_table(2, length=5)
    changes, allowed = CASES["no pair twice"]
    wanted = all_hypotheses(
        table,
        5,
        alpha,
        # Cut ones follow by their log-probabilities alone.
        lambda ids: EOS in ids and allowed(ids),
        lambda ids: -0.3 * sum([0, 0, 0, *ids[:-1]][-3:]),
    )[:count]
    found = search_one(
        table,
        5,
        250,
        alpha,
        changes=changes,
        num_hypotheses=count,
        bonus_fn=lambda cache: (
            -0.3 * tf.reduce_sum(tf.cast(cache["history"], tf.float32), -1)
        ),
    )[: len(wanted)]
    assert [ids for ids, _ in found] == [ids for ids, _ in wanted]
    assert_scores_close([score for _, score in found], [s for _, s in wanted])


REQUIRED = {
    "a token": [[2]],
    "a phrase": [[2, 0]],
    "a phrase in itself": [[2, 2, 0]],
    "two tokens": [[2], [3]],
    "overlapping": [[0, 2], [2, 3]],
    "the same twice": [[3], [3]],
    "none": [[]],
}


@pytest.mark.parametrize(
    ("others", "count"), [("no prefix", 250), ("several", 1), ("all", 250)]
)
@pytest.mark.parametrize("name", REQUIRED)
def test_full_width_beam_finds_all_that_have_what_is_required(
    name, others, count
):
    phrases = REQUIRED[name]
    required = Required(rows(*phrases)[None, :, None], EOS)
    changes, allowed_by_others = CASES[others]

    def allowed(ids):
        return (
            EOS in ids
            and allowed_by_others(ids)
            and all(has(ids, phrase) for phrase in phrases)
        )

    table = random_table(0, length=5)
    wanted = all_hypotheses(table, 5, 0.6, allowed)[:count]
    found = search_one(
        table,
        5,
        250,
        0.6,
        changes=[*changes, required],
        choice=required,
        num_hypotheses=count,
    )[: len(wanted)]
    assert [ids for ids, _ in found] == [ids for ids, _ in wanted]
    assert_scores_close([score for _, score in found], [s for _, s in wanted])


def test_one_way_to_write_a_phrase_is_enough():
    ways = [[[2, 0], [START, 3]], [[3], [START, 0, 2]]]
    required = Required(
        np.stack([rows(*each, [0, 0, 0])[:2] for each in ways])[None], EOS
    )

    def allowed(ids):
        first = has(ids, [2, 0]) or ids[:1] == [3]
        return first and (has(ids, [3]) or ids[:2] == [0, 2])

    for seed in range(2):
        table = random_table(seed, length=5)
        wanted = [
            (ids, score)
            for ids, score in all_hypotheses(table, 5, 0.6, allowed)
            if EOS in ids
        ]
        found = search_one(
            table, 5, 250, 0.6, changes=[required], choice=required
        )[: len(wanted)]
        assert [ids for ids, _ in found] == [ids for ids, _ in wanted]
    # In a narrow beam, what the model would never write.
    table[:, :, 2:] -= 12
    table[3:, :, EOS] += 14
    (ids, _), *_ = search_one(
        table, 5, 4, 0.6, changes=[required], choice=required
    )
    assert ids[-1] == EOS and allowed(ids)


@pytest.mark.parametrize("beam_size", [4, 8])
@pytest.mark.parametrize("seed", range(4))
def test_what_the_model_dislikes_is_met_in_a_narrow_beam(seed, beam_size):
    table = random_table(seed, length=12, vocab_size=9)
    phrases = [[7, 8], [6]]
    table[:, :, 6:] -= 12  # none of these would come by itself
    table[8:, :, EOS] += 9  # and then the model wants to end
    required = Required(rows(*phrases)[None, :, None], EOS)
    (ids, _), *_ = search_one(
        table, 12, beam_size, 0.6, changes=[required], choice=required
    )
    assert ids[-1] == EOS
    assert has(ids, [7, 8]) and has(ids, [6])


@pytest.mark.parametrize("seed", range(4))
def test_a_sentence_without_phrases_is_searched_as_ever(seed):
    table = random_table(seed, length=8, vocab_size=7)
    required = Required(rows([])[None, :, None], EOS)
    assert search_one(
        table, 8, 4, 0.6, changes=[required], choice=required
    ) == search_one(table, 8, 4, 0.6)


def test_a_phrase_begun_in_vain_is_begun_again():
    # 2 2 2 0 has 2 2 0 in it, though 2 2 2 breaks off what 2 2 began.
    table = np.full((6, 4, 4), -9.0)
    for step, token in enumerate([2, 2, 2, 0, EOS]):
        table[step, :, token] = 0.0
    required = Required(rows([2, 2, 0])[None, :, None], EOS)
    (ids, score), *_ = search_one(
        table, 6, 3, 0.0, changes=[required], choice=required
    )
    assert ids == [2, 2, 2, 0, EOS]
    assert score == pytest.approx(0.0, abs=5e-3)


def asked_of_each():
    """Changes and a choice, by name; each sentence of five has its own."""
    phrases = [rows([token]) for token in (2, 3, 0, 4, 2)]
    required = Required(np.stack(phrases)[:, :, None], EOS)
    return {
        "avoid": ([Avoid(np.stack(phrases))], None),
        "prefix": ([ForcedPrefix(rows([2], [3, 3], [], [4], [0]))], None),
        "required": ([required], required),
        "sample": ([], Sample(np.random.default_rng(1).random((5, 7), "f4"))),
        "memory": ([NoRepeat(1), MinimumLength(2, EOS)], None),
    }


@pytest.mark.parametrize(
    "name", ["avoid", "prefix", "required", "sample", "memory"]
)
def test_sentences_keep_what_is_asked_of_them_when_others_leave(name):
    changes, choice = asked_of_each()[name]
    tables = np.stack([random_table(10 * i, 7, 6) for i in range(5)])
    left, stayed = (
        search_tables(
            tables,
            [0, 2, 3, 4, 5],
            [7, 2, 0, 4, 6],
            1 if name == "sample" else 6,
            0.6,
            changes=changes,
            choice=choice,
            keep_fn=keep_fn,
        )
        for keep_fn in (keep_rows, None)
    )
    np.testing.assert_array_equal(left[0], stayed[0])
    assert_scores_close(left[1], stayed[1])
