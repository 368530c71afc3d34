"""Files with both sides of a corpus: their formats and errors."""

import gzip
import json
import reprlib
import zipfile

import pytest

from t2t_lite.corpus.lines import LENIENT
from t2t_lite.corpus.parallel import (
    format_of,
    read_json_lines,
    read_parquet,
    read_tsv,
    read_zip,
)
from t2t_lite.errors import T2TLiteError, UsageError


def write(path, data):
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    return path


@pytest.mark.parametrize(
    ("name", "form"),
    [
        ("a.tsv", ".tsv"),
        ("a.b.jsonl.gz", ".jsonl"),
        ("a.tmx.zst", ".tmx"),
        ("x.y/a.tsv.xz", ".tsv"),
        ("A.TSV.GZ", ".tsv"),
        ("de-en.txt.zip", ".zip"),
        ("hf:a/b/de-en", "hf:"),
        ("tfds:a", "tfds:"),
    ],
)
def test_the_name_determines_the_format(name, form):
    assert format_of(name) == form


@pytest.mark.parametrize("name", ["a.txt", "a.gz", "tsv", "a.zipx", "hf:", "a"])
def test_other_endings_are_refused(name):
    with pytest.raises(UsageError, match=f"end in .tsv, .*got {name}"):
        format_of(name)


def test_a_tsv_line_is_a_pair(tmp_path):
    data = 'a b\tA "B"\r\n\t\n\ufeffx\0\u2028y\t\udcff\n'
    path = write(
        tmp_path / "a.tsv", data.encode("utf-8", "surrogateescape") + b"a\tb"
    )
    pairs = [
        ("a b", 'A "B"'),
        ("", ""),
        ("\ufeffx\ufffd\u2028y", "\ufffd"),
        ("a", "b"),
    ]
    assert list(read_tsv(path, LENIENT)) == pairs
    compressed = write(tmp_path / "a.tsv.gz", gzip.compress(path.read_bytes()))
    assert list(read_tsv(compressed, LENIENT)) == pairs


@pytest.mark.parametrize(("line", "tabs"), [("a", 0), ("a\tb\tc", 2), ("", 0)])
def test_a_tsv_line_without_one_tab_is_named(tmp_path, line, tabs):
    path = write(tmp_path / "a.tsv", f"a\tb\n{line}\na\tb\n")
    with pytest.raises(T2TLiteError, match=f"got {tabs} in .*tsv, line 2"):
        list(read_tsv(path))


def test_a_json_line_is_a_pair(tmp_path):
    lines = [
        {"source": "a\tb", "target": "A\u2028B", "id": 7},
        {"target": "x", "source": ""},
    ]
    data = "".join(json.dumps(line) + "\r\n" for line in lines)
    path = write(tmp_path / "a.jsonl", "\ufeff" + data)
    assert list(read_json_lines(path)) == [("a\tb", "A\u2028B"), ("", "x")]


def test_invalid_characters_are_replaced(tmp_path):
    data = b'{"source": "\xff\xc3\xa9", "target": "\\ud800 \\ud83d\\ude00"}\n'
    data += b'{"source": "a\\u000b\x0b", "target": "\\u0000\\uffff"}\n'
    path = write(tmp_path / "a.jsonl", data)
    assert list(read_json_lines(path, encoding=LENIENT)) == [
        ("\ufffd\u00e9", "\ufffd\ufffd\ufffd \U0001f600"),
        ("a\ufffd\ufffd", "\ufffd\ufffd"),
    ]


@pytest.mark.parametrize(
    "line",
    [
        "[1]",
        "",
        '{"source": "a"',
        "[" * 100_000,
        '{"source": "a"}',
        '{"source": 1, "target": ""}',
        '{"source": "", "target": null}',
    ],
)
def test_a_bad_json_line_is_named(tmp_path, line):
    good = '{"source": "a", "target": "A"}\n'
    path = write(tmp_path / "a.jsonl", f"{good}{good}{line}\n{good}")
    with pytest.raises(T2TLiteError) as error:
        list(read_json_lines(path))
    shown = reprlib.repr(line)
    assert f"got {shown} in {path}, line 3" in str(error.value)
    assert "\n" not in str(error.value)


def test_blank_lines_at_the_end_are_ignored(tmp_path):
    path = write(tmp_path / "a.tsv", "a\tb\n\n  \n\r\n")
    assert list(read_tsv(path)) == [("a", "b")]
    path = write(tmp_path / "a.jsonl", '{"source": "a", "target": "b"}\n\n \n')
    assert list(read_json_lines(path)) == [("a", "b")]


ROWS = {
    "hub": {"translation": {"xx": "a", "yy": "b"}, "id": 7},
    "columns": {"xx": "a", "yy": "b", "source_id": 7},
    "plain": {"source": "a", "target": "b", "xx": "?"},
}


@pytest.fixture(params=["jsonl", "parquet"])
def read(request, tmp_path):
    """Return a function that writes rows in a format and reads them."""

    def read(rows, keys=("source", "target"), languages=("", "")):
        path = tmp_path / "a"
        if request.param == "jsonl":
            write(path, "".join(json.dumps(row) + "\n" for row in rows))
            return list(read_json_lines(path, *keys, languages=languages))
        import pyarrow
        from pyarrow import parquet

        parquet.write_table(pyarrow.Table.from_pylist(rows), path)
        return list(read_parquet(path, *keys, languages))

    return read


@pytest.mark.parametrize("layout", ROWS)
def test_layouts_are_detected_by_the_languages(read, layout):
    rows = [ROWS[layout]] * 5000
    assert read(rows, languages=("xx", "yy")) == [("a", "b")] * 5000


def test_a_key_may_be_a_path(read):
    row = {"t": {"xx": "a", "y": {"y": "b"}}, "x.y": "c"}
    assert read([row], ("t.xx", "t.y.y")) == [("a", "b")]
    assert read([row], ("x.y", "t.xx")) == [("c", "a")]
    for bad in ("t", "t.zz", "t.xx.a", "", "."):
        with pytest.raises(T2TLiteError, match="source_key.* 1"):
            read([row], (bad, "x.y"))


def test_a_layout_needs_languages(read):
    for languages in (("", ""), ("xx", "zz")):
        with pytest.raises(T2TLiteError, match="source_language.* 1"):
            read([ROWS["hub"]], languages=languages)
    with pytest.raises(T2TLiteError, match="source_key.* 2"):
        read([ROWS["plain"], {"source": "a", "target": None}])


MOSES = {
    "README": "a\n",
    "x.de-en.xml": "<a/>",
    "x.de-en.en": "one\ntwo\n",
    "x.de-en.de": "eins\nzwei\n",
}


@pytest.fixture
def pack(tmp_path):
    """Return a function that writes a ZIP archive and returns its path."""

    def pack(members):
        path = tmp_path / "de-en.txt.zip"
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, text in members.items():
                archive.writestr(name, text)
        return path

    return pack


def test_both_sides_of_an_opus_archive_are_read(pack):
    path, pairs = pack(MOSES), [("eins", "one"), ("zwei", "two")]
    swapped = [pair[::-1] for pair in pairs]
    assert list(read_zip(path)) == pairs
    assert list(read_zip(path, ("en", "de"))) == swapped
    assert list(read_zip(path, ("", "de"))) == swapped
    more = {"y/z.en-zh_CN.en": "three", "y/z.en-zh_CN.zh_CN": "三"}
    assert list(read_zip(pack(MOSES | more), ("zh_CN", "en"))) == [
        ("三", "three")
    ]


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ({}, "has no file"),
        ({"README": "", "x.de-en.de": ""}, "has README, x.de-en.de"),
        (MOSES | {"y.de-fr.de": "", "y.de-fr.fr": ""}, "y.de-fr.fr"),
        (MOSES | {"x.de-en.de": "a\n"}, r"zip.x\.de-en\.de has 1 lines"),
    ],
)
def test_an_archive_needs_exactly_one_pair_of_files(pack, members, message):
    with pytest.raises(T2TLiteError, match=message):
        list(read_zip(pack(members)))


def test_an_archive_without_the_languages_is_refused(pack):
    with pytest.raises(T2TLiteError, match="source_language"):
        list(read_zip(pack(MOSES), ("de", "fr")))


def test_a_damaged_archive_is_refused(pack):
    path = pack({name: text * 999 for name, text in MOSES.items()})
    data = path.read_bytes()
    offset = data.index(b"x.de-en.de") + 20
    for bad in (
        data[:-30],
        b"text",
        data[:offset] + bytes(9) + data[offset + 9 :],
        # Encryption is bit 0 of the flags of a header.
        data.replace(b"PK\1\2\x14\3\x14\0\0", b"PK\1\2\x14\3\x14\0\1"),
    ):
        assert bad != data
        write(path, bad)
        with pytest.raises(T2TLiteError, match="damaged"):
            list(read_zip(path))
