"""Corpora with common defects, from files to shards."""

import os

import pytest

from support import toy_problem
from support.own_text import text
from t2t_lite.data.pipeline import read_pairs
from t2t_lite.errors import T2TLiteError
from t2t_lite.tokenizers.sentencepiece import SentencePieceTokenizer

LONG = "word " * 200_000 + "end"  # a megabyte
ODD = [  # bytes of a line and their text
    (b"\xef\xbb\xbfbyte order mark", "byte order mark"),
    (b"nul \0 here", "nul \ufffd here"),
    (b"carriage return\r", "carriage return"),
    (b"and \r within", "and \r within"),
    (b"", ""),
    (b"line\xe2\x80\xa8separator\xe2\x80\xa9s", "line\u2028separator\u2029s"),
    (b"latin \xe9t\xe9", "latin \ufffdt\ufffd"),
    (LONG.encode(), LONG),
    (b" \t ", " \t "),
]
NUMBERS = [f"number {i}" for i in range(len(ODD))]


@pytest.fixture(scope="module")
def vocabulary(tmp_path_factory):
    path = tmp_path_factory.mktemp("vocabulary") / "a.model"
    SentencePieceTokenizer.train(["word end number"] * 9, 273, path)
    return path


@pytest.fixture
def make(tmp_path, vocabulary):
    """Return a function that generates data: (problem, manifest)."""
    for split in ("train", "dev", "test"):
        for side in ("xx", "yy"):
            path = tmp_path / f"{split}.{side}"
            path.write_text("".join(f"{line}\n" for line in NUMBERS))

    def make(**options):
        files = {"vocabulary": vocabulary}
        for split in ("train", "dev", "test"):
            prefix = "" if split == "train" else f"{split}_"
            files[f"{prefix}source"] = tmp_path / f"{split}.xx"
            files[f"{prefix}target"] = tmp_path / f"{split}.yy"
        problem = text(**files | options)
        return problem, toy_problem.make(problem, tmp_path / "data")

    return make


def test_odd_lines_keep_their_translations(make, tmp_path):
    lines = b"".join(line + b"\n" for line, _ in ODD)
    (tmp_path / "dev.xx").write_bytes(lines)
    problem, manifest = make(max_invalid_ratio=1)
    record = manifest.splits["dev"]
    assert record.damaged == {"invalid characters": 2}
    assert record.dropped == {"empty source": 2}
    assert record.max_length > 200_000
    encoder = problem.load_encoders(tmp_path / "data")["inputs"]
    pairs = read_pairs(tmp_path / "data", problem, manifest, "dev")
    found = [tuple(encoder.decode(pair)) for pair in pairs]
    expected = [
        (text, number)
        for (_, text), number in zip(ODD, NUMBERS, strict=True)
        if text.strip()
    ]
    assert found == expected


def test_text_in_another_encoding_is_refused_before_work(make, tmp_path):
    path = tmp_path / "test.yy"
    path.write_text("".join(f"Grüße {i}\n" for i in NUMBERS), "latin-1")
    with pytest.raises(T2TLiteError, match="must be UTF-8") as error:
        make()
    assert str(path) in str(error.value)
    assert not list((tmp_path / "data").glob("*.vocab*"))
    with pytest.raises(T2TLiteError, match=".xx is not UTF-16 text"):
        make(encoding="utf-16")


def test_text_in_a_named_encoding_is_read(make, tmp_path):
    for split in ("train", "dev", "test"):
        for side in ("xx", "yy"):
            text = "".join(f"{x} é{side}\r\n" for x in NUMBERS)
            (tmp_path / f"{split}.{side}").write_bytes(text.encode("utf-16"))
    with pytest.raises(T2TLiteError, match=".xx must be UTF-8 text"):
        make()
    problem, manifest = make(encoding="UTF16")
    assert problem.options["encoding"] == "utf-16"
    assert manifest.splits["train"].examples == len(NUMBERS)
    encoder = problem.load_encoders(tmp_path / "data")["inputs"]
    pairs = read_pairs(tmp_path / "data", problem, manifest, "dev")
    assert [encoder.decode(pair)[1] for pair in pairs] == [
        f"{x} éyy" for x in NUMBERS
    ]


def test_data_of_a_changed_file_is_refused(make, tmp_path):
    _, manifest = make()
    path = tmp_path / "train.xx"
    assert manifest.sources[str(path)]["bytes"] == path.stat().st_size
    os.utime(path, (1, 1))  # another modification time only
    assert make()[1] == manifest
    path.write_text(path.read_text().replace("number 3", "number 8"))
    with pytest.raises(T2TLiteError, match=rf"{path} has changed"):
        make()
    path.write_text("one\n")
    with pytest.raises(T2TLiteError, match="has changed"):
        make()
    path.unlink()
    # Complete data does not need its corpus, which may be elsewhere.
    problem = text(**manifest.options)
    assert toy_problem.make(problem, tmp_path / "data")
