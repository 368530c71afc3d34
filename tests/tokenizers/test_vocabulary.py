"""Vocabulary files of three kinds: recognized, used, and exported."""

import json
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from t2t_lite import registry
from t2t_lite.data.manifest import Manifest
from t2t_lite.datagen import generate
from t2t_lite.errors import T2TLiteError
from t2t_lite.plugins import load_plugins
from t2t_lite.problem import RawFiles
from t2t_lite.serving.verify import check_servable
from t2t_lite.tokenizers.sentencepiece import SentencePieceTokenizer
from t2t_lite.tokenizers.t2t_subword import T2TSubwordTokenizer
from t2t_lite.tokenizers.vocabulary import open_vocabulary
from t2t_lite.tokenizers.wordpiece import WordPieceVocabulary

WORDS = "one two three four five".split()
NUMBERS = [" ".join(WORDS[int(d) % 5] for d in str(n)) for n in range(40)]
PAIRS = [(text, text.upper()) for text in NUMBERS]
KINDS = {
    "pieces.model": SentencePieceTokenizer,
    "words.txt": WordPieceVocabulary,
    "v.subwords": T2TSubwordTokenizer,
}


def write_vocabulary(folder, name):
    path = folder / name
    if name == "pieces.model":
        SentencePieceTokenizer.train(NUMBERS, 280, path)
    elif name == "words.txt":
        path.write_text("\n".join(["[PAD]", "[UNK]", *WORDS[:4], "##s", "!"]))
    else:
        pieces = ["<pad>_", "<EOS>_", *(f"{word}_" for word in WORDS)]
        pieces += [*"\\_u;0123456789ONETWHREFUIV"]
        path.write_text("".join(f"'{piece}'\n" for piece in pieces))
    return path


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A vocabulary file of each kind, by name."""
    folder = tmp_path_factory.mktemp("vocabularies")
    return {name: write_vocabulary(folder, name) for name in KINDS}


@pytest.mark.parametrize("name", KINDS)
def test_file_is_recognized_by_its_content(name, files, tmp_path):
    misnamed = tmp_path / "vocabulary.bin"
    misnamed.write_bytes(files[name].read_bytes())
    encoder = open_vocabulary(misnamed)
    assert type(encoder) is KINDS[name]
    assert encoder.sha256 == open_vocabulary(files[name]).sha256
    assert encoder.decode(encoder.encode(["one two"])) == ["one two"]


def test_damaged_archive_is_named_in_the_error(tmp_path):
    path = tmp_path / "marian.vocab.zip"
    path.write_bytes(b"PK\3\4damaged")
    with pytest.raises(T2TLiteError, match=str(path)):
        open_vocabulary(path)


@pytest.mark.parametrize("content", [b"", b"one\ntwo\n", b"\n'<pad>_'\n"])
def test_error_for_an_unknown_file_names_the_three_kinds(content, tmp_path):
    path = tmp_path / "vocabulary"
    path.write_bytes(content)
    with pytest.raises(T2TLiteError) as error:
        open_vocabulary(path)
    for part in (str(path), "SentencePiece", "[UNK]", "<EOS>_"):
        assert part in str(error.value)


def options_of(folder, vocabulary):
    for side in (0, 1):
        lines = "".join(f"{pair[side]}\n" for pair in PAIRS)
        (folder / f"side.{side}").write_text(lines)
    return {
        "source": str(folder / "side.0"),
        "target": str(folder / "side.1"),
        "vocabulary": str(vocabulary),
        "holdout": 2,
    }


@pytest.mark.parametrize(
    ("name", "copy"),
    [("words.txt", "text.vocab.txt"), ("v.subwords", "text.vocab.subwords")],
)
def test_data_is_generated_with_a_given_vocabulary(name, copy, files, tmp_path):
    load_plugins()
    problem = registry.problem("text", options_of(tmp_path, files[name]))
    manifest = generate.DataGenerator(
        problem, tmp_path / "data", progress=False
    ).run()
    assert manifest.vocabulary.keys() == {copy}
    encoder = problem.reverse().load_encoders(tmp_path / "data")["inputs"]
    assert problem.expected_vocab_sizes() == (encoder.vocab_size,) * 2
    texts = [
        text for pair in problem.samples("train", RawFiles()) for text in pair
    ]
    unknown = sum(
        row.tolist().count(encoder.unknown_id) for row in encoder.encode(texts)
    )
    assert (unknown > 0) == (name == "words.txt")  # "five" is not a piece
    assert manifest.splits["train"].unknown_words == unknown
    assert Manifest.load(tmp_path / "data", problem) == manifest


class _RoundTrip(tf.Module):
    def __init__(self, encoders):
        super().__init__()
        self.encoders = encoders

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)])
    def serve(self, text):
        ids = [encoder.encode_tf(text) for encoder in self.encoders]
        texts = [
            encoder.decode_tf(rows.to_tensor(0))
            for encoder, rows in zip(self.encoders, ids, strict=True)
        ]
        return {"texts": tf.stack(texts), "ids": tf.concat(ids, 1).to_tensor()}


_LOAD = """
import json, sys
import tensorflow as tf
import tensorflow_text
sys.modules["t2t_lite"] = None  # it cannot be imported
serve = tf.saved_model.load(sys.argv[1]).signatures["serving_default"]
out = serve(tf.constant(sys.argv[2:]))
texts = [[text.decode() for text in row] for row in out["texts"].numpy()]
print(json.dumps([texts, out["ids"].numpy().tolist()]))
"""


@pytest.mark.slow
def test_moved_export_requires_no_vocabulary_file(tmp_path):
    paths = [write_vocabulary(tmp_path, name) for name in KINDS]
    encoders = [open_vocabulary(path) for path in paths]
    texts = ["One  two!", "", "five_\\ \U0001f600é", "four" * 200]
    expected = [encoder.decode(encoder.encode(texts)) for encoder in encoders]
    module = _RoundTrip(encoders)
    folder = tmp_path / "export"
    tf.saved_model.save(module, str(folder), signatures=module.serve)
    check_servable(folder)
    moved = folder.rename(tmp_path / "moved")
    for path in paths:
        path.unlink()
    process = subprocess.run(
        [sys.executable, "-c", _LOAD, moved, *texts],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=False,
    )
    assert process.returncode == 0, process.stderr
    served, ids = json.loads(process.stdout)
    assert served == expected
    rows = zip(*(encoder.encode(texts) for encoder in encoders), strict=True)
    for row, parts in zip(ids, rows, strict=True):
        expected = np.concatenate(parts).tolist()
        assert row == expected + [0] * (len(row) - len(expected))
