"""Drawings of trees, as one would draw them by hand."""

import io

import pytest

from t2t_lite.errors import T2TLiteError
from t2t_lite.parsing.tree_drawing import draw_tree

WORKS = "(S (NP (PRP It)) (VP (VBZ works) (ADVP (RB well))) (. .))"


def drawn(text):
    """A drawing in a test: without its first and last line, unindented."""
    lines = text.splitlines()[1:-1]
    return "\n".join(line.removeprefix("    |") for line in lines)


def test_branches_stand_above_their_words():
    expected = drawn("""
    |      S
    | ┌────┴────┬────────┐
    | │         VP       │
    | │    ┌────┴───┐    │
    | NP   │       ADVP  │
    | │    │        │    │
    |PRP  VBZ       RB   .
    | │    │        │    │
    | It works     well  .
    """)
    assert draw_tree(WORKS, 80, unicode_lines=True) == expected


def test_ascii_where_nothing_else_can_be_shown(monkeypatch):
    expected = drawn("""
    |     S
    |  ___|____
    | NP       VP
    | |        |
    |PRP      VBZ
    | |        |
    | It     works
    """)
    text = "(S (NP (PRP It)) (VP (VBZ works)))"
    assert draw_tree(text, 80, unicode_lines=False) == expected
    plain = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr("sys.stdout", plain)
    assert draw_tree(text, 80) == expected
    fine = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    monkeypatch.setattr("sys.stdout", fine)
    assert draw_tree(text, 80) != expected


def test_a_tree_that_is_too_wide_is_indented(monkeypatch):
    assert draw_tree(WORKS, 20).splitlines() == [
        "(S",
        "  (NP (PRP It))",
        "  (VP",
        "    (VBZ works)",
        "    (ADVP",
        "      (RB well)))",
        "  (. .))",
    ]
    # It needs one column more.
    assert not draw_tree(WORKS, 21).startswith("(")
    monkeypatch.setenv("COLUMNS", "20")
    assert draw_tree(WORKS).startswith("(S\n")


def test_every_word_is_in_a_drawing_whole_and_in_order():
    words = ["-LRB-", "x" * 40, "%", "a", "`", "y"]
    text = f"(S {' '.join(f'(XX {word})' for word in words)})"
    last = draw_tree(text, 200, unicode_lines=True).splitlines()[-1]
    assert last.split() == words


def test_a_tree_of_any_depth_is_shown():
    text = "(S " * 3000 + "(X a)" + ")" * 3000
    assert draw_tree(text, 80) == text


@pytest.mark.parametrize(
    ("text", "message"),
    [("", "got 0"), ("(S (X a)) (S (X b))", "got 2"), ("(S (X a)", "clos")],
)
def test_only_one_whole_tree_is_drawn(text, message):
    with pytest.raises(T2TLiteError, match=message):
        draw_tree(text, 80)
