"""Trees: parsing, formatting, stripping, and positions in errors."""

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


def parse_error(*lines):
    with pytest.raises(T2TLiteError) as error:
        list(parse_trees(lines, "a.mrg"))
    return str(error.value)


def test_tree_has_labels_children_and_words():
    it, works = Tree("PRP", (), "It"), Tree("VBZ", (), "works")
    expected = Tree("S", (Tree("NP", (it,)), Tree("VP", (works,))))
    assert tree(TREE) == expected
    assert words(expected) == ["It", "works"]


def test_tree_on_many_lines_equals_that_on_one_line():
    (read,) = parse_trees(TREEBANK_TREE.splitlines(keepends=True))
    assert read == tree(ON_ONE_LINE)
    assert format_tree(read) == ON_ONE_LINE
    assert read.label == ""
    assert words(read)[3:5] == ["*-1", "*T*-2"]


def test_spaces_around_brackets_and_words_are_ignored():
    spaced = "\t( S ( NP (  PRP   It )) (VP(VBZ works)) )  "
    assert tree(spaced) == tree(TREE)
    pieces = [f"{piece}\r\n" for piece in ON_ONE_LINE.split(" ")]
    assert list(parse_trees(pieces)) == [tree(ON_ONE_LINE)]


@pytest.mark.parametrize(
    ("lines", "place", "word"),
    [
        ([TREE, f"  {TREE} )"], "line 2, column 38", "')'"),
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
def test_invalid_tree_is_named_with_its_position(lines, place, word):
    message = parse_error(*lines)
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
        ("(())", 2),
        ("(S (() (NN a) ()))", 5),
    ],
)
def test_bracket_without_a_word_is_named_with_its_position(text, column):
    with pytest.raises(T2TLiteError, match=f"line 7, column {column}: "):
        list(parse_trees([text], "a.mrg", 7))


def test_no_break_space_is_part_of_its_word():
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


def test_trees_are_read_lazily():
    endless = itertools.cycle(TREEBANK_TREE.splitlines())
    trees = list(itertools.islice(parse_trees(endless), 1000))
    assert trees[999] == tree(ON_ONE_LINE)


def test_gzipped_file_and_file_with_bom_are_read(tmp_path):
    plain, gzipped = tmp_path / "a.mrg", tmp_path / "a.mrg.gz"
    text = TREEBANK_TREE.encode()
    plain.write_bytes("\ufeff".encode() + text.strip())
    gzipped.write_bytes(gzip.compress(text))
    assert list(read_trees(plain)) == [tree(ON_ONE_LINE)]
    assert list(read_trees(str(gzipped))) == [tree(ON_ONE_LINE)]


@pytest.mark.parametrize(
    ("content", "word"),
    [
        (None, "No such file"),
        (b"(S (NP", "line 1, column 1"),
        (gzip.compress(TREE.encode() * 99, mtime=0)[:-9], "damaged"),
    ],
)
def test_unreadable_file_is_named(tmp_path, content, word):
    path = tmp_path / ("a.gz" if word == "damaged" else "a.mrg")
    if content:
        path.write_bytes(content)
    with pytest.raises(T2TLiteError, match=f"{path}.*{word}"):
        list(read_trees(path))


def test_stripping_removes_traces_function_tags_and_the_root():
    once = strip_annotation(tree(ON_ONE_LINE))
    assert format_tree(once) == STRIPPED
    assert strip_annotation(once) == once
    # Tags keep their dashes.
    assert strip_annotation(tree("(NP (NN-X a))")) == tree("(NP (NN-X a))")


@pytest.mark.parametrize("root", ["", "TOP", "ROOT", "S1", "TOP (ROOT-2"])
def test_root_of_one_tree_is_removed_and_of_several_is_top(root):
    end = ")" * (1 + root.count("("))
    assert strip_annotation(tree(f"({root} {TREE}{end}")) == tree(TREE)
    several = strip_annotation(tree(f"({root} {TREE} (. .){end}"))
    assert several == Tree("TOP", (tree(TREE), Tree(".", (), ".")))


def test_stripping_a_tree_of_traces_leaves_nothing():
    assert strip_annotation(tree("( (S (NP (-NONE- *))))")) is None


def test_every_tree_of_a_treebank_is_formatted_unchanged(treebank):
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
