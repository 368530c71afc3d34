"""Files that are not UTF-8, or not wholly: what is told and what is read."""

import gzip

import pytest

from t2t_lite.corpus import encoding
from t2t_lite.corpus.encoding import CORPUS, Encoding, known_encoding
from t2t_lite.corpus.lines import read_byte_lines, read_lines, require_text
from t2t_lite.corpus.side_files import read_segments
from t2t_lite.errors import T2TLiteError

GERMAN = "Grüße aus Köln\n"


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (
            b"one\n" + GERMAN.encode("latin-1"),
            "a.en must be UTF-8 text; got what looks like Latin-1 or "
            "Windows-1252 in 1 of 2 lines, first in line 2. Convert it, for "
            "example with iconv; for your own text there is "
            "--encoding=windows-1252. --broken_share=1 takes it as it is.",
        ),
        ("“a”\n".encode("cp1252"), "bytes that are not UTF-8 in 1 of 1 lines"),
        ("“word”\n".encode("cp1252"), "Windows-1252 in 1 of 1 lines"),
        ("привет всем\n".encode("koi8-r"), "bytes that are not UTF-8 in 1"),
        (GERMAN.encode("utf-16-le") * 3, "UTF-16 without its mark, in 4 of 4"),
        (GERMAN.encode("utf-16-le"), "--encoding=utf-16-le."),
        (GERMAN.encode("utf-16-be"), "--encoding=utf-16-be."),
        (b"a word \0 of more\n", "got NUL bytes in 1 of 1 lines, first in"),
    ],
)
def test_a_corpus_that_is_not_utf_8_is_refused(tmp_path, data, message):
    path = tmp_path / "a.en"
    path.write_bytes(data)
    with pytest.raises(T2TLiteError) as error:
        list(read_lines(path, encoding=CORPUS))
    assert message in str(error.value)
    assert list(read_lines(path))


@pytest.mark.parametrize("name", ["utf-16", "utf-32", "utf-16-be"])
def test_the_mark_of_another_encoding_is_refused_at_once(tmp_path, name):
    content = ("\ufeff" if name == "utf-16-be" else "") + "one\ntwo\n" * 9
    path = tmp_path / "a.en.gz"
    path.write_bytes(gzip.compress(content.encode(name)))
    for read in (read_lines, read_byte_lines):
        with pytest.raises(T2TLiteError, match="byte order mark") as error:
            next(read(path))
        asked = name.upper().removesuffix("-BE")
        assert f"{path} must be UTF-8 text; it is {asked}" in str(error.value)
        assert f"--encoding={asked.lower()}" in str(error.value)
    lines = list(read_lines(path, encoding=Encoding(name, 0)))
    assert lines == ["one", "two"] * 9


def test_one_line_in_a_hundred_may_be_broken(tmp_path):
    path = tmp_path / "a.en"
    path.write_bytes(b"caf\xe9\n" + b"good\n" * 99)
    lines = list(read_lines(path, encoding=CORPUS))
    assert lines == ["caf\ufffd"] + ["good"] * 99
    with pytest.raises(
        T2TLiteError, match="in 1 of 100 lines, first in line 1"
    ):
        list(read_lines(path, encoding=Encoding(broken_share=0.009)))
    path.write_bytes(b"caf\xe9\n" + b"good\n" * 98)
    with pytest.raises(T2TLiteError, match="in 1 of 99 lines"):
        list(read_lines(path, encoding=CORPUS))


def test_a_long_file_is_judged_before_its_end(tmp_path, monkeypatch):
    monkeypatch.setattr(encoding, "JUDGED_LINES", 50)
    monkeypatch.setattr("t2t_lite.corpus.lines.JUDGED_LINES", 50)
    path = tmp_path / "a.en"
    path.write_bytes(b"good\n" * 48 + b"caf\xe9\n" * 9 + b"good\n" * 10_000)
    for read in (require_text, lambda p, e: read_lines(*p, encoding=e)):
        with pytest.raises(T2TLiteError, match="in 2 of 50 lines, first in li"):
            list(read([path], CORPUS) or ())


def test_the_end_of_a_long_file_is_not_judged_by_itself(tmp_path):
    path = tmp_path / "a.en"
    path.write_bytes(b"good\n" * 200 + b"caf\xe9\n")
    assert list(read_lines(path, 995, CORPUS)) == ["good", "caf\ufffd"]


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


def test_a_mark_that_contradicts_the_named_encoding_is_refused(tmp_path):
    path = tmp_path / "a.en"
    path.write_text(GERMAN, "utf-8-sig")
    with pytest.raises(T2TLiteError, match="a.en is UTF-8, as its byte order"):
        list(read_lines(path, encoding=Encoding("cp1252")))


def test_broken_text_in_sgml_is_refused(tmp_path):
    path = tmp_path / "a.sgm"
    path.write_text(f"<seg id='1'>{GERMAN}</seg>", "latin-1")
    with pytest.raises(T2TLiteError, match="a.sgm must be UTF-8 text; got NUL"):
        list(read_segments(path))


def test_text_that_is_not_in_the_named_encoding_is_refused(tmp_path):
    path = tmp_path / "a.en"
    path.write_bytes(b"plain\n")
    with pytest.raises(T2TLiteError, match="a.en is not UTF-16 text: "):
        list(read_lines(path, encoding=Encoding("utf-16")))
