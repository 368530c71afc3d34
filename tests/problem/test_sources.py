"""All that is missing of a corpus is named in one error, before any work."""

import pytest

from t2t_lite.corpus.raw_files import RawFiles, RemoteFile
from t2t_lite.errors import T2TLiteError
from t2t_lite.problem import Text2TextProblem, read_parallel


class Toy(Text2TextProblem):
    """Each split has two files; what was read is noted."""

    name = base_name = "toy"

    def __init__(self):
        self.read = []

    def samples(self, split, raw):
        self.read.append(split)
        return read_parallel(raw.path(f"{split}.a"), raw.path(f"{split}.b"))


class ByHand(Toy):
    """Opens files by itself."""

    def samples(self, split, raw):
        with open(raw.raw_dir / f"{split}.a") as file:
            yield from ((line, line) for line in file)


@pytest.fixture
def folder(tmp_path):
    for split in ("train", "dev", "test"):
        for side in "ab":
            (tmp_path / f"{split}.{side}").write_text("x\n")
    return tmp_path


def test_a_whole_corpus_is_looked_at_but_for_train(folder):
    problem, raw = Toy(), RawFiles(raw_dir=folder)
    problem.require_sources(raw)
    assert problem.read == ["dev", "test"]
    assert len(raw.noted) == 4


def test_files_of_all_splits_are_named_together(folder):
    for name in ("dev.a", "dev.b", "train.b"):
        (folder / name).unlink()
    with pytest.raises(T2TLiteError) as error:
        Toy().require_sources(RawFiles(raw_dir=folder))
    assert str(error.value) == (
        f"{folder} holds no file dev.a, dev.b, train.b. Put them there, or "
        "name another folder with --raw_dir."
    )


def test_files_that_are_declared_are_named_without_a_look(folder):
    problem = Toy()
    files = tuple(
        RemoteFile(name, "http://x", "00") for name in ("c", "train.a", "d")
    )
    with pytest.raises(T2TLiteError, match="no file c, d. .* to download them"):
        problem.require_sources(RawFiles(files, folder))
    assert problem.read == []


def test_what_own_code_does_not_find_is_named_together(folder):
    for split in ("dev", "test"):
        (folder / f"{split}.a").unlink()
    with pytest.raises(T2TLiteError) as error:
        ByHand().require_sources(RawFiles(raw_dir=folder))
    assert str(error.value) == (
        f"{folder}/dev.a: No such file or directory. "
        f"{folder}/test.a: No such file or directory."
    )


def test_another_error_of_own_code_stays_what_it_is(folder):
    class Broken(Toy):
        def samples(self, split, raw):
            raise ZeroDivisionError(split)

    with pytest.raises(ZeroDivisionError, match="dev"):
        Broken().require_sources(RawFiles(raw_dir=folder))
