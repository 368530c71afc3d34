"""Problems: their attributes, options and fingerprints."""

import dataclasses
from typing import Annotated

import pytest

from t2t_lite.corpus.download import RawFiles, RemoteFile
from t2t_lite.corpus.parallel import read_parallel
from t2t_lite.errors import T2TLiteError
from t2t_lite.problem import Problem, ProblemOptions, Text2TextProblem
from t2t_lite.validators import integer, setting


def letters(url="http://one/a.txt", sha256="00", **attributes):
    """Return a problem with one file."""
    files = (RemoteFile("a.txt", url, sha256),)
    attributes = {"base_name": "letters", "files": files} | attributes
    return type("Letters", (Text2TextProblem,), attributes)()


@pytest.mark.parametrize(
    "change",
    [
        {"samples": lambda self, split, raw: iter(())},
        {"metric": "f1"},
        {"url": "http://two/a.txt"},
        {"filters": {}},
        {"tfds_bytes": 7},
        {"version": 1},
    ],
)
def test_attributes_without_effect_on_data_keep_the_fingerprint(change):
    assert letters(**change).fingerprint() == letters().fingerprint()


@pytest.mark.parametrize(
    "change",
    [
        {"vocab_size": 301},
        {"version": 2},
        {"sha256": "01"},
        {"base_name": "other"},
        {"filters": {"identical": True}},
        {"my_own": [1]},
    ],
)
def test_other_attributes_and_the_version_change_the_fingerprint(change):
    assert letters(**change).fingerprint() != letters().fingerprint()


class Words(Text2TextProblem):
    base_name = "words"
    vocab_size = 280


@dataclasses.dataclass(frozen=True)
class FoldedOptions(ProblemOptions):
    folds: Annotated[int, integer(1)] = setting(2, "how many")


class Folded(Words):
    name = base_name = "folded"
    options_type = FoldedOptions


def test_options_equal_to_defaults_are_not_in_the_definition():
    for options in ({}, {"folds": 2}, {"folds": None}):
        problem = Folded().with_options(options)
        assert problem.settings.folds == 2
        assert problem.definition().keys() == {"attributes"}
        assert problem.fingerprint() == Folded().fingerprint()
    plain, one = Folded(), Folded().with_options({"folds": "1"})
    assert (plain.settings.folds, one.settings.folds) == (2, 1)
    assert one.definition() == plain.definition() | {"options": {"folds": 1}}
    assert len({p.fingerprint() for p in (plain, one)}) == 2
    assert one.reverse().options == {"folds": 1}
    assert one.reverse().fingerprint() == one.fingerprint()
    assert plain.options == {}  # only the copy has options


def test_report_has_cased_and_lowercase_scores_and_exact_matches():
    report = Words().evaluate(
        ["a", "b"],
        ["A dog runs here.", "Two cats sit."],
        ["A dog runs here.", "two cats"],
    )
    assert report["metric"] == "bleu"
    assert report["sentences"] == 2
    assert report["exact_match"] == 50
    assert 0 < report["score"] < report["score_lowercase"] < 100
    assert "case:mixed" in report["signature"]
    assert "case:lc" in report["signature_lowercase"]


def test_a_bare_problem_names_what_it_must_define(tmp_path):
    class Bare(Problem):
        pass

    with pytest.raises(T2TLiteError, match="vocabulary_files"):
        Bare().load_encoders(tmp_path)
    with pytest.raises(T2TLiteError, match="train_encoders"):
        Bare().train_encoders(RawFiles(), tmp_path, 0)
    with pytest.raises(T2TLiteError, match="samples"):
        Bare().samples("train", RawFiles())


class Files(Words):
    """A problem with two files per split."""

    base_name = "files"

    def samples(self, split, raw):
        return read_parallel(raw.path(f"{split}.a"), raw.path(f"{split}.b"))


def test_missing_files_are_named_before_the_data_is_made(tmp_path):
    for split in ("train", "dev", "test"):
        for side in "ab":
            (tmp_path / f"{split}.{side}").write_text("x\n")
    raw = RawFiles(raw_dir=tmp_path)
    Files().check_sources(raw)
    assert len(raw.sources) == 4
    (tmp_path / "test.b").unlink()
    with pytest.raises(T2TLiteError, match=r"test\.b"):
        Files().check_sources(raw)
