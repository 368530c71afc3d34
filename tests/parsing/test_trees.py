"""Trees are read as written, written as read, and say where they are not."""

import gzip
import itertools

import pytest

from t2t_lite.errors import T2TLiteError
from t2t_lite.parsing.tree_reader import (
    parse_line,
    parse_trees,
    read_trees,
    sentence_of,
    tree_lines,
)
from t2t_lite.parsing.trees import (
    Tree,
    escape_brackets,
    fold,
    format_tree,
    leaves_of,
    strip_annotation,
    walk,
    without_function,
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
    assert [leaf.label for leaf in leaves_of(expected)] == ["PRP", "VBZ"]


def test_a_tree_cannot_be_changed():
    with pytest.raises(AttributeError):
        tree(TREE).label = "NP"


def test_a_tree_of_many_lines_is_that_of_one_line():
    (read,) = parse_trees(TREEBANK_TREE.splitlines(keepends=True))
    assert read == tree(ON_ONE_LINE)
    assert format_tree(read) == ON_ONE_LINE
    assert read.label == ""
    assert words(read)[3:5] == ["*-1", "*T*-2"]
    assert leaves_of(read)[5].label == "-LRB-"


def test_a_tree_may_break_at_any_space():
    pieces = [f"{piece}\r\n" for piece in ON_ONE_LINE.split(" ")]
    assert list(parse_trees(pieces)) == [tree(ON_ONE_LINE)]


def test_a_tree_may_have_spaces_wherever_brackets_allow_them():
    spaced = "\t( S ( NP (  PRP   It )) (VP(VBZ works)) )  "
    assert tree(spaced) == tree(TREE)


def test_trees_may_share_a_line_and_a_file_may_have_none():
    assert list(parse_trees([f"{TREE}{TREE} (UH Yes)"])) == [
        tree(TREE),
        tree(TREE),
        Tree("UH", (), "Yes"),
    ]
    assert not list(parse_trees([]))
    assert not list(parse_trees(["", "  \n"]))


def test_empty_constituents_are_read_and_written():
    empty = Tree("S", (Tree("NP"), Tree(""), Tree("NN", (), "a")))
    assert tree("(S (NP ) () (NN a))") == empty
    assert format_tree(empty) == "(S (NP) () (NN a))"


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


def test_a_surplus_closing_bracket_is_found_at_its_column():
    assert fault(TREE, f"  {TREE} )").startswith(
        "a.mrg, line 2, column 38: a closing bracket must have an opening one"
    )
    assert "line 1, column 11: a closing" in fault("(S (NN a)))")
    assert "line 1, column 14: a closing" in fault("(S (NN a)  ) ) )")
    assert "line 1, column 1: a closing" in fault(")")


def test_a_file_cut_in_the_middle_names_the_tree_that_is_cut():
    message = fault("", TREE, "  (S (NP (PRP It))", "(VP (VBZ wor")
    assert message == (
        "a.mrg, line 3, column 3: each opening bracket must be closed; the "
        "tree that begins here has 3 open at the end of the text. Close them, "
        "write -LRB- for the sign, or get the file again if it is cut."
    )


def test_a_tree_that_never_ends_is_given_up_in_time():
    lines = itertools.chain(["(S"], itertools.repeat(TREE))
    with pytest.raises(T2TLiteError, match="1 open after 10,000 lines"):
        list(parse_trees(lines))


@pytest.mark.parametrize(
    ("line", "column", "word"),
    [
        ("(S (NN a(b)))", 8, "a"),
        ("(S (NN a(b c)))", 8, "a"),
        ("(S (NN a)b))", 10, "b"),
        ("(S (: :-() (NN a))", 7, ":-"),
    ],
)
def test_a_word_with_a_bracket_is_refused(line, column, word):
    message = fault(line)
    assert f"column {column}: a bracket must hold words or brackets" in message
    assert f"got the word {word!r} beside a bracket" in message
    assert "-LRB-" in message


def test_text_outside_of_brackets_is_refused():
    assert fault(TREE, "It works").startswith(
        "a.mrg, line 2, column 1: text must stand in brackets; got 'It'."
    )
    assert len(fault("x" * 10_000)) < 200


@pytest.mark.parametrize("empty", ["()", "( )", "(())", "(S (NP ))"])
def test_a_tree_without_words_is_refused(empty):
    assert fault(TREE, f" {empty}").startswith(
        "a.mrg, line 2, column 2: a tree must have at least one word"
    )


def test_a_line_may_hold_no_tree_or_one_without_words():
    assert parse_line("\n") == []
    assert parse_line("(())") == [Tree("", (Tree(""),))]
    with pytest.raises(T2TLiteError, match="f, line 7, column 1: .* the line"):
        parse_line("(S (NP", "f", 7)


def test_the_sentence_of_a_line_has_the_words_of_its_trees_without_traces():
    trees = "( (S (NP-SBJ (-NONE- *)) (VP (VB Go))) ) (X (-LRB- -LRB-))"
    assert sentence_of(trees) == "Go -LRB-"
    assert sentence_of("") == sentence_of("(NP (-NONE- *))") == ""


def test_a_file_is_read_packed_or_not_and_with_a_byte_order_mark(tmp_path):
    plain, packed = tmp_path / "a.mrg", tmp_path / "a.mrg.gz"
    text = TREEBANK_TREE.encode()
    plain.write_bytes("\ufeff".encode() + text.strip())
    packed.write_bytes(gzip.compress(text))
    assert list(read_trees(plain)) == [tree(ON_ONE_LINE)]
    assert list(read_trees(str(packed))) == [tree(ON_ONE_LINE)]


def test_another_encoding_is_found_at_its_column(tmp_path):
    path = tmp_path / "a.mrg"
    path.write_bytes(f"{TREE}\n(NN ".encode() + "ünd été)".encode("latin1"))
    with pytest.raises(T2TLiteError) as error:
        list(read_trees(path))
    assert str(error.value) == (
        f"{path}, line 2, column 5: trees must be UTF-8 text; got byte 0xfc. "
        "Convert the file first, for example with iconv."
    )


def test_missing_and_damaged_files_are_said(tmp_path):
    with pytest.raises(T2TLiteError, match="Cannot read .*no: No such file"):
        list(read_trees(tmp_path / "no"))
    damaged = tmp_path / "a.gz"
    damaged.write_bytes(gzip.compress(TREE.encode() * 99)[:-9])
    with pytest.raises(T2TLiteError, match="a.gz is damaged: "):
        list(tree_lines(damaged))


def test_errors_of_a_file_name_it(tmp_path):
    (tmp_path / "cut.mrg").write_text("(S (NP", encoding="utf-8")
    with pytest.raises(T2TLiteError, match="cut.mrg, line 1, column 1: each"):
        list(read_trees(tmp_path / "cut.mrg"))


def test_stripping_takes_traces_function_tags_and_the_outer_bracket():
    assert format_tree(strip_annotation(tree(ON_ONE_LINE))) == STRIPPED


def test_stripping_twice_is_stripping_once():
    once = strip_annotation(tree(ON_ONE_LINE))
    assert strip_annotation(once) == once


@pytest.mark.parametrize("root", ["", "TOP", "ROOT", "S1", "TOP (ROOT-2"])
def test_roots_over_one_part_go_and_over_several_are_top(root):
    end = ")" * (1 + root.count("("))
    assert strip_annotation(tree(f"({root} {TREE}{end}")) == tree(TREE)
    several = strip_annotation(tree(f"({root} {TREE} (. .){end}"))
    assert several == Tree("TOP", (tree(TREE), Tree(".", (), ".")))


def test_nothing_is_left_of_a_tree_of_traces():
    assert strip_annotation(tree("( (S (NP (-NONE- *))))")) is None


def test_labels_end_where_function_tags_begin():
    labels = "NP-SBJ-1 NP=2 NP -NONE- -LRB- WHNP-1=2 ADVP|PRT-CLR".split()
    assert list(map(without_function, labels)) == (
        "NP NP NP -NONE- -LRB- WHNP ADVP|PRT".split()
    )
    assert without_function("") == ""


def test_tags_keep_their_dashes():
    assert strip_annotation(tree("(NP (NN-X a))")) == tree("(NP (NN-X a))")


def test_walking_goes_in_the_order_of_the_text():
    events = [(event, part.label) for event, part in walk(tree(TREE))]
    assert events == [
        ("open", "S"),
        ("open", "NP"),
        ("leaf", "PRP"),
        ("close", "NP"),
        ("open", "VP"),
        ("leaf", "VBZ"),
        ("close", "VP"),
        ("close", "S"),
    ]
    assert [event for event, _ in walk(Tree("NN", (), "a"))] == ["leaf"]


def test_folding_computes_a_depth():
    depth = fold(tree(STRIPPED), lambda _: 0, lambda _, parts: 1 + max(parts))
    assert depth == 3


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
    with pytest.raises(T2TLiteError, match="must not be empty, nor contain"):
        format_tree(bad)


def test_brackets_in_words_are_escaped():
    assert escape_brackets("(") == "-LRB-"
    assert escape_brackets("f(x)") == "f-LRB-x-RRB-"
    assert escape_brackets("word") == "word"


def test_every_tree_of_a_treebank_is_written_as_it_stands(treebank):
    for name, text in treebank.items():
        trees = list(parse_trees(text.splitlines(), name))
        written = "".join(map(format_tree, trees))
        assert "".join(written.split()) == "".join(text.split())
        assert len(trees) == sum(x[:1] == "(" for x in text.splitlines())


def test_every_tree_of_a_treebank_is_read_back(treebank):
    for name, text in treebank.items():
        trees = list(parse_trees(text.splitlines(), name))
        lines = map(format_tree, map(strip_annotation, trees))
        assert list(parse_trees(lines)) == list(map(strip_annotation, trees))


def test_no_tree_of_a_treebank_keeps_annotation(treebank):
    for name, text in treebank.items():
        for raw in parse_trees(text.splitlines(), name):
            stripped = strip_annotation(raw)
            assert words(stripped) == [
                leaf.word for leaf in leaves_of(raw) if leaf.label != "-NONE-"
            ]
            for event, part in walk(stripped):
                assert event != "open" or part.children
                assert event != "open" or not set(part.label) & set("-=")
                assert part.label not in ("", "TOP", "-NONE-")
