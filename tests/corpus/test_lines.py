"""Lines of files: as they are, packed or not."""

import gzip

import pytest

from t2t_lite.corpus.lines import read_lines
from t2t_lite.errors import T2TLiteError


def write(path, data):
    path.write_bytes(data)
    return path


@pytest.mark.parametrize(
    ("data", "lines"),
    [
        (b"", []),
        (b"\n", [""]),
        (b"a", ["a"]),
        (b"a\n\n b \n", ["a", "", " b "]),
        (b"a\r\nb\r\n", ["a", "b"]),
        (b"a\rb\n", ["a\rb"]),
        (b"a\r\r\n", ["a\r"]),
        ("a\u2028b\u0085c\x0cd\n".encode(), ["a\u2028b\u0085c\x0cd"]),
        (b"a\0b\n", ["a\0b"]),
        (b"\xef\xbb\xbfa\n", ["a"]),
        (b"\xef\xbb\xbf\xef\xbb\xbfa\n", ["\ufeffa"]),
        (b"a\n\xef\xbb\xbfb\n", ["a", "\ufeffb"]),
        (b"\xef\xbb\xbf", [""]),
        (b"a\xffb\n", ["a\ufffdb"]),
        (b"\xe2\x96\n", ["\ufffd"]),
        ("a\ufffd\n".encode(), ["a\ufffd"]),
    ],
)
def test_only_line_ends_are_taken_from_the_lines(tmp_path, data, lines):
    assert list(read_lines(write(tmp_path / "a.en", data))) == lines
    packed = write(tmp_path / "a.en.gz", gzip.compress(data))
    assert list(read_lines(packed)) == lines


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(T2TLiteError, match="Cannot read .*none.en: No such"):
        list(read_lines(tmp_path / "none.en"))


@pytest.mark.parametrize(
    "data", [b"not gzip", gzip.compress(b"a" * 99, mtime=0)[:-9]]
)
def test_a_damaged_archive_is_named(tmp_path, data):
    with pytest.raises(T2TLiteError, match="a.gz is damaged"):
        list(read_lines(write(tmp_path / "a.gz", data)))
