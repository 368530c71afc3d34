"""Two files of lines: pairs that match, as a whole and in parts."""

import gzip
import pathlib

import pytest

from t2t_lite.corpus import parallel_lines
from t2t_lite.corpus.lines import LENIENT
from t2t_lite.corpus.parallel_lines import cut_lines, read_parallel, read_part
from t2t_lite.corpus.raw_files import RawFiles
from t2t_lite.errors import T2TLiteError
from t2t_lite.problem.own_text import OwnText
from t2t_lite.problem.parallel_corpus import ParallelCorpus

TEXTS = [
    b"",
    b"\n",
    b"one",
    b"one\n",
    b"\n\n\n\n\n\n\n",
    b"one\ntwo\r\n\nfour\xe2\x80\xa8\xff\nfive\x0c\nsix\nseven",
    b"".join(b"x" * (i % 9) + b"\n" for i in range(50)),
]


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setattr(parallel_lines, "PART_LINES", 3)
    monkeypatch.setattr("t2t_lite.problem.parallel_corpus.PART_LINES", 3)


def two_files(folder, source, target):
    paths = folder / "train.aa", folder / "train.bb"
    for path, text in zip(paths, (source, target), strict=True):
        path.write_bytes(text)
    return paths


def all_parts(problem, split, raw):
    parts = problem.parts(split, raw)
    return [list(problem.part_samples(split, raw, part)) for part in parts]


def joined(parts):
    return [pair for part in parts for pair in part]


def test_line_i_is_paired_with_line_i(tmp_path):
    source, target = tmp_path / "a.en", tmp_path / "a.de.gz"
    source.write_bytes(b"one\n\ntwo\n")
    target.write_bytes(gzip.compress(b"eins\n\nzwei"))
    pairs = list(read_parallel(source, target))
    assert pairs == [("one", "eins"), ("", ""), ("two", "zwei")]


@pytest.mark.parametrize(
    ("source", "target"),
    [
        (b"a\nb\nc\n", b"x\n"),
        (b"a\n", b"x\ny\nz\n"),
        (b"", b"\n"),
        (b"\n", b""),
    ],
)
def test_unequal_files_are_named_with_their_counts(tmp_path, source, target):
    first, second = two_files(tmp_path, source, target)
    with pytest.raises(T2TLiteError) as raised:
        list(read_parallel(first, second))
    counts = source.count(b"\n"), target.count(b"\n")
    assert f"{counts[0]} lines in {first}" in str(raised.value)
    assert f"{counts[1]} in {second}" in str(raised.value)


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("chunk_bytes", [1, 2, 5, 1 << 20])
def test_parts_put_together_are_the_whole(
    tmp_path, monkeypatch, text, chunk_bytes
):
    monkeypatch.setattr(parallel_lines, "_CHUNK_BYTES", chunk_bytes)
    upper = text.decode("utf-8", "replace").upper().encode()
    files = two_files(tmp_path, text, upper)
    whole = list(read_parallel(*files, encoding=LENIENT))
    parts = [list(read_part(part, LENIENT)) for part in cut_lines(*files)]
    assert joined(parts) == whole
    assert [len(part) for part in parts[:-1]] == [3] * (len(parts) - 1)
    assert all(0 < len(part) <= 3 for part in parts)


def test_files_that_do_not_fit_or_are_packed_stay_whole(tmp_path):
    assert not cut_lines(*two_files(tmp_path, b"a\nb\n", b"a\n"))
    packed = tmp_path / "train.gz"
    packed.write_bytes(b"")
    assert not cut_lines(packed, tmp_path / "train.aa")


class Corpus(ParallelCorpus):
    base_name = "corpus"
    source_language, target_language = "aa", "bb"


def test_a_corpus_in_files_has_parts_of_each_of_them(tmp_path):
    lines = b"".join(b"%d\n" % i for i in range(10))
    two_files(tmp_path, lines, lines)
    (tmp_path / "dev-src.aa.sgm").write_text("<seg>1</seg><seg>2</seg>")
    (tmp_path / "dev-ref.bb.sgm").write_text("<seg>1</seg><seg>2</seg>")
    raw = RawFiles((), tmp_path)
    for split, parts in (("train", 4), ("dev", 1)):
        found = all_parts(Corpus(), split, raw)
        assert len(found) == parts
        assert joined(found) == list(Corpus().samples(split, raw))


def test_own_text_held_out_is_the_same_in_parts(tmp_path):
    lines = b"".join(b"%d\n" % i for i in range(40))
    source, target = two_files(tmp_path, lines, lines)
    problem = OwnText().with_options(
        {"source": source, "target": target, "holdout": 5, "vocab_size": 9}
    )
    for split in problem.splits:
        parts = all_parts(problem, split, RawFiles())
        assert len(parts) == (14 if split == "train" else 1)
        assert joined(parts) == list(problem.samples(split, RawFiles()))


def test_one_file_of_pairs_is_one_part(tmp_path):
    pairs = pathlib.Path(tmp_path / "all.tsv")
    pairs.write_text("".join(f"{i}\t{i}\n" for i in range(40)))
    problem = OwnText().with_options({"pairs": pairs, "vocab_size": 9})
    (part,) = all_parts(problem, "train", RawFiles())
    assert part == list(problem.samples("train", RawFiles()))
