"""Vocabulary files of three kinds: told apart, used, and exported."""

import json
import pathlib
import shutil
import subprocess
import sys

import pytest
import tensorflow as tf

from t2t_lite import registry
from t2t_lite.data.manifest import Manifest
from t2t_lite.datagen import generate
from t2t_lite.errors import T2TLiteError
from t2t_lite.plugins import load_plugins
from t2t_lite.serving.servable import check_servable
from t2t_lite.text.sentencepiece_encoder import SentencePieceEncoder
from t2t_lite.text.sentencepiece_model import sample_lines
from t2t_lite.text.subword_encoder import SubwordEncoder
from t2t_lite.text.vocabulary import open_vocabulary
from t2t_lite.text.wordpiece_encoder import WordPieceEncoder

WORDS = "one two three four five".split()
NUMBERS = [" ".join(WORDS[int(d) % 5] for d in str(n)) for n in range(40)]
PAIRS = [(text, text.upper()) for text in NUMBERS]
KINDS = {
    "pieces.model": SentencePieceEncoder,
    "words.txt": WordPieceEncoder,
    "v.subwords": SubwordEncoder,
}


def write_vocabulary(folder, name):
    path = folder / name
    if name == "pieces.model":
        SentencePieceEncoder.train(NUMBERS, 280, path)
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
def test_a_file_is_known_by_its_content(name, files, tmp_path):
    misnamed = tmp_path / "vocabulary.bin"
    misnamed.write_bytes(files[name].read_bytes())
    encoder = open_vocabulary(misnamed)
    assert type(encoder) is KINDS[name]
    assert encoder.sha256 == open_vocabulary(files[name]).sha256
    assert encoder.decode(encoder.encode(["one two"])) == ["one two"]


@pytest.mark.parametrize("content", [b"", b"one\ntwo\n", b"\n'<pad>_'\n"])
def test_an_unknown_file_is_told_the_three_kinds(content, tmp_path):
    path = tmp_path / "vocabulary"
    path.write_bytes(content)
    with pytest.raises(T2TLiteError) as error:
        open_vocabulary(path)
    for part in (
        f"{path} is not a vocabulary",
        "SentencePiece model",
        "WordPiece vocabulary (one piece a line, [UNK] among them)",
        "tensor2tensor subword file ('<pad>_' and '<EOS>_' first)",
    ):
        assert part in str(error.value)


def test_a_missing_file_and_a_broken_model_are_named(files, tmp_path):
    with pytest.raises(T2TLiteError, match="Cannot read the vocabulary .*gone"):
        open_vocabulary(tmp_path / "gone")
    broken = tmp_path / "broken.model"
    broken.write_bytes(files["pieces.model"].read_bytes()[:500])
    with pytest.raises(T2TLiteError, match="broken.model is not a Sentence"):
        open_vocabulary(broken)


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
def test_data_is_made_with_a_given_file(name, copy, files, tmp_path):
    load_plugins()
    problem = registry.problem("text", options_of(tmp_path, files[name]))
    manifest = generate.Generation(
        problem, tmp_path / "data", progress=False
    ).run()
    assert manifest.vocabulary.keys() == {copy}
    encoder = problem.reverse().load_encoders(tmp_path / "data")["inputs"]
    assert problem.expected_vocab_sizes() == (encoder.vocab_size,) * 2
    train = manifest.splits["train"]
    (shard,) = train.shards
    ids = []
    for record in tf.data.TFRecordDataset(str(tmp_path / "data" / shard.file)):
        features = tf.train.Example.FromString(record.numpy()).features.feature
        for side in ("inputs", "targets"):
            ids.append(list(features[side].int64_list.value))
    assert all(row[-1] == 1 and min(row[:-1]) > 1 for row in ids)
    unknown = 0
    if encoder.unknown_id is not None:
        unknown = sum(row.count(encoder.unknown_id) for row in ids)
        assert unknown == sum(
            encoder.decode([row])[0].split().count("[UNK]") for row in ids
        )
        assert unknown > 0  # "five" is no piece
    assert train.unknown_words == unknown
    assert Manifest.load(tmp_path / "data", problem) == manifest


class _RoundTrip(tf.Module):
    def __init__(self, encoders):
        super().__init__()
        self.encoders = encoders

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)])
    def serve(self, text):
        ids = [encoder.tokenize(text) for encoder in self.encoders]
        texts = [
            encoder.detokenize(rows.to_tensor(0))
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
def test_a_moved_export_needs_no_vocabulary_file(tmp_path):
    names = ("words.txt", "v.subwords")
    paths = [write_vocabulary(tmp_path, name) for name in names]
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
    both = zip(*(encoder.encode(texts) for encoder in encoders), strict=True)
    for row, (first, second) in zip(ids, both, strict=True):
        length = len(first) + len(second)
        assert row[:length] == [*first, *second]
        assert not any(row[length:])


@pytest.mark.slow
@pytest.mark.parametrize("name", KINDS)
def test_every_command_works_with_a_given_file(
    name, files, run_command, tmp_path
):
    given = pathlib.Path(shutil.copy(files[name], tmp_path))
    options = options_of(tmp_path, given)
    flags = [f"--{key}={value}" for key, value in options.items()]
    sizes = "hidden_size=8,filter_size=16,num_heads=2,num_hidden_layers=1,"
    sizes += "batch_tokens=512,micro_batches=2,max_length=64,beam_size=2"
    data, run = tmp_path / "data", tmp_path / "run"
    code, _, err = run_command(
        "datagen", "--problem=text", f"--data_dir={data}", *flags
    )
    assert code == 0, err
    assert ("words not in the vocabulary" in err) == (name == "words.txt")
    code, _, err = run_command(
        "trainer",
        "--problem=text",
        "--hparams=transformer_toy",
        f"--hparams_override={sizes}",
        "--train_steps=2",
        f"--data_dir={data}",
        f"--output_dir={run}",
    )
    assert code == 0, err
    given.unlink()
    away = data.rename(tmp_path / "away")  # a run describes itself
    source = tmp_path / "in"
    source.write_text("one two\nfive  ones!\n")
    decode = ("decoder", f"--output_dir={run}")
    code, expected, err = run_command(*decode, f"--decode_from_file={source}")
    assert code == 0, err
    folder = tmp_path / "export"
    code, _, err = run_command(
        "exporter",
        f"--output_dir={run}",
        f"--export_dir={folder}",
        "--noverify",
    )
    assert code == 0, err
    model = tf.saved_model.load(str(folder.rename(tmp_path / "moved") / "1"))
    answers = model.signatures["serving_default"](
        inputs=tf.constant(["one two", "five  ones!"])
    )["outputs"].numpy()
    assert [a.decode() for a in answers] == expected.split("\n")[:-1]
    away.rename(data)
    code, out, err = run_command(
        "evaluator", f"--output_dir={run}", "--split=test", "--json"
    )
    assert code == 0, err
    manifest = json.loads((data / "text.manifest.json").read_text())
    examples = manifest["splits"]["test"]["examples"]
    assert json.loads(out)["sentences"] == examples > 0


def test_lone_surrogates_do_not_stop_a_vocabulary():
    lines, count = sample_lines(["a\udc80b"] * 3, seed=1)
    assert (lines, count) == (["a\ufffd\ufffd\ufffdb"] * 3, 3)
