"""Held-out pairs depend on their text only, not on the order."""

import pytest

from t2t_lite.corpus.splits import choose_held_out, pair_hash
from t2t_lite.errors import T2TLiteError

PAIRS = [(f"source {i}", f"target {i}") for i in range(1000)]
CUT = ("dev", "test")


def hash_of(*pair):
    return pair_hash(*pair, size=8)


def test_hash_is_stable_and_depends_on_the_sides():
    # blake2b with 8 bytes of "1 ab", by b2sum --length=64.
    assert hash_of("a", "b").hex() == "e84297e14f30cdc8"
    assert hash_of("ab", "") != hash_of("a", "b") != hash_of("b", "a")
    assert hash_of("\ud800", "x") != hash_of("\ud801", "x")


def test_the_pairs_with_the_smallest_hashes_are_chosen():
    chosen = choose_held_out(PAIRS, CUT, 7)
    hashes = sorted(hash_of(*pair) for pair in PAIRS)
    found = {
        split: sorted(hash_of(*pair) for pair in pairs)
        for split, pairs in chosen.items()
    }
    assert found == {"dev": hashes[:7], "test": hashes[7:14]}


def test_pairs_with_an_empty_side_are_not_chosen():
    empty = [(f"s {i}", " ") for i in range(50)]
    empty += [("\u200b", f"t {i}") for i in range(50)]
    assert choose_held_out(PAIRS + empty, CUT, 9) == (
        choose_held_out(PAIRS, CUT, 9)
    )


@pytest.mark.parametrize(
    ("pairs", "each"), [(3, 1), (100, 1), (299, 2), (210_000, 2000)]
)
def test_default_count_is_one_percent_and_at_most_2000(pairs, each):
    chosen = choose_held_out(((str(i), "x") for i in range(pairs)), CUT)
    assert [len(pairs) for pairs in chosen.values()] == [each, each]


@pytest.mark.parametrize("count", [500, 1000])
def test_train_must_not_be_empty(count):
    with pytest.raises(T2TLiteError, match=f"than {2 * count} .*got 1000"):
        choose_held_out(PAIRS + PAIRS, CUT, count)
