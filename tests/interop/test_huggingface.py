"""Import and export of MarianMT models: exact, or an error."""

import functools
import json
import subprocess

import numpy as np
import pytest
import tensorflow as tf
from num2words import num2words

import t2t_lite
from support.places import ROOT, TESTS
from t2t_lite import plugins
from t2t_lite.decoding.translator import Translator
from t2t_lite.errors import T2TLiteError, UsageError
from t2t_lite.interop import huggingface
from t2t_lite.model.transformer import Transformer
from t2t_lite.serving.export import export_saved_model, export_to_engine
from t2t_lite.tokenizers.base import EOS_ID
from t2t_lite.tokenizers.sentencepiece import SentencePieceTokenizer
from t2t_lite.training.run import Run

pytest.importorskip(
    "safetensors", reason="needs pip install 't2t-lite[huggingface]'"
)
PYTHON = ROOT / ".huggingface/bin/python"
needs_transformers = pytest.mark.skipif(
    not PYTHON.exists(), reason="needs `make huggingfacetest`"
)
ODD = [
    *(
        "  two  hundred. ",
        ">>deu<< two",
        ">>xyz<< two",
        ">>deu<<",
        ">>open two",
    ),
    *("two >>deu<< two", "Größe ☃ 你好 \u2581 x", "a\tb", "ﬁ ½ Ａ", "<s> x"),
    *("\ufeffBOM", "x" * 20, "\u200b zero", "É e\u0301", "1,234.5%"),
    *("\u3000wide\u3000", "a\u2028b", "\x07bell", "🎉🎉", "A B C"),
]
NUMBERS = [n * 7919 % 100_000 for n in range(1, 600)]
LINES = {
    "source": [num2words(n, lang="en") for n in NUMBERS],
    "target": [num2words(n, lang="de") for n in NUMBERS],
}
TESTED = {
    "source": (ODD + LINES["source"])[:200],
    "target": LINES["target"][-200:],
}
SEARCH = {"alpha": 0.0, "max_new_tokens": 40}
SIZES = {
    "hidden_size": 16,
    "filter_size": 24,
    "num_heads": 2,
    "num_hidden_layers": 2,
    "num_decoder_layers": 1,
}


def reference(command, folder, lines, *arguments):
    """Run `huggingface_reference.py` in the environment of transformers."""
    path = folder.parent / f"{folder.name}-{command}.json"
    path.write_text(json.dumps(lines))
    script = TESTS / "interop/huggingface_reference.py"
    subprocess.run(
        [PYTHON, script, command, folder, path, *arguments], check=True
    )


def run_reference(folder, lines):
    out = folder.parent / f"{folder.name}-out.json"
    reference("run", folder, lines, out)
    return json.loads(out.read_text())


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    """The folder of a MarianMT model written by transformers."""
    folder = tmp_path_factory.mktemp("original") / "opus-mt-en-de"
    reference("make", folder, LINES)
    return folder


@pytest.fixture(scope="module")
def expected(original):
    return run_reference(original, TESTED)


@pytest.fixture(scope="module")
def run(original):
    plugins.load_plugins()
    run = huggingface.import_huggingface(str(original), original.parent / "run")
    return Run.open(run.output_dir)


def tensors_of(model):
    return {w.path: np.array(w) for w in model.weights}


def assert_same_tensors(ours, theirs):
    assert ours.keys() == theirs.keys()
    for path, value in ours.items():
        np.testing.assert_array_equal(theirs[path], value, err_msg=path)


def assert_same_logits(translator, found, folder, pairs=TESTED):
    """Compare logits, by piece, of 50 pairs."""
    ids = json.loads((folder / "vocab.json").read_text())
    names = translator.source_encoder.ids_to_pieces(
        range(translator.model.vocab_sizes[0])
    )
    order = [ids[name] for name in names]
    for source, target, theirs in zip(
        pairs["source"][:50], pairs["target"][:50], found["logits"], strict=True
    ):
        features, *_ = translator.encode_pairs(
            tf.constant([source]), tf.constant([target])
        )
        targets = [order[i] for i in features["targets"][0].numpy()]
        assert targets == theirs["ids"]
        logits = np.array(translator.model(features))[0]
        wanted = np.array(theirs["logits"])[:, order]
        np.testing.assert_allclose(logits, wanted, atol=1e-4, rtol=0)


@pytest.mark.slow
@needs_transformers
def test_an_imported_model_has_the_logits_of_the_original(
    run, original, expected
):
    translator = run.translator(run.load_model()[0])
    assert_same_logits(translator, expected, original)


@pytest.mark.slow
@needs_transformers
@pytest.mark.parametrize(("beam_size", "equal"), [(1, 200), (4, 195)])
def test_searches_find_the_ids_of_generate_or_likelier_ones(
    run, expected, beam_size, equal
):
    """`generate` ends a hypothesis only with an EOS among the K best."""
    translator = run.translator(
        run.load_model()[0], beam_size=beam_size, **SEARCH
    )
    found = translator.translate(tf.constant(TESTED["source"]))
    theirs = [
        translator.target_encoder.pieces_to_ids(pieces)
        for pieces in expected["pieces"][str(beam_size)]
    ]
    same = 0
    for line, ours, score, ids in zip(
        TESTED["source"],
        found["tokens"][:, 0].numpy(),
        found["scores"][:, 0].numpy(),
        theirs,
        strict=True,
    ):
        same += (is_same := ours[ours > 0].tolist() == ids)
        source, *_ = translator.encode_pairs([line], [""])
        pair = {"inputs": source["inputs"], "targets": np.array([ids])}
        log_prob = np.sum(translator.model.token_log_probs(pair))
        if ids[-1] == EOS_ID:
            assert score > log_prob - 1e-3
            assert is_same or score > log_prob
    assert same >= equal


@pytest.mark.slow
@needs_transformers
def test_texts_equal_those_of_the_pipeline(run, expected, tmp_path):
    translate = t2t_lite.load(run.output_dir)
    texts = translate(TESTED["source"], beam_size=1, **SEARCH)
    assert texts == expected["texts"]
    assert len(set(texts)) > 20
    translator = run.translator(run.load_model()[0], beam_size=1, **SEARCH)
    served = t2t_lite.load(export_saved_model(translator, tmp_path / "served"))
    assert served(TESTED["source"]) == texts
    pytest.importorskip("ctranslate2")
    translator = run.translator(run.load_model()[0], beam_size=1)
    other = t2t_lite.load(
        export_to_engine(translator, tmp_path / "other", "ctranslate2")
    )
    pairs = zip(other(TESTED["source"]), texts, strict=True)
    assert sum(one == two for one, two in pairs) > 190


@pytest.mark.slow
@needs_transformers
def test_import_export_and_import_preserve_all_tensors(run, expected, tmp_path):
    model = run.load_model()[0]
    translator = run.translator(model, alpha=0.0)
    folder = export_to_engine(translator, tmp_path, "huggingface", run=run)
    again = huggingface.import_huggingface(str(folder), tmp_path / "again")
    assert_same_tensors(tensors_of(model), tensors_of(again.load_model()[0]))
    assert again.hparams.model_kwargs() | {"max_length": 96} == (
        run.hparams.model_kwargs()
    )
    assert "library_name: transformers" in (folder / "README.md").read_text()
    found = run_reference(folder, TESTED)
    assert found["texts"] == expected["texts"]


@pytest.mark.slow
@needs_transformers
def test_fine_tuning_begins_with_the_imported_weights(
    run, tmp_path, run_command
):
    for side, lines in LINES.items():
        (tmp_path / side).write_text("\n".join(lines))
    (vocabulary,) = run.output_dir.glob("*.zip")
    code, _, err = run_command(
        "trainer",
        *("--problem=text", f"--vocabulary={vocabulary}"),
        *(f"--{side}={tmp_path / side}" for side in LINES),
        f"--init_from={run.output_dir}",
        "--hparams_override=batch_tokens=500,gradient_accumulation_steps=1,"
        "schedule=constant,learning_rate=0.001,warmup_steps=1",
        *("--train_steps=3", "--holdout=20", f"--data_dir={tmp_path}"),
        f"--output_dir={tmp_path / 'tuned'}",
    )
    assert code == 0, err
    tuned = Run.open(tmp_path / "tuned")
    before, after = (tensors_of(r.load_model()[0]) for r in (run, tuned))
    assert before.keys() == after.keys()
    for path, value in before.items():
        assert 0 < np.abs(after[path] - value).max() < 0.02, path


def test_language_tag_is_the_language_code(exported, tmp_path):
    folder, _ = exported(tags=(">>deu<<", ">>fra<<"))
    run = huggingface.import_huggingface(str(folder), tmp_path / "run")
    translate = t2t_lite.load(run.output_dir)
    request = t2t_lite.Request("two", tag="deu")
    assert translate(request) == translate(">>deu<< two")
    with pytest.raises(UsageError, match=">>fra<<"):
        translate(t2t_lite.Request("two", tag="eng"))


@pytest.fixture(scope="module")
def train_encoder(tmp_path_factory):
    """Return a function that trains a vocabulary with tags, once for each."""

    @functools.cache
    def train(tags):
        path = tmp_path_factory.mktemp("vocabulary") / "vocab.model"
        lines = LINES["source"][:50]
        return SentencePieceTokenizer.train(lines, 290, path, tags=tags)

    return train


@pytest.fixture
def exported(tmp_path, train_encoder):
    """Return a function that exports a model with random weights."""

    def export(tags=(), **hparams):
        plugins.load_plugins()
        encoder = train_encoder(tags)
        model = Transformer(encoder.vocab_size, **{**SIZES, **hparams})
        generator = np.random.default_rng(1)
        for weight in model.build_weights().weights:
            noise = generator.normal(0, 0.2, weight.shape)
            weight.assign(np.array(weight) + noise)
        translator = Translator(model, encoder, encoder)
        folder = tmp_path / "exported"
        folder.mkdir()
        huggingface.write_huggingface(translator, folder)
        return folder, translator

    return export


def test_the_commands_import_and_export_a_model(
    exported, run_command, tmp_path
):
    folder, _ = exported()
    run, export = tmp_path / "run", tmp_path / "export"
    flags = [f"--huggingface={folder}", f"--output_dir={run}"]
    code, out, err = run_command("import_t2t", *flags)
    assert (code, out) == (0, f"{run}\n"), err
    flags = [f"--output_dir={run}", f"--export_dir={export}", "--alpha=0"]
    code, out, err = run_command("exporter", *flags, "--format=huggingface")
    assert (code, out) == (0, f"{export / '1'}\n"), err
    assert (export / "1" / "model.safetensors").is_file()


@pytest.mark.parametrize(
    "hparams",
    [
        {},
        {
            "attention_bias": True,
            "logits_bias": True,
            "learned_start": True,
            "activation": "gelu",
            "embedding_scale": "none",
            "vocab_divisor": 7,
        },
    ],
    ids=str,
)
def test_export_and_import_preserve_a_run(exported, tmp_path, hparams):
    folder, translator = exported(**hparams)
    run = huggingface.import_huggingface(str(folder), tmp_path / "run")
    before = tensors_of(translator.model)
    after = tensors_of(run.load_model()[0])
    assert_same_tensors(before, {p: after[p] for p in before})
    assert not any(after[path].any() for path in after.keys() - before.keys())
    text = "two hundred ☃"
    ids = translator.source_encoder.encode([text])
    np.testing.assert_array_equal(run.encoders["inputs"].encode([text]), ids)
    assert run.encoders["targets"].decode(ids) == [text]


@pytest.mark.slow
@needs_transformers
@pytest.mark.parametrize("learned", [False, True])
def test_exported_run_has_the_same_logits_in_transformers(exported, learned):
    folder, translator = exported(learned_start=learned, norm_epsilon=1e-6)
    sources = [line for line in TESTED["source"] if line[:2] != ">>"]
    pairs = {"source": sources[:50], "target": TESTED["target"][:50]}
    assert_same_logits(translator, run_reference(folder, pairs), folder, pairs)


@pytest.mark.parametrize(
    ("hparams", "word"),
    [
        ({"norm_placement": "pre"}, "norm_placement"),
        ({"position_encoding": "concatenated"}, "interleaved"),
        ({"max_relative_position": 3}, "max_relative_position"),
        ({"attention_window": 4}, "attention_window"),
        ({"attention_score": "additive"}, "attention_score"),
        ({"shared_embedding": False}, "shared_embedding"),
        ({"target_space_embedding": True}, "target_space"),
        ({"norm_epsilon": 0.01}, "norm_epsilon"),
        ({"key_depth": 4}, "key_depth"),
    ],
    ids=str,
)
def test_model_that_differs_from_marian_is_rejected(exported, hparams, word):
    with pytest.raises(UsageError, match=word):
        exported(**hparams)


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"model_type": "fsmt"}, "fsmt"),
        ({"model_type": "mbart"}, "mbart"),
        ({"share_encoder_decoder_embeddings": False}, "share_encoder"),
        ({"tie_word_embeddings": False}, "tie_word"),
        ({"decoder_ffn_dim": 7}, "ffn_dim"),
        ({"activation_function": "gelu_new"}, "gelu_new"),
        ({"bad_words_ids": [[0], [5]]}, "bad_words_ids"),
        ({"decoder_start_token_id": 3}, "decoder_start_token_id"),
        ({"d_model": 15}, "hidden_size"),
    ],
    ids=str,
)
def test_unsupported_config_is_rejected(exported, tmp_path, changes, word):
    folder, _ = exported()
    (folder / "generation_config.json").unlink()
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    with pytest.raises(UsageError, match=word):
        huggingface.import_huggingface(str(folder), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_missing_and_damaged_files_are_named(exported, tmp_path, monkeypatch):
    folder, _ = exported()
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:1000])
    for name in ("model.safetensors", "source.spm", "config.json"):
        if name != path.name:
            (folder / name).unlink()
        with pytest.raises(T2TLiteError, match=name.replace(".", r"\.")):
            huggingface.import_huggingface(str(folder), tmp_path / "run")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(T2TLiteError, match="nobody/nothing"):
        huggingface.import_huggingface("nobody/nothing", tmp_path / "run")
