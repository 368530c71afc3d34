"""Files that are not UTF-8, or not wholly: what is told and what is read."""

import gzip

import pytest

from t2t_lite.corpus import lines as module
from t2t_lite.corpus.lines import (
    CORPUS,
    Encoding,
    known_encoding,
    read_byte_lines,
    read_lines,
    require_text,
)
from t2t_lite.corpus.side_files import read_segments
from t2t_lite.errors import T2TLiteError

GERMAN = "Grüße aus Köln\n"


@pytest.mark.parametrize(
    "data",
    [
        GERMAN.encode("latin-1"),
        "привет всем\n".encode("koi8-r"),
        GERMAN.encode("utf-16-le"),
        GERMAN.encode("utf-16-be"),
        b"a word \0 of more\n",
    ],
)
def test_a_corpus_that_is_not_utf_8_is_refused(tmp_path, data):
    path = tmp_path / "a.en"
    path.write_bytes(b"one\n" + data)
    with pytest.raises(T2TLiteError, match="first line 2") as error:
        list(read_lines(path, encoding=CORPUS))
    assert str(path) in str(error.value) and "--encoding" in str(error.value)
    assert list(read_lines(path))[0] == "one"


@pytest.mark.parametrize("name", ["utf-16", "utf-32", "utf-16-be"])
def test_the_mark_of_another_encoding_is_refused_at_once(tmp_path, name):
    content = ("\ufeff" if name == "utf-16-be" else "") + "one\ntwo\n" * 9
    path = tmp_path / "a.en.gz"
    path.write_bytes(gzip.compress(content.encode(name)))
    for read in (read_lines, read_byte_lines):
        with pytest.raises(T2TLiteError, match="byte order mark") as error:
            next(read(path))
        assert f"--encoding={name.removesuffix('-be')}" in str(error.value)
    lines = list(read_lines(path, encoding=Encoding(name, 0)))
    assert lines == ["one", "two"] * 9


def test_one_line_in_a_hundred_may_be_broken(tmp_path):
    path = tmp_path / "a.en"
    path.write_bytes(b"caf\xe9\n" + b"good\n" * 99)
    lines = list(read_lines(path, encoding=CORPUS))
    assert lines == ["caf\ufffd"] + ["good"] * 99
    with pytest.raises(T2TLiteError, match="1 of 100 lines .* first line 1"):
        list(read_lines(path, encoding=Encoding(broken_share=0.009)))
    path.write_bytes(b"caf\xe9\n" + b"good\n" * 98)
    with pytest.raises(T2TLiteError, match="1 of 99 lines"):
        list(read_lines(path, encoding=CORPUS))


def test_a_replacement_character_of_the_file_is_text(tmp_path):
    path = tmp_path / "a.en"
    path.write_text("a \ufffd\n" * 3, "utf-8")
    assert list(read_lines(path, encoding=CORPUS)) == ["a \ufffd"] * 3


def test_a_long_file_is_judged_before_its_end(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "CHECKED_LINES", 50)
    path = tmp_path / "a.en"
    path.write_bytes(b"good\n" * 48 + b"caf\xe9\n" * 9 + b"good\n" * 10_000)
    for read in (require_text, lambda p, e: read_lines(*p, encoding=e)):
        with pytest.raises(T2TLiteError, match="2 of 50 lines"):
            list(read([path], CORPUS) or ())


@pytest.mark.parametrize(
    ("name", "known"),
    [("UTF8", "utf-8"), ("Windows-1252", "cp1252"), ("latin1", "iso8859-1")],
)
def test_encodings_have_the_names_of_python(name, known):
    assert known_encoding(name) == known


@pytest.mark.parametrize("name", ["rot13", "base64", "utf-9", "", "\0", None])
def test_what_is_no_encoding_of_text_is_refused(name):
    with pytest.raises(ValueError, match="an encoding of text, such as"):
        known_encoding(name)


def test_broken_text_in_sgml_is_refused(tmp_path):
    path = tmp_path / "a.sgm"
    path.write_text(f"<seg id='1'>{GERMAN}</seg>", "latin-1")
    with pytest.raises(T2TLiteError, match="a.sgm must be UTF-8"):
        list(read_segments(path))


def test_text_that_is_not_in_the_named_encoding_is_refused(tmp_path):
    path = tmp_path / "a.en"
    path.write_bytes(b"plain\n")
    with pytest.raises(T2TLiteError, match="a.en is not UTF-16 text: "):
        list(read_lines(path, encoding=Encoding("utf-16")))
