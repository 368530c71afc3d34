"""Filters: which training pairs they drop, and under which name."""

import random
import unicodedata

import pytest

from t2t_lite.corpus import filters
from t2t_lite.errors import UsageError
from t2t_lite.problem import Problem


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", 0),
        ("  \t", 0),
        ("one", 1),
        ("Don't go, Ann.", 7),
        ("«Où ?» — là…", 7),
        ("a-b 3.5%", 7),
        ("größer größer", 2),
        ("हिन्दी में", 2),  # vowel signs are part of a word
        ("猫は3匹。", 5),  # without spaces, each character counts
        ("น้ำแข็ง ice", 3),  # or every four letters
    ],
)
def test_words_and_punctuation_marks_are_counted(text, words):
    assert filters.count_words(text) == words


@pytest.mark.parametrize(
    ("given", "kept", "left_out"),
    [
        ({"length": 3}, ("a b c", "a"), ("a", "a b c d")),
        ({"length": 3}, ("abcdefgh", "a"), ("a b c.", "a")),
        ({"characters": 3}, ("abc", "a"), ("a", "abcd")),
        ({"length_ratio": 2}, ("a b c d", "a b"), ("a b", "a b c d e")),
        ({"length_ratio": 1.5}, ("a b c", "a b"), ("a b c d", "a b")),
        ({"identical": True}, ("a", "A"), ("a b", " a b ")),
        ({"broken_encoding": True}, ("a?", "b"), ("a", "b\ufffd")),
        ({"control_characters": True}, ("a\tb\n", "\u2028"), ("a", "b\0")),
        ({"control_characters": True}, ("a\u0308", "\xa0"), ("a\x85", "b")),
        ({"control_characters": True}, ("a", "b"), ("a", "\ufffd")),
        ({"length_ratio": 2}, ("a b c d", "我爱你们"), ("a b", "我爱你们。")),
    ],
)
def test_a_filter_drops_only_pairs_that_match_it(given, kept, left_out):
    reason = filters.make_filter(given)
    (name,) = given
    assert reason(*kept) is None
    assert reason(*kept[::-1]) is None
    assert reason(*left_out) == reason(*left_out[::-1]) == name


def test_fast_checks_agree_with_exact_ones():
    rng = random.Random(0)
    parts = ["ab", "ü", "猫", " ", "  ", "\xa0", "\t", "\x1f", "\x9f", "\udc80"]
    parts += [",", "—", "»", "。", "¢", "©"]
    for _ in range(2000):
        text = "".join(rng.choices(parts, k=rng.randint(0, 12)))
        words = filters.count_words(text)
        for most in range(1, 9):
            reason = filters.make_filter({"length": most})
            assert bool(reason("x", text)) == (words > most)
        reason = filters.make_filter({"control_characters": True})
        has_some = any(
            unicodedata.category(c) == "Cc" and not c.isspace() for c in text
        )
        assert bool(reason("x", text)) == (has_some or "\x1f" in text)


def test_a_pair_counts_under_one_filter_in_any_order_of_filters():
    given = {"length": 1, "identical": True, "broken_encoding": True}
    backwards = dict(reversed(given.items()))
    for chosen in (given, backwards):
        chosen = filters.normalize_filters(chosen)
        assert filters.make_filter(chosen)("\ufffd b", "\ufffd b") == (
            "broken_encoding"
        )
    assert list(filters.normalize_filters(given)) == list(
        filters.normalize_filters(backwards)
    )


def test_filters_are_parsed_from_a_flag():
    assert filters.normalize_filters(
        " length=80, length_ratio=1.5,identical,"
    ) == {"length": 80, "length_ratio": 1.5, "identical": True}
    assert filters.normalize_filters("") == {}


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("lenght=80", "Did you mean length"),
        ("zzz", "control_characters"),
        ("length", "'true'"),
        ("length=0", "'0'"),
        ("length_ratio=0.5", "'0.5'"),
        ("length_ratio=inf", "'inf'"),
        ("identical=1", "'1'"),
    ],
)
def test_wrong_filters_are_refused(text, word):
    with pytest.raises(UsageError, match=word):
        filters.normalize_filters(text)


class Plain(Problem):
    name = base_name = "plain"

    def samples(self, split, raw):
        yield "a", "a"
        yield "b b b", "c"
        yield "d", "e"


class Filtered(Plain):
    filters = {"identical": True, "length_ratio": 2}


def test_a_vocabulary_is_learned_from_filtered_pairs():
    assert list(Plain().vocabulary_lines(None)) == list("aa") + [
        "b b b",
        *"cde",
    ]
    assert list(Filtered().vocabulary_lines(None)) == ["d", "e"]
