"""Values that people give, on a command line or in Python."""

from typing import Any

import pytest

from t2t_lite.data.manifest import ShardRecord
from t2t_lite.errors import UsageError
from t2t_lite.values import (
    is_of_type,
    number,
    parse_key_values,
    true_or_false,
    whole_number,
)


def test_values_are_text_by_key():
    text = " a = 1 ,b=x=y,, c="
    assert parse_key_values(text, "it") == {"a": "1", "b": "x=y", "c": ""}
    assert parse_key_values("", "it") == {}


def test_keys_may_stand_alone_where_they_are_allowed_to():
    pairs = parse_key_values("a,b=2", "filters", bare_keys=True)
    assert pairs == {"a": "true", "b": "2"}


@pytest.mark.parametrize("text", ["a", "=1", "a=1,a=2"])
def test_another_form_is_refused_with_the_rule(text):
    with pytest.raises(UsageError) as error:
        parse_key_values(text, "--changes")
    assert str(error.value) == (
        "--changes must be key=value, joined by commas, each key once; got "
        f"{text!r}."
    )


@pytest.mark.parametrize(
    ("kind", "value", "kept"),
    [
        (whole_number(2), "2", 2),
        (whole_number(2), 3, 3),
        (number(float, lambda x: x > 0, "above 0"), "0.5", 0.5),
        (whole_number(0), "9007199254740993", 2**53 + 1),
        (true_or_false, "False", False),
        (true_or_false, True, True),
    ],
)
def test_a_value_and_its_text_are_read_alike(kind, value, kept):
    assert kind(value) == kind(str(value)) == kept
    assert type(kind(value)) is type(kept)


@pytest.mark.parametrize("value", ["1", "2.5", 2.5, True, None, "nan", "two"])
def test_what_is_not_of_a_kind_is_refused_with_the_rule(value):
    with pytest.raises(ValueError, match="a whole number, at least 2"):
        whole_number(2)(value)


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (1, int),
        (True, bool),
        (None, Any),
        ({}, dict[str, int]),
        ({"a": [1, 2]}, dict[str, list[int]]),
        ((1, 2), tuple[int, ...]),
        (ShardRecord("a", 1, 2, "b"), ShardRecord),
    ],
)
def test_a_value_is_of_its_type(value, kind):
    assert is_of_type(value, kind)


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        ("1", int),
        (True, int),
        (1.0, int),
        ({"a": 1}, dict[str, str]),
        ({1: "a"}, dict[str, str]),
        ([1, "a"], list[int]),
        ([1], tuple[int, ...]),
        (ShardRecord("a", 1, "2", "b"), ShardRecord),
    ],
)
def test_a_value_of_another_type_is_told_apart(value, kind):
    assert not is_of_type(value, kind)
