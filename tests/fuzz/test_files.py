"""Fuzzing of file readers: they read all lines or raise a T2TLiteError."""

import bz2
import contextlib
import gzip
import io
import json
import lzma
import re
import xml.etree.ElementTree

import pytest
from backports import zstd
from hypothesis import example, given, settings
from hypothesis import strategies as st

from support.mutations import JSON, hostile, mutated_json
from support.toy_problem import Toy, make
from t2t_lite.corpus.lines import LENIENT, Encoding, read_byte_lines, read_lines
from t2t_lite.corpus.parallel import (
    read_json_lines,
    read_parallel,
    read_parquet,
    read_tmx,
    read_tsv,
)
from t2t_lite.data.manifest import Manifest, check_data, find_data
from t2t_lite.errors import T2TLiteError
from t2t_lite.parsing import trees
from t2t_lite.parsing.bracket_f1 import read_parameters
from t2t_lite.tokenizers.sentencepiece import SentencePieceTokenizer
from t2t_lite.tokenizers.vocabulary import open_vocabulary

FEW = settings(max_examples=max(25, settings().max_examples // 20))  # slow
INVALID = re.compile("[\0-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("fuzz")


@pytest.fixture(scope="module")
def give(folder):
    """Return a function that writes and reads a file; None is an error."""

    def give(name, content, read, *options):
        path = folder / name
        path.write_bytes(content)
        with contextlib.suppress(T2TLiteError):
            return list(read(path, *options))
        return None

    return give


def lines_of(content):
    """Return the lines of UTF-8 text, as documented."""
    text = INVALID.sub("\ufffd", content.decode("utf-8", "replace"))
    lines = text.removeprefix("\ufeff").split("\n")
    lines = lines if lines[-1] else lines[:-1]
    is_bom = content == b"\xef\xbb\xbf"
    return [line.removesuffix("\r") for line in lines] or [""] * is_bom


LINES = (
    b"one two\n\n\xc3\xa9n\xe2\x80\xa8\r\nlast",
    b"a\nb\n",
    b"\xef\xbb\xbfa",
)
NAMES = ("cp1252", "utf-16", "utf-16-be", "utf-32", "utf-7", "idna")


@given(hostile(*LINES), st.sampled_from(NAMES))
def test_lines(give, content, name):
    found = give("a.txt", content, read_lines)
    assert found in (None, lines_of(content))
    raw = give("a.txt", content, read_byte_lines)
    if None not in (found, raw):
        decoded = [line.decode("utf-8", "replace") for line in raw]
        assert [INVALID.sub("\ufffd", line) for line in decoded] == found
    strict = give("a.txt", content, read_lines, Encoding(max_invalid_ratio=0))
    if strict is not None:
        assert strict == found
        assert not INVALID.search(content.decode())  # content is valid UTF-8
    give("a.txt", content, read_lines, Encoding(name, 0.0))


@pytest.mark.parametrize("pack", [gzip, bz2, lzma, zstd])
@given(hostile(*LINES), st.integers(0, 60), st.binary(max_size=9))
def test_compressed_lines(give, pack, content, cut, odd):
    packed = pack.compress(content)
    expected = give("a.txt", content, read_lines)
    assert give("packed", packed, read_lines) == expected
    broken = packed[:cut] + odd + packed[cut + len(odd) :]
    for name in ("packed", "a.GZ", "a.bz2"):
        give(name, broken, read_lines)


@given(hostile(b"a\tA\nb c\tB\n", b"a\tA\n\n", parts=(b"\t\t",)))
def test_tsv(give, content):
    found = give("a.tsv", content, read_tsv, LENIENT)
    lines = lines_of(content)
    while lines and not lines[-1].strip(" "):
        del lines[-1]
    assert found in (None, [tuple(line.split("\t")) for line in lines])


RECORDS = (
    b'{"source": "a", "target": "\\u00c4"}\n{"target": "b", "source": ""}\n\n',
    b'{"translation": {"xx": "a", "yy": "b"}, "id": 7}\n',
    b'{"xx": "a", "t.yy": "b", "t": {"yy": [1, {"z": "c"}]}}\n',
)
ESCAPES = (b"\\u0000", b"\\ud800", b"null", b"NaN", b"{}", b"[" * 9000)


@given(
    hostile(*RECORDS, parts=ESCAPES)
    | JSON.map(lambda x: json.dumps(x).encode())
)
def test_json_lines(give, content):
    languages = LENIENT, ("xx", "yy")
    pairs = give(
        "a.jsonl", content, read_json_lines, "source", "target", *languages
    )
    for key in ("t.yy", "t", ".", ""):
        give("a.jsonl", content, read_json_lines, "xx", key)
    if pairs is not None:
        records = [x for x in lines_of(content) if x.strip(" ")]
        assert len(pairs) == len(records)
        assert not INVALID.search("".join(map("".join, pairs)))


@FEW
@given(st.data())
def test_parquet(give, data):
    import pyarrow
    from pyarrow import parquet

    file = io.BytesIO()
    rows = [{"translation": {"xx": "a\x0b", "yy": "b"}, "id": 7}] * 3
    parquet.write_table(pyarrow.Table.from_pylist(rows), file)
    content = data.draw(hostile(file.getvalue()))
    keys = "source", "target", ("xx", "yy")
    found = give("a.parquet", content, read_parquet, *keys)
    if content == file.getvalue():
        assert found == [("a\ufffd", "b")] * 3


UNIT = b'<tu><tuv xml:lang="%s"><seg>a &#233; <ph>1</ph></seg></tuv>%s</tu>\n'
TARGET = b'<tuv xml:lang="yy-AA"><seg>A</seg></tuv>'
TMX = (
    b'<?xml version="1.0" encoding="utf-8"?>\n<tmx><body>\n%s</body></tmx>'
    % (UNIT % (b"xx", TARGET) + UNIT % (b"xx", b"") + UNIT % (b"zz", TARGET))
)
XML = b"&#11; &a; < <!-- <![CDATA[ <seg> </tu> &#x".split()
OTHERS = (TMX.replace(b"utf-8", b"latin-1"), TMX.decode().encode("utf-16"))


@given(hostile(TMX, *OTHERS, parts=XML))
def test_tmx(give, content):
    pairs = give("a.tmx", content, read_tmx, "xx", "yy", LENIENT)
    if pairs is None:
        return
    assert not INVALID.search("".join(map("".join, pairs)))
    with contextlib.suppress(xml.etree.ElementTree.ParseError, LookupError):
        root = xml.etree.ElementTree.fromstring(content)
        assert len(pairs) >= len(root.findall(".//tu"))


SGML = b'<srcset>\n<seg id="1">a <b &amp; &#233;</seg>\n<SEG id=2> b\nc </SEG>'


@given(hostile(SGML, parts=(*XML, b"</seg>", b"<seg>", b"<segment", b"&#999;")))
def test_sgml(give, folder, content):
    path = folder / "a.sgm"
    pairs = give(path.name, content, read_parallel, path, LENIENT)
    if pairs is not None:
        text = content.decode("utf-8", "replace")
        assert len(pairs) == len(re.findall(r"(?i)<seg[\s>]", text)) > 0
        assert all(source == target for source, target in pairs)


TREES = (
    b"( (S (NP-SBJ (PRP It))\n  (VP (VBZ is)) ))\n(NP the end)",
    b"(S (-LRB- -LRB-) (NN a) (-RRB- -RRB-))",
)


@given(hostile(*TREES, parts=(b"(", b")", b"()", b"(A ", b"\xc2\xa0")))
def test_trees(give, content):
    found = give("a.mrg", content, trees.read_trees)
    if found is not None:
        text = content.decode("utf-8-sig")
        assert list(trees.parse_trees(map(trees.format_tree, found))) == found
        leaves = [word for tree in found for word in trees.words(tree)]
        assert all(leaves) and len(leaves) <= len(re.split(r"[\s()]+", text))
        assert all(trees.words(tree) for tree in found)
        list(map(trees.strip_annotation, found))


@example(b"CUTOFF_LEN " + b"9" * 5000)
@given(hostile(b"DELETE_LABEL TOP\nEQ_LABEL A B\n#\nLABELED 1\nCUTOFF_LEN 9\n"))
def test_evalb_parameters(give, content):
    give("a.prm", content, lambda path: [read_parameters(path)])


SUBWORDS = "".join(f"'{c}'\n" for c in "\\_u;0123456789a").encode()
VOCABULARIES = {
    "subwords": b"'<pad>_'\n'<EOS>_'\n'a_'\n" + SUBWORDS,
    "pieces": b"[PAD]\n[UNK]\n##a\na\nA\n[MASK]\n" + b"\xc3\xa9" * 200,
    "tokens": b"<pad>\n</s>\n<unk>\na\n(S\n)S\n",
    "model": b"",
}


@pytest.mark.parametrize("kind", VOCABULARIES)
@FEW
@given(data=st.data())
def test_vocabularies(give, folder, kind, data):
    path = folder / "whole.model"
    if not path.exists():
        SentencePieceTokenizer.train(["one two three"] * 9, 280, path)
    valid = VOCABULARIES[kind] or path.read_bytes()
    content = data.draw(hostile(valid, parts=(b"''\n", b"##\n", b"'\n")))

    def use(path):
        encoder = open_vocabulary(path)
        for text in ("a", "a A\0é", ""):
            with contextlib.suppress(T2TLiteError):  # of a closed vocabulary
                (ids,) = encoder.encode([text])
                assert all(0 <= i < encoder.vocab_size for i in ids.tolist())
                encoder.decode([ids])
        return ()

    give("a.vocab", content, use)


@pytest.fixture(scope="module")
def toy_data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("toy")
    make(Toy(), folder)
    return folder, (folder / "toy.manifest.json").read_bytes()


@given(st.data())
def test_manifests(toy_data, data):
    folder, valid = toy_data
    records = mutated_json(json.loads(valid)) | JSON
    content = data.draw(
        hostile(valid) | records.map(lambda x: json.dumps(x).encode())
    )
    (folder / "toy.manifest.json").write_bytes(content)
    find_data(folder, Toy())
    with contextlib.suppress(T2TLiteError):
        manifest = Manifest.load(folder, Toy())
        check_data(folder, Toy(), manifest)
        assert manifest.digest
        manifest.options.get("name")
        for split in Toy.splits:
            record = manifest.split(split)
            assert record.summary
            record.too_long(record.max_length)
