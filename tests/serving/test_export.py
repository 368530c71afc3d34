"""An export is complete, stock and equal to the decoder."""

import os
import pathlib
import shutil

import keras
import numpy as np
import pytest
import tensorflow as tf

from support.rounding import assert_scores_close
from t2t_lite.decoding.lines import translate_lines
from t2t_lite.decoding.search.settings import SearchSettings
from t2t_lite.decoding.translator import Translator
from t2t_lite.errors import T2TLiteError, UsageError
from t2t_lite.model.transformer import Transformer
from t2t_lite.serving.export import export_saved_model
from t2t_lite.serving.options import ServingOptions
from t2t_lite.serving.servable import check_servable
from t2t_lite.serving.versions import remove_old_versions
from t2t_lite.text.sentencepiece_encoder import SentencePieceEncoder

LINES = [
    "eins zwei drei",
    "",
    "haus 😀 katze",
    "eins",
    " ".join(["rot grün"] * 40),
    "zeile\u2028mit\x00allem",
    b"ein\xff",
    "   ",
]


def make_translator(folder, settings=None, **model):
    folder.mkdir(exist_ok=True)
    encoder = SentencePieceEncoder.train(
        ["eins zwei drei", "rot grün haus katze"] * 20, 290, folder / "v.model"
    )
    model = Transformer(
        encoder.vocab_size,
        encoder.vocab_size,
        hidden_size=16,
        filter_size=32,
        num_heads=2,
        num_hidden_layers=1,
        **model,
    ).build_weights()
    generator = np.random.default_rng(0)
    for variable in model.trainable_variables:
        if len(variable.shape) == 2:  # large weights, so that nothing is a tie
            size = 0.7 if "table" in variable.path else 0.4
            variable.assign(generator.normal(0, size, variable.shape))
    shutil.rmtree(folder)  # an export needs no vocabulary file
    return Translator(
        model,
        encoder,
        encoder,
        settings or SearchSettings(beam_size=3),
        extra_decode_length=5,
        max_length=30,
    )


@pytest.fixture(scope="module")
def translator(tmp_path_factory):
    return make_translator(tmp_path_factory.mktemp("vocabulary"))


@pytest.fixture(scope="module")
def exported(translator, tmp_path_factory):
    return export_saved_model(translator, tmp_path_factory.mktemp("export"))


def as_bytes(line):
    return line.encode() if isinstance(line, str) else line


def test_moved_export_translates_as_the_decoder(translator, exported, tmp_path):
    moved = tmp_path / "elsewhere" / "7"
    shutil.copytree(exported, moved)
    signatures = tf.saved_model.load(str(moved)).signatures
    wanted = list(translate_lines(translator, LINES, num_hypotheses=3))
    lines = [as_bytes(line) for line in LINES]
    for size in (1, 3, len(LINES)):
        batches = [lines[i : i + size] for i in range(0, len(lines), size)]
        for name in ("serving_default", "nbest"):
            found = [signatures[name](inputs=tf.constant(b)) for b in batches]
            outputs, scores = (
                np.concatenate([each[key].numpy() for each in found])
                for key in ("outputs", "scores")
            )
            for row, translation in enumerate(wanted):
                best = translation.hypotheses
                best = best if name == "nbest" else best[:1]
                texts = [text.decode() for text in np.ravel(outputs[row])]
                assert texts == [h.text for h in best]
                assert_scores_close(
                    np.ravel(scores[row]), [h.score for h in best]
                )
    assert len(set(t.hypotheses[0].text for t in wanted)) > 4


@pytest.mark.slow
def test_an_attention_window_is_exported_with_the_model(tmp_path):
    translator = make_translator(tmp_path / "vocabulary", attention_window=2)
    folder = export_saved_model(translator, tmp_path)
    serve = tf.saved_model.load(folder).signatures["serving_default"]
    wanted = list(translate_lines(translator, LINES))
    served = serve(inputs=tf.constant([as_bytes(line) for line in LINES]))
    outputs = [text.decode() for text in served["outputs"].numpy()]
    assert outputs == [t.hypotheses[0].text for t in wanted]
    assert_scores_close(
        served["scores"], [t.hypotheses[0].score for t in wanted]
    )


def test_signatures_are_those_of_the_contract(exported):
    signatures = tf.saved_model.load(exported).signatures
    assert set(signatures) == {"serving_default", "nbest", "score"}
    for name, shape in (("serving_default", [None]), ("nbest", [None, 3])):
        _, inputs = signatures[name].structured_input_signature
        assert inputs == {"inputs": tf.TensorSpec([None], tf.string, "inputs")}
        outputs = signatures[name].structured_outputs
        assert {
            n: (o.dtype, o.shape.as_list()) for n, o in outputs.items()
        } == {
            "outputs": (tf.string, shape),
            "scores": (tf.float32, shape),
            "lengths": (tf.int32, shape),
            "source_lengths": (tf.int32, [None]),
            "cut": (tf.bool, [None]),
        }


def test_a_signature_takes_a_prefix_for_each_text(tmp_path):
    translator = make_translator(tmp_path / "vocabulary")
    folder = export_saved_model(
        translator, tmp_path / "export", options=ServingOptions(prefixed=True)
    )
    signatures = tf.saved_model.load(str(folder)).signatures
    texts, prefixes = ["eins zwei", "drei", ""], ["haus", "", "hund"]
    found = signatures["prefixed"](
        inputs=tf.constant(texts), prefix=tf.constant(prefixes)
    )
    outputs = [text.decode() for text in found["outputs"].numpy()]
    assert outputs[0].startswith("haus") and outputs[2] == ""
    plain = signatures["serving_default"](tf.constant(texts))
    assert plain["outputs"][1] == found["outputs"][1]
    assert found["cut"].numpy().tolist() == [False] * 3


def test_options_of_the_search_are_exported(tmp_path):
    settings = SearchSettings(max_new_tokens=2, no_repeat_ngram_size=1)
    translator = make_translator(tmp_path / "vocabulary", settings)
    folder = export_saved_model(translator, tmp_path / "export")
    served = tf.saved_model.load(str(folder)).signatures["serving_default"]
    texts = tf.constant(LINES)
    np.testing.assert_array_equal(
        served(texts)["outputs"], translator.translate(texts)["outputs"][:, 0]
    )
    sampling = make_translator(
        tmp_path / "vocabulary", SearchSettings(sample=True)
    )
    with pytest.raises(UsageError, match="sample"):
        export_saved_model(sampling, tmp_path / "export")


def test_a_text_that_is_cut_is_marked(exported):
    signatures = tf.saved_model.load(exported).signatures
    texts = tf.constant(["eins", "zwei " * 500, ""])
    for name in ("serving_default", "nbest"):
        cut = signatures[name](inputs=texts)["cut"]
        assert cut.numpy().tolist() == [False, True, False]


def test_weights_are_variables_and_nothing_else_is_kept(translator, exported):
    names = tf.train.list_variables(str(exported / "variables" / "variables"))
    shapes = sorted(
        tuple(shape) for name, shape in names if "VARIABLE_VALUE" in name
    )
    assert shapes == sorted(
        tuple(v.shape) for v in translator.model.trainable_variables
    )


def test_versions_count_up_and_none_is_overwritten(translator, tmp_path):
    (tmp_path / "notes").mkdir()
    first = export_saved_model(translator, tmp_path)
    assert first == tmp_path / "1"
    assert export_saved_model(translator, tmp_path, version=8).name == "8"
    with pytest.raises(T2TLiteError, match="got version=8, and .* has 1, 8"):
        export_saved_model(translator, tmp_path, version=8)
    assert sorted(os.listdir(tmp_path)) == ["1", "8", "notes"]


def test_old_versions_go_and_nothing_else(tmp_path):
    for name in ("1", "2", "9", "10", "11", "12", "9.bak", "notes"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "saved_model.pb").write_text("")
    (tmp_path / "3").mkdir()  # no export
    (tmp_path / "4").symlink_to(tmp_path / "notes")
    removed = remove_old_versions(tmp_path / "11", keep=2)
    assert removed == [tmp_path / name for name in ("1", "2", "9")]
    assert sorted(os.listdir(tmp_path)) == sorted(
        ["3", "4", "10", "11", "12", "9.bak", "notes"]
    )
    assert remove_old_versions(tmp_path / "11", keep=2) == []


def test_failed_export_leaves_nothing(translator, tmp_path, monkeypatch):
    def fail(*args, **options):
        (pathlib.Path(args[1]) / "saved_model.pb").write_text("half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(tf.saved_model, "save", fail)
    with pytest.raises(T2TLiteError, match="No space left on device"):
        export_saved_model(translator, tmp_path / "export")
    assert os.listdir(tmp_path / "export") == []


def test_export_dir_that_is_a_file_is_one_clear_error(translator, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(T2TLiteError, match="Cannot write the export to"):
        export_saved_model(translator, tmp_path / "file")


@pytest.mark.parametrize(
    "function, message",
    [
        (
            lambda x: tf.py_function(lambda y: y, [x], tf.float32),
            "EagerPyFunc",
        ),
        (
            lambda x: keras.ops.slice_update(
                x, [tf.cast(x[0], tf.int32)], x[:1]
            ),
            "Xla",
        ),
        (lambda x: x + np.ones(300_000, "float32")[:, None], "variables"),
    ],
    ids=["python", "xla", "constant"],
)
def test_what_a_stock_server_cannot_run_is_refused(function, message, tmp_path):
    module = tf.Module()
    module.f = tf.function(
        function, input_signature=[tf.TensorSpec([4], tf.float32)]
    )
    tf.saved_model.save(module, str(tmp_path))
    with pytest.raises(T2TLiteError, match=message):
        check_servable(tmp_path)
