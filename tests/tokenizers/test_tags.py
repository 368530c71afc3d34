"""Tags: names, and texts with a tag."""

import pytest

from t2t_lite.tokenizers.tags import (
    add_tag,
    split_tag,
    tag_of,
)

TAGS = ("<2de>", "<web>")


@pytest.mark.parametrize("name", ["2de", "<2de>", "back-translated", "x_1"])
def test_a_name_gives_its_tag(name):
    assert tag_of(name) == f"<{name.strip('<>')}>"


# Numbers are shares; the others are special pieces or invalid names.
@pytest.mark.parametrize(
    "name", ["2", "-1", "", "a b", "a:b", "unk", "<pad>", "s", "0x4F", "é"]
)
def test_invalid_tag_is_none(name):
    assert tag_of(name) is None


@pytest.mark.parametrize("text", ["two men", " two  men", "<x> y"])
def test_tag_is_added_to_a_text_and_removed(text):
    assert add_tag("<2de>", text) == f"<2de> {text}"
    assert split_tag(add_tag("<2de>", text), TAGS) == ("<2de>", text)
    assert split_tag(text, TAGS) == ("", text)
    assert add_tag("", text) == text
