"""Mixtures of corpora: the syntax of the option, and copies of pairs."""

import os

import pytest

from t2t_lite.corpus import mixture
from t2t_lite.errors import UsageError


@pytest.mark.parametrize(
    ("value", "corpora"),
    [
        ("a.tsv", [("a.tsv", None, "")]),
        ("a.tsv,b.tmx", [("a.tsv", None, ""), ("b.tmx", None, "")]),
        (
            "a.tsv.gz:0.7:web,b.jsonl:.3",
            [("a.tsv.gz", 0.7, "<web>"), ("b.jsonl", 0.3, "")],
        ),
        ("a.tsv:2de", [("a.tsv", None, "<2de>")]),
        ("a.tsv:<2de>", [("a.tsv", None, "<2de>")]),
        (
            "a.tsv:0.33,b.tsv:0.33,c.tsv:0.33",
            [(f"{name}.tsv", 0.33, "") for name in "abc"],
        ),
    ],
)
def test_corpora_are_files_with_shares_and_tags(value, corpora):
    assert mixture.read_corpora(value) == tuple(
        mixture.Corpus((os.path.abspath(file),), share, tag)
        for file, share, tag in corpora
    )


def test_normalized_corpora_do_not_change_again(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    value = mixture.normalize_corpora("a.tsv:0.70:<web>,sub/../b.tsv.xz:3e-1")
    assert value == f"{tmp_path}/a.tsv:0.7:web,{tmp_path}/b.tsv.xz:0.3"
    assert mixture.normalize_corpora(value) == value
    assert mixture.normalize_corpora(tmp_path / "a.tsv") == f"{tmp_path}/a.tsv"


@pytest.mark.parametrize(
    ("value", "word"),
    [
        ("a.tsv:0.7,b.tsv:0.2", "0.9"),
        ("a.tsv:1.5,b.tsv:-0.5", "more than 0"),
        ("a.tsv:1,b.tsv:0", "more than 0"),
        ("a.tsv:0.7,b.tsv", "or none"),
        ("a.tsv:inf,b.tsv:0.5", "or none"),  # inf is a tag
        ("a.tsv:1e999,b.tsv:0.5", "SHARE"),
        ("a.tsv:a b", "TAG"),
        ("a.tsv:x:0.5,b.tsv:0.5", "TAG"),
        ("a.tsv:0.5:x:y,b.tsv:0.5", "TAG"),
        ("a.tsv:pad", "TAG"),
        ("a.tsv:0x4F", "TAG"),
        ("a.tsv,b.txt", ".jsonl"),
        ("a.tsv:0.5:x,a.tsv:0.5:y", "once"),
    ],
)
def test_wrong_shares_and_tags_are_one_clear_error(value, word):
    with pytest.raises(UsageError) as error:
        mixture.read_corpora(value)
    assert word in str(error.value) and "\n" not in str(error.value)
