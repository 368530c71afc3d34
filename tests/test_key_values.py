"""Keys and values of a command line."""

import pytest

from t2t_lite.errors import UsageError
from t2t_lite.key_values import parse_key_values


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
