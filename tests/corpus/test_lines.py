"""Lines of text files: plain, compressed, or with invalid text."""

import bz2
import gzip
import lzma

import pytest
from backports import zstd

from t2t_lite.corpus.lines import (
    CORPUS,
    Encoding,
    normalize_encoding,
    read_byte_lines,
    read_lines,
)
from t2t_lite.errors import T2TLiteError

PACK = {
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
    ".zst": zstd.compress,
}
GERMAN = "Grüße aus Köln\n"


def write(path, data):
    path.write_bytes(data)
    return path


@pytest.mark.parametrize(
    ("data", "lines"),
    [
        (b"", []),
        (b"a\n\n b \n", ["a", "", " b "]),
        (b"a\r\nb\r\n", ["a", "b"]),
        (b"a\rb\n", ["a\rb"]),
        (b"a\r\r\n", ["a\r"]),
        ("a\u2028b\u0085c\n".encode(), ["a\u2028b\u0085c"]),
        (b"a\0b\x0b\n\x0c", ["a\ufffdb\ufffd", "\ufffd"]),
        (b"\xef\xbf\xbf\x1b[1m\n", ["\ufffd\ufffd[1m"]),
        (b"\xef\xbb\xbfa\n", ["a"]),
        (b"\xef\xbb\xbf\xef\xbb\xbfa\n", ["\ufeffa"]),
        (b"a\n\xef\xbb\xbfb\n", ["a", "\ufeffb"]),
        (b"\xef\xbb\xbf", [""]),
        (b"a\xffb\n", ["a\ufffdb"]),
        (b"\xe2\x96\n", ["\ufffd"]),
    ],
)
def test_only_line_ends_and_a_bom_are_removed(tmp_path, data, lines):
    assert list(read_lines(write(tmp_path / "a.en", data))) == lines


@pytest.mark.parametrize("ending", PACK)
def test_a_damaged_archive_is_named(tmp_path, ending):
    whole = PACK[ending](b"some words\n" * 9999)
    for data in (whole[:-9], b"some words\n" * 99):
        path = write(tmp_path / f"a{ending}", data)
        with pytest.raises(T2TLiteError, match=f"a{ending} is damaged: ."):
            list(read_lines(path))


@pytest.mark.parametrize(
    "data",
    [
        GERMAN.encode("latin-1"),
        "привет всем\n".encode("koi8-r"),
        GERMAN.encode("utf-16-le"),
        b"a word \0 of more\n",
    ],
)
def test_a_corpus_that_is_not_utf_8_is_refused(tmp_path, data):
    path = write(tmp_path / "a.en", b"one\n" + data)
    with pytest.raises(T2TLiteError, match="first line 2") as error:
        list(read_lines(path, encoding=CORPUS))
    assert str(path) in str(error.value) and "`encoding" in str(error.value)
    assert next(read_lines(path)) == "one"


@pytest.mark.parametrize("name", ["utf-16", "utf-32", "utf-16-be"])
def test_files_in_other_encodings_are_read_if_named(tmp_path, name):
    content = ("\ufeff" if name == "utf-16-be" else "") + "one\ntwo\n" * 9
    path = write(tmp_path / "a.en.gz", gzip.compress(content.encode(name)))
    with pytest.raises(T2TLiteError, match="byte order mark"):
        next(read_byte_lines(path))
    with pytest.raises(T2TLiteError, match="`encoding"):
        list(read_lines(path, CORPUS))
    assert list(read_lines(path, Encoding(name, 0))) == ["one", "two"] * 9


@pytest.mark.parametrize(
    ("data", "lines"),
    [
        (b"caf\xe9\n" + b"good\n" * 99, ["caf\ufffd"] + ["good"] * 99),
        (b"\x0b\n" * 9 + b"one\n", ["\ufffd"] * 9 + ["one"]),
        ("\ufffd\n".encode() * 9, ["\ufffd"] * 9),  # is valid text
    ],
    ids=["encoding", "control characters", "replacement characters"],
)
def test_a_few_lines_of_a_corpus_may_be_invalid(tmp_path, data, lines):
    path = write(tmp_path / "a.en", data)
    assert list(read_lines(path, CORPUS)) == lines


@pytest.mark.parametrize(
    ("data", "ratio", "message"),
    [
        (b"caf\xe9\n" + b"good\n" * 99, 0.009, "1 of 100 .* first line 1"),
        (b"\x1b\n", 0, "1 of 1 lines"),
        (b"\x1b\n" * 20 + b"one\n" * 900, 0.01, "20 of 920 lines"),
        # The rest of the file is not read.
        (b"caf\xe9\n" * 200 + b"good\n" * 99_999, 0.01, "101 of 101 lines"),
    ],
    ids=["encoding", "one", "control characters", "beginning"],
)
def test_more_invalid_lines_are_refused(tmp_path, data, ratio, message):
    path = write(tmp_path / "a.en", data)
    with pytest.raises(T2TLiteError, match=message):
        list(read_lines(path, Encoding(max_invalid_ratio=ratio)))


@pytest.mark.parametrize(
    ("name", "known"),
    [("UTF8", "utf-8"), ("Windows-1252", "cp1252"), ("latin1", "iso8859-1")],
)
def test_names_of_encodings_become_those_of_python(name, known):
    assert normalize_encoding(name) == known


@pytest.mark.parametrize("name", ["rot13", "base64", "utf-9", "", "\0", None])
def test_unknown_encodings_are_refused(name):
    with pytest.raises(ValueError, match="an encoding of text"):
        normalize_encoding(name)


def test_text_that_is_not_in_the_named_encoding_is_refused(tmp_path):
    path = write(tmp_path / "a.en", b"plain\n")
    with pytest.raises(T2TLiteError, match=r"a\.en is not UTF-16"):
        list(read_lines(path, encoding=Encoding("utf-16")))


@pytest.mark.parametrize("ending", PACK)
@pytest.mark.parametrize("name", ["a", "a.GZ", "a.Bz2", "a.xz"])
def test_compression_is_detected_by_content_not_by_name(tmp_path, name, ending):
    for data in (GERMAN.encode(), b""):
        path = write(tmp_path / name, PACK[ending](data))
        assert list(read_lines(path)) == data.decode().splitlines()
        assert list(read_byte_lines(path)) == data.splitlines()


def test_a_dash_is_stdin_compressed_or_not(tmp_path, monkeypatch):
    for data in (GERMAN.encode(), gzip.compress(GERMAN.encode())):
        for read in (read_lines, read_byte_lines):
            with open(write(tmp_path / "stdin", data)) as stdin:
                monkeypatch.setattr("sys.stdin", stdin)
                (line,) = read("-")
                assert line in (GERMAN.strip(), GERMAN.strip().encode())


@pytest.mark.parametrize(
    "data",
    [
        GERMAN.encode("latin-1") * 2 + b"one\n",
        (GERMAN * 2).encode("utf-16-be"),
        b"a\0b\n\xff\n\n",
    ],
)
@pytest.mark.parametrize("read", [read_lines, read_byte_lines])
def test_invalid_lines_are_counted_and_reported(tmp_path, capsys, read, data):
    path = write(tmp_path / "a.en", data)
    count = len(list(read(path)))
    err = capsys.readouterr().err
    assert f"{path}: " in err and f" of {count} lines" in err
    assert "first line 1" in err and err.count("\n") == 1
    list(read(write(path, GERMAN.encode() * 3)))
    assert not capsys.readouterr().err


@pytest.mark.parametrize("read", [read_lines, read_byte_lines])
def test_carriage_returns_as_line_ends_are_refused(tmp_path, read):
    with pytest.raises(T2TLiteError, match="CR only"):
        list(read(write(tmp_path / "a.en", b"one\rtwo\r")))
    assert len(list(read(write(tmp_path / "a.en", b"one\r")))) == 1
