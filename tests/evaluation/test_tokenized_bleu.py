"""Tokenized BLEU equals tensor2tensor's script and multi-bleu.perl."""

import math

import pytest

import t2t_lite
from t2t_lite.errors import T2TLiteError, UsageError
from t2t_lite.evaluation.tokenized_bleu import (
    split_compounds,
    tokenize,
    tokenized_bleu,
)
from t2t_lite.problem import Text2TextProblem


@pytest.mark.parametrize(
    ("text", "split"),
    [
        ("rich-text format", "rich ##AT##-##AT## text format"),
        ("a-b-c", "a ##AT##-##AT## b-c"),  # the first match includes b
        ("a-b-c-d", "a ##AT##-##AT## b-c ##AT##-##AT## d"),
        ("ab-cd-ef", "ab ##AT##-##AT## cd ##AT##-##AT## ef"),
        ("ä-ö-ü", "ä ##AT##-##AT## ö ##AT##-##AT## ü"),  # ö is two bytes
        ("a--b", "a ##AT##-##AT## -b"),
        ("a---b", "a ##AT##-##AT## --b"),
        ("10-jährig", "10 ##AT##-##AT## jährig"),
        ("-a b- - -- c", "-a b- - -- c"),
        ("", ""),
    ],
)
def test_compounds_are_split_as_in_perl(text, split):
    assert split_compounds(text) == split


@pytest.mark.parametrize(
    ("language", "text", "tokens"),
    [
        (
            "de",
            'Das "Rad-Rennen" ist\'s wert, sagt Dr. Maier & Co. [5].',
            "Das &quot; Rad ##AT##-##AT## Rennen &quot; ist &apos; s wert , "
            "sagt Dr. Maier &amp; Co. &#91; 5 &#93; .",
        ),
        ("de", "1.000,50 Euro ...", "1.000,50 Euro ..."),
        ("en", "It's a dog's.", "It &apos;s a dog &apos;s ."),
        ("fr", "C'est l'eau.", "C&apos; est l&apos; eau ."),
        ("de", "zwei\u00a0Hunde\u2028da ", "zwei Hunde da"),
        ("de", "", ""),
    ],
)
def test_tokens_equal_those_of_moses_in_the_language(language, text, tokens):
    assert tokenize([text], language) == [tokens]


def test_score_matches_a_value_by_hand():
    # Das ist ein Rad ##AT##-##AT## Rennen . and b b b b b have 7 + 5 tokens.
    # 6 + 4 of them match, 4 + 3 of 6 + 4 bigrams, 3 + 2 of 5 + 3 trigrams and
    # 2 + 1 of 4 + 2 4-grams; the references have 3 tokens more.
    report = tokenized_bleu(
        ["Das ist ein Rad-Turnier.", "b b b b b"],
        ["Das ist ein Rad-Rennen.", "b b b b a a a a"],
        "de",
    )
    matches = math.prod([10 / 12, 7 / 10, 5 / 8, 3 / 6]) ** 0.25
    penalty = math.exp(1 - 15 / 12)
    assert report["score"] == pytest.approx(100 * penalty * matches)


@pytest.mark.parametrize(
    ("hypothesis", "reference"),
    [
        ("a b c x e f g", "a b c d e f g"),  # no 4-gram matches
        ("a b c", "a b c"),  # there is no 4-gram
        ("w x y z", "a b c d"),
        ("A b c d", "a b c d"),  # case counts
        ("", "a b c d"),
        ("a b c d", ""),
        ("", ""),
    ],
)
def test_order_without_a_match_scores_0(hypothesis, reference):
    assert tokenized_bleu([hypothesis], [reference], "en")["score"] == 0


def test_procedure_describes_how_the_score_is_computed():
    procedure = tokenized_bleu(["a"], ["a"], "de")["procedure"]
    for part in (
        "Moses tokens of both sides (sacremoses 0.",
        "language de, escaped",
        "##AT##-##AT##",
        "multi-bleu (sacreBLEU nrefs:1|case:mixed|eff:no|tok:none|smooth:none|",
    ):
        assert part in procedure


@pytest.mark.parametrize("language", ["xx", "german", "DE", ""])
def test_language_without_rules_is_refused(language):
    with pytest.raises(UsageError, match=f"'{language}'.* de, "):
        tokenized_bleu(["a"], ["a"], language)


class Captions(Text2TextProblem):
    source_language = "fr"
    target_language = "de"


@pytest.mark.parametrize(
    ("problem", "language"), [(Captions(), "de"), (Captions().reverse(), "fr")]
)
def test_report_has_both_scores_in_the_target_language(problem, language):
    lines = ["l'eau, a b-c d"]
    report = problem.evaluate([""], ["l'eau, a b-c e"], lines)
    wanted = tokenized_bleu(lines, ["l'eau, a b-c e"], language)
    assert report["tokenized_bleu"] == wanted["score"] != report["score"]
    assert report["tokenized_bleu_procedure"] == wanted["procedure"]
    assert f"language {language}," in wanted["procedure"]
    assert "tok:13a" in report["signature"]


def test_report_says_that_a_language_has_no_rules():
    class Other(Text2TextProblem):
        target_language = "xx"

    report = Other().evaluate([""], ["a b c d"], ["a b c d"])
    assert report["score"] == pytest.approx(100)
    assert report["tokenized_bleu"] is None
    assert report["tokenized_bleu_procedure"] == (
        "none: sacremoses has no rules for 'xx'"
    )


def test_training_requires_the_tokenizer_of_the_language(without_mecab):
    options = {"pairs": "no.tsv", "target_language": "ja"}
    with pytest.raises(T2TLiteError, match=r"sacrebleu\[ja\]"):
        t2t_lite.train("text", "transformer_tiny", problem_options=options)


def test_a_report_without_a_language_has_no_tokenized_bleu():
    report = Text2TextProblem().evaluate([""], ["a"], ["a"])
    assert not [key for key in report if key.startswith("tokenized")]
