"""Tokenized BLEU equals tensor2tensor's script and multi-bleu.perl."""

import collections
import math
import random

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
    # Das ist ein Rad ##AT##-##AT## Rennen . has 7 tokens, one of them wrong:
    # 6 of 7 words, 4 of 6 bigrams, 3 of 5 trigrams and 2 of 4 4-grams match.
    report = tokenized_bleu(
        ["Das ist ein Rad-Turnier."], ["Das ist ein Rad-Rennen."], "de"
    )
    assert report["score"] == pytest.approx(
        100 * math.prod([6 / 7, 4 / 6, 3 / 5, 2 / 4]) ** 0.25
    )


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


def multi_bleu(hypotheses, references):
    """Compute multi-bleu.perl's score of tokens, with one reference."""
    matches, total, lengths = [0] * 4, [0] * 4, [0, 0]
    for lines in zip(hypotheses, references, strict=True):
        words = [line.split() for line in lines]
        lengths = [n + len(w) for n, w in zip(lengths, words, strict=True)]
        for n in range(4):
            hypothesis, reference = (
                collections.Counter(
                    tuple(line[i : i + n + 1]) for i in range(len(line) - n)
                )
                for line in words
            )
            matches[n] += (hypothesis & reference).total()
            total[n] += hypothesis.total()
    if not all(matches):
        return 0.0
    precisions = [r / t for r, t in zip(matches, total, strict=True)]
    penalty = min(1.0, math.exp(1 - lengths[1] / lengths[0]))
    return 100 * penalty * math.prod(precisions) ** 0.25


@pytest.mark.parametrize("seed", range(40))
def test_score_equals_that_of_multi_bleu(seed):
    draw = random.Random(seed)
    words = ["Rad-Weg", "ein", "l'eau", "z.B.", "Nr.", "5", '"da"', "und,", "-"]

    def corpus(longest):
        return [
            " ".join(draw.choices(words[: 2 + seed % 8], k=draw.randrange(n)))
            for n in [longest] * 5
        ]

    hypotheses, references = corpus(2 + seed % 12), corpus(3 + seed % 9)
    report = tokenized_bleu(hypotheses, references, "de")
    assert report["score"] == pytest.approx(
        multi_bleu(tokenize(hypotheses, "de"), tokenize(references, "de"))
    )


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


def test_a_language_without_spaces_has_its_own_tokenizer(without_mecab):
    class Chinese(Text2TextProblem):
        target_language = "zh"

    report = Chinese().evaluate([""], ["他去了北京。"], ["他去了北京。"])
    assert report["tokenized_bleu"] is None
    assert (report["score"], report["chrf"]) == pytest.approx((100, 100))
    assert "tok:zh" in report["signature"]
    options = {"pairs": "no.tsv", "target_language": "ja"}
    with pytest.raises(T2TLiteError, match=r"sacrebleu\[ja\]"):
        t2t_lite.train("text", "transformer_tiny", problem_options=options)


def test_a_report_without_a_language_has_no_tokenized_bleu():
    report = Text2TextProblem().evaluate([""], ["a"], ["a"])
    assert not [key for key in report if key.startswith("tokenized")]
