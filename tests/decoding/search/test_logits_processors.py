"""Each logits processor, compared with all hypotheses of a small table."""

import numpy as np
import pytest

from support.rounding import assert_scores_close
from support.search_tables import (
    all_hypotheses,
    keep_rows,
    random_table,
    search_one,
    search_tables,
)
from t2t_lite.decoding.search.logits_processors import (
    NO_TOKEN,
    START,
    BadPhrases,
    ForcedPrefix,
    NoRepeat,
    Suppress,
)
from t2t_lite.decoding.search.required_phrases import RequiredPhrases
from t2t_lite.decoding.search.selection import Sample

EOS = 1


def rows(*tokens):
    """Return lists of tokens as one int32 array, padded with NO_TOKEN."""
    width = max(1, *map(len, tokens))
    filled = [[*x, *[NO_TOKEN] * (width - len(x))] for x in tokens]
    # Not a tensor, because an import must not start TensorFlow.
    return np.array(filled, np.int32)


def has(ids, phrase):
    starts = range(len(ids) - len(phrase) + 1)
    return any(ids[i : i + len(phrase)] == phrase for i in starts)


def repeats(ids, size):
    grams = [tuple(ids[i : i + size]) for i in range(len(ids) - size + 1)]
    return len(set(grams)) < len(grams)


# Processors, and a predicate: do they allow these ids (up to EOS)?
CASES = {
    "suppress_tokens": ([Suppress([0, 3])], lambda ids: not {0, 3} & {*ids}),
    "minimum": ([Suppress([EOS], 2)], lambda ids: EOS not in ids[:2]),
    "no token twice": ([NoRepeat(1)], lambda ids: not repeats(ids, 1)),
    "no triple twice": ([NoRepeat(3)], lambda ids: not repeats(ids, 3)),
    "avoid a token": ([BadPhrases(rows([2])[None])], lambda ids: 2 not in ids),
    "avoid phrases": (
        [BadPhrases(rows([2, 3], [0, 0, 2], [])[None])],
        lambda ids: not has(ids, [2, 3]) and not has(ids, [0, 0, 2]),
    ),
    "avoid an end": (
        [BadPhrases(rows([2, EOS])[None])],
        lambda ids: not has(ids, [2, EOS]),
    ),
    "avoid a beginning": (
        [BadPhrases(rows([START, 2], [START, 3, 0], [0, 0])[None])],
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
        [Suppress([EOS], 1), NoRepeat(1), Suppress([0])],
        lambda ids: ids[0] != EOS and not repeats(ids, 1) and 0 not in ids,
    ),
    "all": (
        [
            ForcedPrefix(
                rows([3]),
                [
                    Suppress([EOS], 2),
                    NoRepeat(2),
                    Suppress([0]),
                    BadPhrases(rows([3, 2], [2, 2, EOS])[None]),
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


def assert_finds(wanted, table, alpha=0.6, **options):
    """Assert that a search of five tokens finds these hypotheses first."""
    found = search_one(table, 5, 250, alpha, **options)[: len(wanted)]
    assert [ids for ids, _ in found] == [ids for ids, _ in wanted]
    # Scores use the model's log-probabilities, without renormalization.
    assert_scores_close([x for _, x in found], [x for _, x in wanted])


@pytest.mark.parametrize("name", CASES)
def test_full_width_beam_finds_all_allowed_hypotheses(name):
    processors, allowed = CASES[name]
    for seed, alpha in enumerate((0.0, 0.8)):
        table = random_table(seed, length=5)
        wanted = all_hypotheses(table, 5, alpha, allowed)[:240]
        assert wanted
        assert_finds(wanted, table, alpha=alpha, processors=processors)
    # A search for fewer hypotheses ends earlier.
    table[:, :, EOS] += 1.0
    wanted = all_hypotheses(table, 5, 1.5, allowed)[:3]
    assert_finds(
        wanted, table, alpha=1.5, processors=processors, num_hypotheses=3
    )


def required(phrases):
    """Return the options of a search for hypotheses with these phrases."""
    processor = RequiredPhrases(phrases, EOS)
    return {"processors": [processor], "selector": processor}


@pytest.mark.parametrize(
    ("others", "count"),
    [("no prefix", 250), ("no triple twice", 250), ("avoid an end", 1)],
)
@pytest.mark.parametrize(
    "phrases",
    [
        [[2]],
        [[2, 0]],
        [[2, 2, 0]],
        [[2], [3]],
        [[0, 2], [2, 3]],
        [[3], [3]],
        [[]],
    ],
    ids=str,
)
def test_full_width_beam_finds_all_with_required_phrases(
    phrases, others, count
):
    options = required(rows(*phrases)[None, :, None])
    processors, allowed = CASES[others]
    table = random_table(0, length=5)
    wanted = all_hypotheses(
        table,
        5,
        0.6,
        lambda ids: (
            EOS in ids and allowed(ids) and all(has(ids, x) for x in phrases)
        ),
    )[:count]
    assert wanted
    options["processors"] = [*processors, *options["processors"]]
    assert_finds(wanted, table, num_hypotheses=count, **options)


def test_one_tokenization_of_a_phrase_is_enough():
    tokenizations = [[[2, 0], [START, 3]], [[3], [START, 0, 2]]]
    options = required(
        np.stack([rows(*each, [0, 0, 0])[:2] for each in tokenizations])[None]
    )

    def allowed(ids):
        first = has(ids, [2, 0]) or ids[:1] == [3]
        return first and (has(ids, [3]) or ids[:2] == [0, 2]) and EOS in ids

    for seed in range(2):
        table = random_table(seed, length=5)
        wanted = all_hypotheses(table, 5, 0.6, allowed)
        assert wanted
        assert_finds(wanted, table, **options)
    # A narrow beam also contains phrases that are very unlikely.
    table[:, :, 2:] -= 12
    table[3:, :, EOS] += 14
    (ids, _), *_ = search_one(table, 5, 4, 0.6, **options)
    assert ids[-1] == EOS and allowed(ids)


@pytest.mark.parametrize("beam_size", [4, 8])
@pytest.mark.parametrize("seed", range(2))
def test_a_narrow_beam_contains_unlikely_phrases(seed, beam_size):
    table = random_table(seed, length=12, vocab_size=9)
    table[:, :, 6:] -= 12  # the phrases are very unlikely
    table[8:, :, EOS] += 9  # and EOS is very likely from here
    (ids, _), *_ = search_one(
        table, 12, beam_size, 0.6, **required(rows([7, 8], [6])[None, :, None])
    )
    assert ids[-1] == EOS
    assert has(ids, [7, 8]) and has(ids, [6])


def test_a_search_without_phrases_is_unchanged():
    for seed in range(2):
        table = random_table(seed, length=8, vocab_size=7)
        options = required(rows([])[None, :, None])
        plain = search_one(table, 8, 4, 0.6)
        assert search_one(table, 8, 4, 0.6, **options) == plain


def test_a_phrase_is_found_after_an_incomplete_match():
    # 2 2 2 0 contains 2 2 0, although the first match, 2 2, is incomplete.
    table = np.full((6, 4, 4), -9.0)
    for step, token in enumerate([2, 2, 2, 0, EOS]):
        table[step, :, token] = 0.0
    options = required(rows([2, 2, 0])[None, :, None])
    (ids, score), *_ = search_one(table, 6, 3, 0.0, **options)
    assert ids == [2, 2, 2, 0, EOS]
    assert score == pytest.approx(0.0, abs=5e-3)


@pytest.mark.parametrize(
    "name", ["bad_phrases", "prefix", "required", "sample", "own state"]
)
def test_sentences_keep_their_options_when_others_leave_the_batch(name):
    phrases = np.stack([rows([token]) for token in (2, 3, 0, 4, 2)])
    options = {
        "bad_phrases": {"processors": [BadPhrases(phrases)]},
        "prefix": {
            "processors": [ForcedPrefix(rows([2], [3, 3], [], [4], [0]))]
        },
        "required": required(phrases[:, :, None]),
        "sample": {
            "selector": Sample(np.random.default_rng(1).random((5, 7), "f4"))
        },
        "own state": {"processors": [NoRepeat(1), Suppress([EOS], 2)]},
    }[name]
    tables = np.stack([random_table(10 * i, 7, 6) for i in range(5)])
    left, stayed = (
        search_tables(
            tables,
            [0, 2, 3, 4, 5],
            [7, 2, 0, 4, 6],
            1 if name == "sample" else 6,
            0.6,
            select_fn=select_fn,
            **options,
        )
        for select_fn in (keep_rows, None)
    )
    np.testing.assert_array_equal(left[0], stayed[0])
    assert_scores_close(left[1], stayed[1])
