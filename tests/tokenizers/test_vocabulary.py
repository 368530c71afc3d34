"""Vocabulary files of three kinds: recognized, used, and exported."""

import pytest
import tensorflow as tf

from t2t_lite import registry
from t2t_lite.data.manifest import Manifest
from t2t_lite.datagen import generate
from t2t_lite.errors import T2TLiteError
from t2t_lite.plugins import load_plugins
from t2t_lite.problem import RawFiles
from t2t_lite.serving.verify import check_servable, verify
from t2t_lite.tokenizers.sentencepiece import SentencePieceTokenizer
from t2t_lite.tokenizers.t2t_subword import T2TSubwordTokenizer
from t2t_lite.tokenizers.vocabulary import open_vocabulary
from t2t_lite.tokenizers.wordpiece import WordPieceVocabulary

WORDS = "one two three four five".split()
NUMBERS = [" ".join(WORDS[int(d) % 5] for d in str(n)) for n in range(40)]
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
    pairs = folder / "pairs.tsv"
    pairs.write_text("".join(f"{text}\t{text.upper()}\n" for text in NUMBERS))
    return {"pairs": str(pairs), "vocabulary": str(vocabulary), "holdout": 2}


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

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, "inputs")])
    def serve(self, inputs):
        ids = [encoder.encode_tf(inputs) for encoder in self.encoders]
        texts = [
            encoder.decode_tf(rows.to_tensor(0))
            for encoder, rows in zip(self.encoders, ids, strict=True)
        ]
        return {"texts": tf.stack(texts), "ids": tf.concat(ids, 1).to_tensor()}


@pytest.mark.slow
def test_moved_export_requires_no_vocabulary_file(tmp_path):
    paths = [write_vocabulary(tmp_path, name) for name in KINDS]
    module = _RoundTrip([open_vocabulary(path) for path in paths])
    folder = tmp_path / "export"
    tf.saved_model.save(module, str(folder), signatures=module.serve)
    check_servable(folder)
    moved = folder.rename(tmp_path / "moved")
    for path in paths:
        path.unlink()
    texts = ["One  two!", "", "five_\\ \U0001f600é", "four" * 200]
    request = "serving_default", {"inputs": texts}
    # In a process without this package.
    verify(moved, {"serving_default": module.serve}, [request], "float32")
