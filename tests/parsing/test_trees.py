"""Trees are read as written, written as read, and say where they are not."""

import gzip
import itertools

import pytest

from t2t_lite.errors import T2TLiteError
from t2t_lite.parsing.trees import (
    Tree,
    format_tree,
    parse_trees,
    read_trees,
    strip_annotation,
    walk,
    words,
)

TREEBANK_TREE = """
( (S
    (NP-SBJ-1 (PRP They) )
    (VP (VBD were)
      (VP (VBN told)
        (NP (-NONE- *-1) )
        (S (-NONE- *T*-2) )))
    (-LRB- -LRB-) (ADVP=2 (RB twice) ) (-RRB- -RRB-)
    (. .) ))
"""
ON_ONE_LINE = (
    "( (S (NP-SBJ-1 (PRP They)) (VP (VBD were) (VP (VBN told) (NP (-NONE- "
    "*-1)) (S (-NONE- *T*-2)))) (-LRB- -LRB-) (ADVP=2 (RB twice)) (-RRB- "
    "-RRB-) (. .)))"
)
STRIPPED = (
    "(S (NP (PRP They)) (VP (VBD were) (VP (VBN told))) (-LRB- -LRB-) "
    "(ADVP (RB twice)) (-RRB- -RRB-) (. .))"
)
TREE = "(S (NP (PRP It)) (VP (VBZ works)))"


def tree(text):
    (only,) = parse_trees([text])
    return only


def fault(*lines):
    with pytest.raises(T2TLiteError) as error:
        list(parse_trees(lines, "a.mrg"))
    return str(error.value)


def test_a_tree_is_labels_children_and_words():
    it, works = Tree("PRP", (), "It"), Tree("VBZ", (), "works")
    expected = Tree("S", (Tree("NP", (it,)), Tree("VP", (works,))))
    assert tree(TREE) == expected
    assert words(expected) == ["It", "works"]


def test_a_tree_of_many_lines_is_that_of_one_line():
    (read,) = parse_trees(TREEBANK_TREE.splitlines(keepends=True))
    assert read == tree(ON_ONE_LINE)
    assert format_tree(read) == ON_ONE_LINE
    assert read.label == ""
    assert words(read)[3:5] == ["*-1", "*T*-2"]


def test_a_tree_may_have_spaces_wherever_brackets_allow_them():
    spaced = "\t( S ( NP (  PRP   It )) (VP(VBZ works)) )  "
    assert tree(spaced) == tree(TREE)
    pieces = [f"{piece}\r\n" for piece in ON_ONE_LINE.split(" ")]
    assert list(parse_trees(pieces)) == [tree(ON_ONE_LINE)]


@pytest.mark.parametrize(
    ("lines", "place", "word"),
    [
        ([TREE, f"  {TREE} )"], "line 2, column 38", "')'"),
        (["(S (NN a)))"], "line 1, column 11", "')'"),
        (["(S (NN a)  ) ) )"], "line 1, column 14", "')'"),
        ([")"], "line 1, column 1", "')'"),
        (["", "  (S (NP (PRP It))", "(VP ("], "line 2, column 3", "3 unclosed"),
        (["(S (NN a(b)))"], "line 1, column 9", "'('"),
        (["(S (NN a)b))"], "line 1, column 10", "'b'"),
        (["(S (: :-() (NN a))"], "line 1, column 9", "'('"),
        ([TREE, "It works"], "line 2, column 1", "'It'"),
        (["x" * 10_000], "line 1, column 1", "xx"),
        (["(S", *[TREE] * 20_000], "line 1, column 1", "10,000 lines"),
    ],
)
def test_what_is_not_a_tree_is_named_with_its_place(lines, place, word):
    message = fault(*lines)
    assert message.startswith(f"a.mrg, {place}:") and word in message
    assert len(message) < 300


def test_trees_may_share_a_line_and_a_file_may_have_none():
    assert list(parse_trees([f"{TREE}{TREE} (UH Yes)"])) == [
        tree(TREE),
        tree(TREE),
        Tree("UH", (), "Yes"),
    ]
    assert not list(parse_trees([]))
    assert not list(parse_trees(["", "  \n"]))


def test_empty_constituents_are_read_on_request_and_written():
    empty = Tree("S", (Tree("NP"), Tree(""), Tree("NN", (), "a")))
    (found,) = parse_trees(["(S (NP ) () (NN a))"], allow_empty=True)
    assert found == empty
    assert format_tree(empty) == "(S (NP) () (NN a))"
    found = parse_trees(["(())"], allow_empty=True)
    assert list(found) == [Tree("", (Tree(""),))]


@pytest.mark.parametrize(
    ("text", "column"),
    [
        ("(S (NN a) (-LRB- () (NN b) (-RRB- )))", 18),
        ("(S (NN a) (( ()) (NN b))", 14),
        ("(S (NN a) (NP b () c))", 17),
        ("(S (NN a) (-RRB- )))", 11),
        ("(S (NN a) (NP) (NN b))", 11),
        ("( )", 1),
        ("(())", 2),
        ("(S (() (NN a) ()))", 5),
    ],
)
def test_a_bracket_without_a_word_is_named_with_its_place(text, column):
    with pytest.raises(T2TLiteError, match=f"line 7, column {column}: "):
        list(parse_trees([text], "a.mrg", 7))


def test_a_no_break_space_is_part_of_its_word():
    assert words(tree("(NP (CD 1\u00a0000) (NN \u3000))")) == [
        "1\u00a0000",
        "\u3000",
    ]


def test_words_of_a_tree_without_tags_get_the_tag_xx():
    assert format_tree(tree("(S (NP a) (VP b c))")) == (
        "(S (NP (XX a)) (VP (XX b) (XX c)))"
    )
    # In a tree with tags, a bracket over one word is a tag.
    assert tree("(S (NP a))") == Tree("S", (Tree("NP", (), "a"),))


def test_trees_are_read_one_by_one_and_never_all_at_once():
    endless = itertools.cycle(TREEBANK_TREE.splitlines())
    trees = list(itertools.islice(parse_trees(endless), 1000))
    assert trees[999] == tree(ON_ONE_LINE)


def test_a_file_is_read_packed_or_not_and_with_a_byte_order_mark(tmp_path):
    plain, packed = tmp_path / "a.mrg", tmp_path / "a.mrg.gz"
    text = TREEBANK_TREE.encode()
    plain.write_bytes("\ufeff".encode() + text.strip())
    packed.write_bytes(gzip.compress(text))
    assert list(read_trees(plain)) == [tree(ON_ONE_LINE)]
    assert list(read_trees(str(packed))) == [tree(ON_ONE_LINE)]


@pytest.mark.parametrize(
    ("content", "word"),
    [
        (None, "No such file"),
        (b"(S (NP", "line 1, column 1"),
        (f"{TREE}\n(NN ".encode() + "ünd été)".encode("latin1"), "line 2"),
        (gzip.compress(TREE.encode() * 99, mtime=0)[:-9], "damaged"),
    ],
)
def test_a_file_that_cannot_be_read_is_named(tmp_path, content, word):
    path = tmp_path / ("a.gz" if word == "damaged" else "a.mrg")
    if content:
        path.write_bytes(content)
    with pytest.raises(T2TLiteError, match=f"{path}.*{word}"):
        list(read_trees(path))


def test_stripping_takes_traces_function_tags_and_the_outer_bracket():
    once = strip_annotation(tree(ON_ONE_LINE))
    assert format_tree(once) == STRIPPED
    assert strip_annotation(once) == once
    # Tags keep their dashes.
    assert strip_annotation(tree("(NP (NN-X a))")) == tree("(NP (NN-X a))")


@pytest.mark.parametrize("root", ["", "TOP", "ROOT", "S1", "TOP (ROOT-2"])
def test_roots_over_one_part_go_and_over_several_are_top(root):
    end = ")" * (1 + root.count("("))
    assert strip_annotation(tree(f"({root} {TREE}{end}")) == tree(TREE)
    several = strip_annotation(tree(f"({root} {TREE} (. .){end}"))
    assert several == Tree("TOP", (tree(TREE), Tree(".", (), ".")))


def test_nothing_is_left_of_a_tree_of_traces():
    assert strip_annotation(tree("( (S (NP (-NONE- *))))")) is None


def test_a_very_deep_tree_is_read_stripped_and_written():
    text = f"{'(S ' * 5000}(NN a){')' * 5000}"
    deep = tree(text)
    assert format_tree(strip_annotation(deep)) == text
    assert words(deep) == ["a"]


@pytest.mark.parametrize(
    "bad",
    [
        Tree("NN", (), "a(b"),
        Tree("NN", (), "a b"),
        Tree("NN", (), ""),
        Tree("", (), "a"),
        Tree("N)", (Tree("NN", (), "a"),)),
    ],
)
def test_what_could_not_be_read_back_is_not_written(bad):
    with pytest.raises(T2TLiteError, match="-LRB-"):
        format_tree(bad)


def test_every_tree_of_a_treebank_is_written_as_it_stands(treebank):
    for name, text in treebank.items():
        trees = list(parse_trees(text.splitlines(), name))
        written = "".join(map(format_tree, trees))
        assert "".join(written.split()) == "".join(text.split())
        assert len(trees) == sum(x[:1] == "(" for x in text.splitlines())


def test_no_tree_of_a_treebank_keeps_annotation(treebank):
    for name, text in treebank.items():
        for raw in parse_trees(text.splitlines(), name):
            stripped = strip_annotation(raw)
            assert words(stripped) == [
                part.word
                for event, part in walk(raw)
                if event == "leaf" and part.label != "-NONE-"
            ]
            for event, part in walk(stripped):
                assert event != "open" or part.children
                assert event != "open" or not set(part.label) & set("-=")
                assert part.label not in ("", "TOP", "-NONE-")
