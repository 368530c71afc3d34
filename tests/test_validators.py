"""Validation of values from command lines, Python and JSON."""

import pytest

from t2t_lite.errors import UsageError
from t2t_lite.validators import (
    boolean,
    file_path,
    integer,
    one_of,
    optional,
    parse_key_values,
    real,
    text,
    texts,
)


def test_key_values_are_parsed_as_text():
    given = " a = 1 ,b=x=y,, c="
    assert parse_key_values(given, "it") == {"a": "1", "b": "x=y", "c": ""}
    assert parse_key_values("", "it") == {}


def test_keys_without_values_are_true_if_allowed():
    pairs = parse_key_values("a,b=2", "filters", allow_bare_keys=True)
    assert pairs == {"a": "true", "b": "2"}


@pytest.mark.parametrize("given", ["a", "=1", "a=1,a=2"])
def test_invalid_key_values_are_refused(given):
    with pytest.raises(UsageError, match=f"--changes .*'{given}'"):
        parse_key_values(given, "--changes")


@pytest.mark.parametrize(
    ("validator", "value", "kept"),
    [
        (integer(2), "2", 2),
        (integer(0), "9007199254740993", 2**53 + 1),
        (integer(0, 7), 7, 7),
        (real(above=0), "0.5", 0.5),
        (real(at_least=0, below=1), 0, 0.0),
        (boolean, "False", False),
        (boolean, "1", True),
        (boolean, True, True),
        (one_of("a", "b"), "b", "b"),
        (optional(integer(1)), "none", None),
        (optional(integer(1)), "3", 3),
        (texts, "a,b", ("a", "b")),
        (texts, ["a,b"], ("a,b",)),
        (file_path, "/a/../b", "/b"),
    ],
)
def test_value_or_its_text_is_parsed(validator, value, kept):
    assert validator(value) == kept
    assert type(validator(value)) is type(kept)


@pytest.mark.parametrize(
    ("validator", "values", "rule"),
    [
        (integer(2), ["1", "2.5", 2.5, 8.0, True, None, "two"], "at least 2"),
        (integer(0, 7), [8, -1], "from 0 to 7"),
        (real(above=0, below=1), [0, 1, "nan", "x", None, True, []], "below 1"),
        (real(at_most=1e38), [1e39, float("inf"), 10**400], "at most 1e"),
        (boolean, ["maybe", 1, None], "true or false"),
        (one_of("a", "b"), ["c", None], "one of a, b"),
        (optional(integer(1)), [0, ""], "at least 1, or none"),
        (text, ["", 1, None], "text"),
        (texts, ["a,,b", [1], 3], "none of them empty"),
        (file_path, ["", 3], "a path"),
    ],
)
def test_invalid_value_is_refused_with_the_rule(validator, values, rule):
    for value in values:
        with pytest.raises(ValueError, match=rule):
            validator(value)
