"""tensor2tensor's subword files: the very same, byte for byte."""

import gzip
import hashlib
import itertools
import random

import pytest

from support.places import SHARED_DATA
from t2t_lite.errors import T2TLiteError
from t2t_lite.text.subword_builder import (
    build_subwords,
    count_words,
    learn_subwords,
)
from t2t_lite.text.subword_encoder import SubwordEncoder

MULTI30K = SHARED_DATA / "multi30k"
RECORDED = SHARED_DATA / "t2t"


def build(lines, size):
    return build_subwords(count_words(lines)[0], size)


def pieces_of(content):
    return [line[1:-1] for line in content.decode().split("\n")[:-1]]


def test_words_are_counted_without_the_spaces_between_them():
    lines = ["a b", "a. ", " c  a", "", " "]
    counts = {"a": 3, "b": 1, ". ": 1, " ": 2, "c": 1, "  ": 1}
    assert count_words(lines) == (counts, 5)


def test_every_word_is_a_piece_where_the_size_allows_it():
    # Round 1 finds also "b_" and "c_"; then no word is cut there any more.
    alphabet = "updcba_\\SOE><;9876543210"
    expected = ["<pad>_", "<EOS>_", "ab_", "ac_", *alphabet]
    assert pieces_of(build(["ab ac", "ab", "ab"], 100)) == expected


def test_only_characters_are_pieces_where_nothing_is_common_enough():
    # "a" and the end of a word are there 4 times, "b" 3 times, "c" once.
    alphabet = "a_bcupd\\SOE><;9876543210"
    expected = ["<pad>_", "<EOS>_", *alphabet]
    assert pieces_of(build(["ab ac", "ab", "ab"], 1)) == expected


@pytest.mark.parametrize(
    ("size", "pieces", "digest"),
    [
        (
            10,
            42,
            "66e47f193e312db6976ab06aaf3256c9687d75992337aa0bfa71cce29ab9708f",
        ),
        (
            60,
            60,
            "6fe346054cfec118bd945af76064f148406c65db39d19aa43ad6e3aab43e3e71",
        ),
        (
            200,
            218,
            "72ee6ac674fd1658e9b20168cb3c4ec9a78b0438e0d874f6702ebdf58df15d8d",
        ),
        (
            2000,
            1330,
            "58da789bf0da906e459c6d485f57e4494294adc7268b37bb7e31633422374a2e",
        ),
    ],
)
def test_recorded_files_of_random_texts_are_equal(size, pieces, digest):
    """Pieces and sha256 are those of files that tensor2tensor 1.15.7 wrote."""
    rng = random.Random(3)
    characters = "ab_\\u;09 \n\t.,–é\u2028ß漢字😀'\"<>padEOS"
    lines = [
        "".join(rng.choice(characters) for _ in range(rng.randrange(40)))
        for _ in range(400)
    ]
    lines += ["x" * 300, "-" * 450 + " y", "ab" * 400, "x" * 199, "x" * 198] * 9
    content = build(lines, size)
    assert len(set(pieces_of(content))) == pieces
    assert hashlib.sha256(content).hexdigest() == digest


@pytest.mark.skipif(
    not (RECORDED.exists() and MULTI30K.exists()),
    reason="tensor2tensor's files and Multi30k are not there",
)
def test_the_recorded_vocabulary_of_multi30k_is_rebuilt(tmp_path):
    """tensor2tensor made it of the first 5,000 pairs of train."""
    lines = []
    for language in ("en", "de"):
        path = MULTI30K / f"train.{language}.gz"
        with gzip.open(path, "rt", encoding="utf-8") as file:
            lines += itertools.islice(file, 5000)
    learned = learn_subwords(lines, 1000, tmp_path / "v.subwords")
    recorded = RECORDED / "vocab.m30k_ende.1000.subwords"
    assert (tmp_path / "v.subwords").read_bytes() == recorded.read_bytes()
    assert learned == {"lines": 10_000, "sampled_lines": 10_000}


def test_a_built_vocabulary_writes_every_text_of_its_corpus(tmp_path):
    texts = ["Two men, two_men\\.", "Straße 😀", "x" * 500, "a\tb\u2028"]
    learn_subwords(texts, 60, tmp_path / "v.subwords")
    encoder = SubwordEncoder(tmp_path / "v.subwords")
    assert encoder.decode(encoder.encode(texts)) == texts


@pytest.mark.parametrize("lines", [[], ["", "  \t"]])
def test_a_corpus_without_text_is_refused(lines, tmp_path):
    with pytest.raises(T2TLiteError, match="A vocabulary needs text; got"):
        learn_subwords(lines, 100, tmp_path / "v.subwords")
    assert not list(tmp_path.iterdir())
