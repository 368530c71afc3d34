"""Any file at all is read, or refused with an error of our own."""

import contextlib
import copy
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.toy_problem import Toy, make
from t2t_lite.corpus.lines import (
    COMPRESSED_SUFFIXES,
    CORPUS,
    Encoding,
    read_byte_lines,
    read_lines,
)
from t2t_lite.corpus.parallel import (
    read_json_lines,
    read_parallel,
    read_tmx,
    read_tsv,
)
from t2t_lite.data.manifest import Manifest, check_data, find_data
from t2t_lite.errors import T2TLiteError
from t2t_lite.hparam import HParams
from t2t_lite.parsing.bracket_f1 import read_parameters
from t2t_lite.parsing.trees import read_trees
from t2t_lite.tokenizers.sentencepiece import SentencePieceTokenizer
from t2t_lite.tokenizers.vocabulary import open_vocabulary
from t2t_lite.training.config import (
    make_config,
    problem_options,
    read_config,
    require_same,
)

SOME = settings(max_examples=25)  # of what takes long


def files(*parts):
    """The content of files made of such parts, text or bytes, and of any."""
    known = [x.encode() if isinstance(x, str) else x for x in parts]
    any_text = st.text(max_size=5).map(lambda x: x.encode("utf-8", "replace"))
    part = st.sampled_from(known) | st.binary(max_size=4) | any_text
    return st.lists(part, max_size=12).map(b"".join)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("hostile")


@pytest.fixture(scope="module")
def give(folder):
    """Writes a file and reads it whole; an error of ours is a result, too."""

    def give(name, content, read):
        path = folder / name
        path.write_bytes(content)
        with contextlib.suppress(T2TLiteError):
            return list(read(path) or ())

    return give


LINES = ("a b\n", "\r\n", "\n", "\t", "\0", "\ufeff", b"\xff\xfe", b"\xe9\n")
NAMES = ("utf-8", "cp1252", "utf-16", "utf-16-be", "utf-32", "utf-7", "idna")


@given(files(*LINES), st.sampled_from(NAMES))
def test_lines(give, content, name):
    strict = Encoding(name, 0.0)
    give("a.txt", content, read_byte_lines)
    lines = give("a.txt", content, read_lines)
    if lines is not None:
        assert len(lines) == content.count(b"\n") + (
            not content.endswith(b"\n") and content != b""
        )
    give("a.txt", content, lambda path: read_lines(path, CORPUS))
    give("a.txt", content, lambda path: read_lines(path, encoding=strict))


@given(files(*LINES), files(*LINES))
def test_lines_of_two_files(give, folder, source, target):
    (folder / "b.txt").write_bytes(target)
    give("a.txt", source, lambda path: read_parallel(path, folder / "b.txt"))


@pytest.mark.parametrize("ending", COMPRESSED_SUFFIXES)
@given(content=st.binary(max_size=30), cut=st.integers(0, 60))
def test_packed_lines(give, folder, ending, content, cut):
    import bz2
    import gzip
    import lzma

    from backports import zstd

    packers = {".gz": gzip, ".bz2": bz2, ".xz": lzma, ".zst": zstd}
    packed = packers[ending].compress(b"one\ntwo\n" * 9)
    give(f"a{ending}", content, read_lines)
    broken = packed[:cut] + content + packed[cut + len(content) :]
    give(f"a{ending}", broken, read_lines)


XML = (
    '<?xml version="1.0" encoding="utf-8"?>',
    '<?xml version="1.0" encoding="utf-16"?>',
    *("<!DOCTYPE tmx [<!ENTITY a 'b'>]>", "&a;", "&lt;", "&", "<!-- -->"),
    *("<tmx><body>", "<tu>", "</tu>", '<tuv xml:lang="xx">', "</tuv>"),
    *('<tuv xml:lang="yy-AA">', "<seg>", "</seg>", "<ph>", "</ph>", "<?a?>"),
    "<tu><tuv lang='xx'><seg>a</seg></tuv></tu>",
)
JSON_LINES = (
    '{"source": "a", "target": "b"}\n',
    *('{"source": ', '"\\ud800"', "null", "[", "{}\n", "1" * 5000, "NaN"),
)
# By name of the file: what reads it, and parts of its content.
READERS = {
    "a.tsv": (read_tsv, "a\tb\n", "\t"),
    "a.jsonl": (read_json_lines, *JSON_LINES),
    "a.tmx": (lambda path: read_tmx(path, "xx", "yy"), *XML),
    "a.mrg": (read_trees, "(", ")", " ", "(S (NP a))", "a", "\xa0"),
    "a.prm": (
        lambda path: [read_parameters(path)],
        *("DELETE_LABEL TOP\n", "EQ_LABEL ", "LABELED ", "-1\n"),
    ),
}


@pytest.mark.parametrize("name", READERS)
@given(data=st.data())
def test_files_of_any_format(give, name, data):
    read, *parts = READERS[name]
    content = data.draw(files(*parts, *LINES))
    give(name, content, read)
    if name == "a.tmx":
        give(name, b"<tmx><body>" + content + b"</body></tmx>", read)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.jsonl", b'{"source": ' + b"[" * 100_000),
        ("a.jsonl", b'{"source": ' + b"1" * 5000 + b"}"),
        ("a.mrg", b"(" * 100_000),
        ("a.mrg", b"(A " * 20_000 + b"b" + b")" * 20_000),
    ],
)
def test_deep_and_long_content(give, name, content):
    give(name, content, READERS[name][0])


VOCABULARIES = {
    "subwords": ["'<pad>_'\n'<EOS>_'\n", *(f"'{c}'\n" for c in "\\_u;0123")]
    + ["".join(f"'{c}'\n" for c in "\\_u;0123456789"), "''\n", "'a_'\n", "'\n"],
    "pieces": ["[UNK]\n", "[PAD]\n", "##\n", "##a\n", "a\n", "A\n", "\r\n"],
    "tokens": ["<pad>\n</s>\n<unk>\n", "a\n", "(S\n", ")S\n", " \n"],
}


@pytest.mark.parametrize("kind", VOCABULARIES)
@SOME
@given(data=st.data())
def test_vocabularies(give, kind, data):
    first, *parts = VOCABULARIES[kind]
    rest = data.draw(files(*parts, *LINES))
    for content in (first.encode() + rest, rest):
        give("a.vocab", content, _use_vocabulary)


@SOME
@given(
    st.integers(0, 4000), st.binary(max_size=9), st.sampled_from((0, 1, 9000))
)
def test_sentencepiece_models(give, model, place, content, cut):
    broken = model[:place] + content + model[place + max(len(content), cut) :]
    give("a.model", broken, _use_vocabulary)


@pytest.fixture(scope="module")
def model(folder):
    path = folder / "whole.model"
    SentencePieceTokenizer.train(["one two three"] * 9, 280, path)
    return path.read_bytes()


def _use_vocabulary(path):
    encoder = open_vocabulary(path)
    for text in ("a", "a A\0é", ""):
        with contextlib.suppress(T2TLiteError):  # of a closed vocabulary
            encoder.decode(encoder.encode([text]))


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats()
    | st.text(max_size=3)
    | st.sampled_from(["\0", "..", "/", "\ud800", "train", "toy"]),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(st.text(max_size=3), inner, max_size=2)
    ),
    max_leaves=4,
)


def changed(data, record):
    """A record with some value taken out or replaced by another."""
    record = copy.deepcopy(record)
    inner = record
    while True:
        keys = list(inner) if isinstance(inner, dict) else range(len(inner))
        key = data.draw(st.sampled_from(list(keys)))
        value = inner[key]
        if (
            value
            and isinstance(value, (dict, list))
            and data.draw(st.integers(0, 3))
        ):
            inner = value
            continue
        if data.draw(st.booleans()):
            inner[key] = data.draw(JSON)
        else:
            del inner[key]
        return record


@pytest.fixture(scope="module")
def toy_data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("toy")
    make(Toy(), folder)
    return folder, json.loads((folder / "toy.manifest.json").read_text())


def _use_manifest(folder):
    manifest = Manifest.load(folder, Toy())
    check_data(folder, Toy(), manifest)
    assert manifest.digest
    manifest.options.get("name")
    for split in Toy.splits:
        record = manifest.split(split)
        assert record.summary
        record.too_long(record.max_length)


@settings(max_examples=200)
@given(st.data())
def test_manifests(toy_data, data):
    folder, record = toy_data
    path = folder / "toy.manifest.json"
    path.write_text(json.dumps(changed(data, record)))
    find_data(folder, Toy())
    with contextlib.suppress(T2TLiteError):
        _use_manifest(folder)


@given(files('{"splits": ', "[" * 3000, "{}", "null", "1" * 5000, *LINES))
def test_manifests_and_configs_of_any_bytes(toy_data, content):
    folder, _ = toy_data
    (folder / "toy.manifest.json").write_bytes(content)
    (folder / "config.json").write_bytes(content)
    find_data(folder, Toy())
    for use in (_use_manifest, read_config):
        with contextlib.suppress(T2TLiteError):
            use(folder)


class _Encoder:
    sha256 = "0" * 64


@given(st.data())
def test_configs(folder, data):
    encoders = {"inputs": _Encoder(), "targets": _Encoder()}
    place = {"dir": str(folder), "fingerprint": "f", "seed": 1}
    config = make_config(Toy(), HParams(), 1, place, encoders)
    config = json.loads(json.dumps(config))
    text = json.dumps(changed(data, config))
    (folder / "config.json").write_text(text)
    with contextlib.suppress(T2TLiteError):
        found = read_config(folder)
        problem_options(found)
        require_same(folder, found, config)
