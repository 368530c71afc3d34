"""Functions that read text of users take linear time for any text."""

import time
import timeit

import pytest

from t2t_lite.corpus.filters import make_filter
from t2t_lite.corpus.mixture import read_corpora
from t2t_lite.corpus.parallel import read_parallel, read_tmx
from t2t_lite.decoding.requests import Request
from t2t_lite.errors import T2TLiteError, format_error
from t2t_lite.evaluation.bleu import bleu
from t2t_lite.evaluation.tokenized_bleu import tokenize
from t2t_lite.parsing import ptb_tokenizer, trees
from t2t_lite.parsing.bracket_f1 import score_lines
from t2t_lite.parsing.linearize import delinearize, linearize
from t2t_lite.tokenizers.sentence_splitter import sentence_splitter
from t2t_lite.tokenizers.tags import tag_of

N = 2_000
RUNS = ["a", ".", "a.", " .", "»", " »", "。", "a。", "(", "<", "'", "-", " "]
RUNS += [".»", ". »", "。」", "\u3000", "Mr. Smith left... "]
TREES = {
    "nested": lambda n: "(A " * n + "b" + ")" * n,
    "labels": lambda n: " ".join(f"(A{i}" for i in range(n)) + " b" + ")" * n,
    "left": lambda n: "(A " * n + "(B b)" + " (C c))" * n,
    "flat": lambda n: f"(A {'(B b)' * n})",
    "open": lambda n: "(" * n,
}


def check(work, make, n=N):
    """Compare the times for n and 10 n, which differ 100-fold if quadratic."""
    few, many = make(n), make(10 * n)
    work(few)  # one-time setup

    def measure(text):
        clock = time.process_time
        return min(timeit.repeat(lambda: work(text), clock, number=1, repeat=3))

    assert measure(many) < 30 * measure(few) + 0.3


def safe(work):
    """Return `work` with its T2TLiteErrors ignored."""

    def run(text):
        try:
            work(text)
        except T2TLiteError:
            pass

    return run


@pytest.mark.parametrize("part", RUNS)
def test_text_functions_take_linear_time(part):
    def work(text):
        for language in ("en", "zh"):
            sentence_splitter(language)(text)
        ptb_tokenizer.tokenize(text)
        tokenize([text], "en")
        bleu([text], [text])
        keep(text, text)
        format_error(ValueError(text))
        request = Request.parse(b'{"text": "%s"}' % text.encode())
        request.violations(text, ["b c", part * 3])

    keep = make_filter({"length": 80, "length_ratio": 2})
    check(work, lambda n: f"a.{part * n}b")


@pytest.mark.parametrize(
    ("work", "part"),
    [
        (tag_of, "a"),
        (tag_of, "1-"),
        (lambda text: read_corpora(f"a.tsv:{text}"), "1"),
        (lambda text: format_error(ValueError(text)), "[["),
        (lambda text: format_error(ValueError(text)), "{{a "),
        (lambda text: Request.parse(f'{{"{text}": 1}}'), "a"),
    ],
)
def test_parsers_of_names_take_linear_time(work, part):
    check(safe(work), lambda n: f"{part * n}!", 4 * N)


@pytest.mark.parametrize("shape", TREES)
def test_tree_functions_take_linear_time(shape):
    def work(line):
        score_lines([line], [line])
        for tree in trees.parse_trees([line]):
            trees.format_tree(tree)
            tokens = linearize(trees.strip_annotation(tree))
            delinearize(tokens, trees.words(tree))
            # Half of the closing brackets are missing, or all labels differ.
            delinearize(tokens[: len(tokens) * 3 // 4], ["b"])
            delinearize([x.replace(")", ")Z") for x in tokens], ["b"])
            for wrong in (["XX", ","], [")S"]):
                delinearize(wrong * len(tokens), ["a", "b", ","] * len(tokens))

    check(safe(work), TREES[shape], N // 2)


@pytest.mark.parametrize(
    "part", ["<seg>", "<seg", "</seg>", "&#1", "&", "<", "<tu>", "<tu/>", "]]>"]
)
def test_markup_parsers_take_linear_time(tmp_path, part):
    def work(content):
        for name in ("a.sgm", "a.tmx"):
            (tmp_path / name).write_text(f"<tmx><body>{content}")
        safe(lambda path: list(read_parallel(path, path)))(tmp_path / "a.sgm")
        safe(lambda path: list(read_tmx(path, "a", "b")))(tmp_path / "a.tmx")

    check(work, lambda n: part * n, 4 * N)
