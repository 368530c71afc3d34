"""Bracket F1 equals EVALB's: values by hand and recorded output."""

import re

import pytest

from support.places import SHARED_DATA
from t2t_lite.errors import T2TLiteError
from t2t_lite.parsing.bracket_f1 import (
    COLLINS,
    ERROR,
    SCORED,
    SKIPPED,
    Parameters,
    SentenceScore,
    read_parameters,
    report,
    score_lines,
)

EVALB = SHARED_DATA / "evalb"
GOLD = "(TOP (S (NP (DT the) (NN cat)) (VP (VBZ sleeps)) (. .)))"


def score(gold, test, parameters=COLLINS):
    (only,) = score_lines([gold], [test], parameters)
    return only


def bracket_f1(gold, test, parameters=COLLINS):
    return report(score_lines(gold, test, parameters), parameters)


@pytest.mark.parametrize(
    ("gold", "test"),
    [
        ("(S (NP a) (VP b c))", "(S (NP a b) (VP c))"),
        ("(S (NP (X a)) (VP (X b) (X c)))", "(S (NP (X a) (X b)) (VP (X c)))"),
    ],
)
def test_one_correct_bracket_of_three_scores_a_third(gold, test):
    # Gold S 0-3, NP 0-1, VP 1-3; test S 0-3, NP 0-2 (it crosses), VP 2-3.
    result = bracket_f1([gold], [test])
    for key in ("score", "recall", "precision", "f1"):
        assert result[key] == pytest.approx(100 / 3)
    assert result["complete_match"] == 0
    assert result["average_crossing"] == 1
    assert (result["no_crossing"], result["two_or_less_crossing"]) == (0, 100)


def test_recall_and_precision_count_brackets_of_all_sentences():
    # 1 of 1 gold and 3 test brackets; then 3 of 3 and 3.
    result = bracket_f1(
        ["(S (X a))", "(S (NP (X a)) (VP (X b)))"],
        ["(S (NP (NP (X a))))", "(S (NP (X a)) (VP (X b)))"],
    )
    assert result["recall"] == 100
    assert result["precision"] == pytest.approx(100 * 4 / 6)
    assert result["f1"] == pytest.approx(80)
    assert result["complete_match"] == 50


@pytest.mark.parametrize(
    ("gold", "test", "matched", "parameters"),
    [
        # Function tags do not count.
        (GOLD.replace("(NP", "(NP-SBJ=2"), GOLD, 3, COLLINS),
        # ADVP and PRT are one label.
        ("(S (ADVP (RB up)))", "(S (PRT (RB up)))", 2, COLLINS),
        ("(S (ADVP (RB up)))", "(S (PRT (RB up)))", 1, Parameters()),
        ("(S (NP (X a)))", "(S (VP (X a)))", 2, Parameters(labeled=False)),
        # Several trees on a line are one sentence.
        ("(NP (X a)) (VP (X b))", "(S (NP (X a)) (VP (X b)))", 2, COLLINS),
        (
            *("(S (X This))", "(S (X this))", 1),
            Parameters(equal_words=(("this", "This"),)),
        ),
        (
            *("(S (X a) (UH uh))", "(S (X a))", 1),
            Parameters(deleted_words=("uh",)),
        ),
    ],
)
def test_brackets_match_as_parameters_require(gold, test, matched, parameters):
    result = score(gold, test, parameters)
    assert (result.status, result.matched) == (SCORED, matched)


def test_repeated_bracket_matches_as_often_as_it_occurs():
    once, twice = "(S (NP (X a)) (X b))", "(S (NP (NP (X a))) (X b))"
    assert score(once, twice)[2:5] == (2, 2, 3)
    assert score(twice, once)[2:5] == (2, 3, 2)
    assert score(twice, twice)[2:5] == (3, 3, 3)


def test_punctuation_and_top_count_for_length_only():
    plain = "(S (NP (DT the) (NN cat)) (VP (VBZ sleeps)))"
    assert score(GOLD, plain) == SentenceScore(SCORED, 4, 3, 3, 3, 0, 3, 3)
    # Traces do not count at all.
    trace = "(S (NP (-NONE- *)) (NP (DT the) (NN cat)) (VP (VBZ sleeps)))"
    assert score(trace, GOLD) == SentenceScore(SCORED, 3, 3, 3, 3, 0, 3, 3)
    # A wrong tag is not a wrong bracket.
    other_tag = score(GOLD, GOLD.replace("VBZ", "NNS"))
    assert (other_tag.matched, other_tag.correct_tags) == (3, 2)


def test_crossing_brackets_are_counted_in_the_test_tree():
    # Gold (a b) (c d). Test b-c crosses both, and a-c and b-d cross one: each
    # counts once. a-b-c-d and a-b cross none.
    gold = "(S (A (X a) (X b)) (B (X c) (X d)))"
    assert score(gold, "(S (X a) (A (X b) (X c)) (X d))").crossing == 1
    assert score(gold, "(S (A (X a) (A (X b) (X c))) (X d))").crossing == 2
    assert score(gold, "(S (X a) (A (A (X b) (X c)) (X d)))").crossing == 2
    assert score(gold, "(S (A (B (X a) (X b)) (X c) (X d)))").crossing == 0


@pytest.mark.parametrize(
    ("test", "problem"),
    [
        (GOLD.replace("cat", "dog"), "'cat' (got 'dog')"),
        ("(S (DT the) (NN cat))", "3 words"),
        ("(S (A a) (A b) (A c) (A d))", "3 words"),
        # A word that is tagged as punctuation is deleted.
        (GOLD.replace("VBZ", "."), "3 words"),
        ("(S (NP", "line 1, column"),
        ("(S (NN a)))", "line 1, column"),
        ("no tree", "line 1, column"),
    ],
)
def test_other_words_or_a_damaged_tree_are_an_error_sentence(test, problem):
    result = score(GOLD, test)
    assert result[:-1] == (ERROR, 4, 0, 0, 0, 0, 0, 0)
    assert problem in result.problem


@pytest.mark.parametrize("empty", ["", "\n", "(())", "(TOP (. .))"])
def test_a_test_tree_without_words_is_skipped(empty):
    assert score(GOLD, empty) == SentenceScore(SKIPPED, 4)
    assert score("", empty) == SentenceScore(SKIPPED, 0)
    assert score("", GOLD).status == ERROR


def test_errors_and_skipped_sentences_are_counted_and_left_out():
    result = bracket_f1([GOLD] * 4, [GOLD, "", "(NN a)", ")"])
    assert result["sentences"] == 4
    assert (result["errors"], result["skipped"], result["valid"]) == (2, 1, 1)
    assert result["f1"] == result["complete_match"] == 100
    nothing = bracket_f1([GOLD], [""])
    assert nothing["f1"] == nothing["complete_match"] == 0


def test_quote_that_one_side_tags_as_a_word_is_kept():
    gold = "(S (NP (NN dog) (POS ')) (NN tail))"
    test = "(S (NP (NN dog) ('' ')) (NN tail))"
    assert score(gold, test).status == ERROR
    parameters = Parameters(deleted_labels=("''",), quote_labels=("''", "POS"))
    for pair in ((gold, test), (test, gold)):
        result = score(*pair, parameters)
        assert result == SentenceScore(SCORED, 3, 2, 2, 2, 0, 3, 2)


def write(path, text):
    path.write_text(text, encoding="utf-8")
    return path


def test_every_key_of_a_parameter_file_is_read(tmp_path):
    text = (
        "DEBUG 2\nMAX_ERROR 5\nCUTOFF_LEN 70\nLABELED 0\nDELETE_LABEL S1\n"
        "DELETE_LABEL_FOR_LENGTH .\nQUOTE_LABEL POS\nQUOTE_LABEL ''\n"
        "DELETE_WORD uh\nEQ_LABEL T TT\nEQ_LABEL A B\nEQ_WORD This this\n"
    )
    assert read_parameters(write(tmp_path / "a.prm", text)) == Parameters(
        deleted_labels=("S1",),
        deleted_words=("uh",),
        uncounted_labels=(".",),
        quote_labels=("POS", "''"),
        equal_labels=(("T", "TT"), ("A", "B")),
        equal_words=(("This", "this"),),
        labeled=False,
        cutoff_length=70,
    )
    assert read_parameters(write(tmp_path / "b.prm", "")) == Parameters()


@pytest.mark.parametrize(
    "line",
    [
        "DELETE_LABELS X",
        "EQ_LABEL ADVP",
        "DELETE_LABEL A B",
        "LABELED",
        "CUTOFF_LEN forty",
    ],
)
def test_invalid_line_of_a_parameter_file_is_named(tmp_path, line):
    path = write(tmp_path / "a.prm", f"# Mine\n\n{line}\n")
    key = line.split()[0]
    with pytest.raises(T2TLiteError, match=f"{path}, line 3: .*{key}"):
        read_parameters(path)


@pytest.fixture(scope="module")
def sample():
    """Return the gold lines, the test lines and the output of EVALB."""
    if not EVALB.exists():
        pytest.skip("EVALB's verdict is not in ../shared/data/evalb")
    return [
        (EVALB / f"sample.{name}").read_text(encoding="utf-8").splitlines()
        for name in ("gold", "test", "evalb")
    ]


def test_counts_of_each_sentence_equal_those_of_evalb(sample):
    gold, test, printed = sample
    scores = score_lines(gold, test)
    rows = [line.split() for line in printed if re.match(r" *\d+ +\d", line)]
    rows = [row for row in rows if len(row) == 12]
    assert len(rows) == len(scores) == 233
    for row, ours in zip(rows, scores, strict=True):
        length, status = map(int, row[1:3])
        counts = tuple(map(int, row[5:11]))
        assert ours[:8] == (status, length, *counts)


def test_totals_of_the_sample_equal_those_of_evalb(sample):
    gold, test, printed = sample
    ours = report(score_lines(gold, test))
    values = [float(x.split("=")[1]) for x in printed if " = " in x]
    keys = (
        "sentences errors skipped valid recall precision f1 complete_match "
        "average_crossing no_crossing two_or_less_crossing tagging_accuracy"
    ).split()
    assert len(values) == 2 * len(keys)
    assert [round(ours[key], 2) for key in keys] == values[:12]
    short = ours["within_cutoff"]
    assert [round(short[key], 2) for key in keys] == values[12:]
