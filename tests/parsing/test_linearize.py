"""Linearized trees: round trips, and repairs of invalid output."""

import random

import pytest

from t2t_lite.errors import T2TLiteError
from t2t_lite.parsing import trees
from t2t_lite.parsing.linearize import (
    PUNCTUATION,
    delinearize,
    linearize,
)

TREE = (
    "(S (`` ``) (NP (DT The) (NN cat)) (, ,) (VP (VBZ sleeps)) ('' '') (. .))"
)


def tree(text):
    (only,) = trees.parse_trees([text])
    return only


def without_tags(whole):
    """Return the tree with the tag XX where `linearize` drops a tag."""
    return trees.fold(
        whole,
        lambda leaf: (
            leaf if leaf.label in PUNCTUATION else leaf._replace(label="XX")
        ),
        lambda part, parts: trees.Tree(part.label, tuple(parts)),
    )


def repaired(tokens, sentence="a b c", **options):
    """Return the rebuilt tree as text, and the repairs."""
    rebuilt, repairs = delinearize(tokens.split(), sentence.split(), **options)
    return trees.format_tree(rebuilt), repairs


def test_words_are_xx_and_punctuation_keeps_its_tags():
    assert linearize(tree(TREE)) == (
        "(S `` (NP XX XX )NP , (VP XX )VP '' . )S".split()
    )
    assert linearize(tree(TREE), keep_tags=True) == (
        "(S `` (NP DT NN )NP , (VP VBZ )VP '' . )S".split()
    )


@pytest.mark.parametrize(
    "text",
    ["(XX a)", "( (NP (XX a)))", "(NP (NP (NP (XX a))))", "(S (XX a) (. .))"],
)
def test_unusual_trees_round_trip(text):
    whole = tree(text)
    assert delinearize(linearize(whole), trees.words(whole)) == (whole, {})


@pytest.mark.parametrize(
    ("tokens", "sentence", "expected", "repairs"),
    [
        # The second )NP does not close (S, because )S follows.
        (
            *("(S (NP XX )NP )NP (VP XX XX )VP )S", "a b c"),
            *("(S (NP (XX a)) (VP (XX b) (XX c)))", {"surplus_closings": 1}),
        ),
        # A wrong label closes the innermost bracket.
        (
            *("(S (NP XX )VP (VP XX XX )VP )S", "a b c"),
            *("(S (NP (XX a)) (VP (XX b) (XX c)))", {"mislabeled_closings": 1}),
        ),
        # Opening brackets determine how crossing brackets are nested.
        (
            *("(S (NP XX (VP XX )NP XX )VP )S", "a b c"),
            *("(S (NP (XX a) (VP (XX b)) (XX c)))", {"mislabeled_closings": 2}),
        ),
        # Missing brackets are closed with the outer one, or at the end.
        (
            *("(S (VP XX (NP XX )VP XX )S", "a b c"),
            *("(S (VP (XX a) (NP (XX b))) (XX c))", {"missing_closings": 1}),
        ),
        (
            *("(S (NP XX )NP (VP XX XX", "a b c"),
            *("(S (NP (XX a)) (VP (XX b) (XX c)))", {"missing_closings": 2}),
        ),
        # Both commas are present: the missing word is between them.
        (
            *("(S (NP XX )NP , XX , (VP XX )VP . )S", "a , b c , d ."),
            "(S (NP (XX a)) (, ,) (XX b) (XX c) (, ,) (VP (XX d)) (. .))",
            {"missing_leaves": 1},
        ),
        # Missing leaves join the constituent of the previous leaf, else of
        # the first leaf. Without leaves they join the first constituent.
        (
            *("(S (NP XX )NP )S", "a b ."),
            *("(S (NP (XX a) (XX b) (. .)))", {"missing_leaves": 2}),
        ),
        (
            *("(S (NP . )NP )S", "a ."),
            *("(S (NP (XX a) (. .)))", {"missing_leaves": 1}),
        ),
        (
            *("(S (NP )NP )S", "a b c", "(S (XX a) (XX b) (XX c))"),
            {"missing_leaves": 3, "empty_constituents": 1},
        ),
        (
            *("(S (NP XX XX )NP (VP XX (NP XX XX )NP )VP . )S", "a b c ."),
            "(S (NP (XX a) (XX b)) (VP (XX c)) (. .))",
            {"surplus_leaves": 2, "empty_constituents": 1},
        ),
        (
            *("(S XX )S XX (NP XX )NP", "a b c"),
            *("(TOP (S (XX a)) (XX b) (NP (XX c)))", {"several_roots": 1}),
        ),
    ],
)
def test_repairs_follow_the_rules(tokens, sentence, expected, repairs):
    assert repaired(tokens, sentence) == (expected, repairs)


def test_unknown_tokens_are_left_out():
    tokens = ["(S", "", "a b", "(N(P", "XX)", "XX", "XX", "XX", "\n", ")S"]
    rebuilt, repairs = delinearize(tokens, ["a", "b", "c"])
    assert trees.format_tree(rebuilt) == "(S (XX a) (XX b) (XX c))"
    assert repairs == {"unknown_tokens": 5}


@pytest.mark.parametrize("tokens", ["", ")S", ")S )"])
def test_empty_output_is_a_flat_tree(tokens):
    text, repairs = repaired(tokens, "a , b")
    assert text == "(TOP (XX a) (, ,) (XX b))"
    assert repairs["empty_output"] == 1


def test_tags_that_do_not_fit_words_are_corrected_on_request():
    tokens = "(S , XX . '' )S"
    assert repaired(tokens, "dog , ' '") == (
        "(S (, dog) (XX ,) (. ') ('' '))",
        {},
    )
    assert repaired(tokens, "dog , ' '", correct_tags=True) == (
        "(S (XX dog) (, ,) (. ') ('' '))",
        {"corrected_tags": 2},
    )


def test_a_sentence_without_words_is_refused():
    with pytest.raises(T2TLiteError, match="at least one word"):
        delinearize(["(S", ")S"], [])


def test_any_tokens_become_a_tree_over_exactly_the_words():
    draw = random.Random(5)
    vocabulary = "(S )S (NP )NP (VP )VP ( ) XX XX XX XX , . NN".split()
    vocabulary += ["", "x(y", "a b", "((", "))", "\u2028", "<pad>"]
    for _ in range(3000):
        tokens = draw.choices(vocabulary, k=draw.randrange(30))
        sentence = draw.choices("dog , . ( a)b '".split(), k=draw.randint(1, 9))
        rebuilt, repairs = delinearize(
            tokens, sentence, correct_tags=draw.random() < 0.5
        )
        assert trees.words(rebuilt) == sentence
        assert all(count > 0 for count in repairs.values())
        assert all(
            part.children
            for kind, part in trees.walk(rebuilt)
            if kind is trees.OPEN
        )


def test_every_tree_of_a_treebank_round_trips(treebank):
    for name, text in treebank.items():
        for raw in trees.parse_trees(text.splitlines(), name):
            check_round_trip(raw, keep_tags=False)
            check_round_trip(trees.strip_annotation(raw), keep_tags=False)
            check_round_trip(trees.strip_annotation(raw), keep_tags=True)


def check_round_trip(whole, keep_tags):
    rebuilt = delinearize(linearize(whole, keep_tags), trees.words(whole))
    expected = whole if keep_tags else without_tags(whole)
    assert rebuilt == (expected, {})
