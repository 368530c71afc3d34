"""SavedModel exports: options, versions, verification and warm-up."""

import json
import os
import pathlib
import subprocess
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf

from support.random_translator import random_translator
from t2t_lite.decoding.search.settings import SearchSettings
from t2t_lite.errors import T2TLiteError, UsageError
from t2t_lite.serving import verify, versions
from t2t_lite.serving.export import export_saved_model
from t2t_lite.serving.options import ExportOptions
from t2t_lite.serving.requests import WARMUP_FILE, sample_pairs
from t2t_lite.training.run import Run

TEXTS = ["eins zwei drei", "", "haus", "katze " * 9, "maus rot"]


def outputs_of(folder):
    served = tf.saved_model.load(str(folder)).signatures["serving_default"]
    return served(inputs=tf.constant(TEXTS))["outputs"].numpy()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("settings", "model"),
    [
        ({"max_new_tokens": 2, "no_repeat_ngram_size": 1}, {}),
        ({}, {"attention_window": 2}),
    ],
    ids=["search", "window"],
)
def test_options_of_search_and_model_are_exported(
    encoder, tmp_path, settings, model
):
    settings = SearchSettings(**settings)
    translator = random_translator(encoder, settings=settings, **model)
    wanted = translator.translate(tf.constant(TEXTS))["outputs"][:, 0]
    found = outputs_of(export_saved_model(translator, tmp_path))
    np.testing.assert_array_equal(found, wanted)


def test_sampling_search_is_not_exported(encoder, tmp_path):
    translator = random_translator(
        encoder, settings=SearchSettings(sample=True)
    )
    with pytest.raises(UsageError, match="sample"):
        export_saved_model(translator, tmp_path / "export")


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_export_stores_the_weights_and_no_other_variables(
    translator, tmp_path, precision
):
    options = ExportOptions(precision=precision)
    folder = export_saved_model(translator, tmp_path, options)
    stored = tf.train.load_checkpoint(str(folder / "variables" / "variables"))
    types = stored.get_variable_to_dtype_map()
    shapes = stored.get_variable_to_shape_map()
    names = [name for name in types if "VARIABLE_VALUE" in name]
    assert {types[name] for name in names} == {tf.as_dtype(precision)}
    assert sorted(shapes[name] for name in names) == sorted(
        list(weight.shape) for weight in translator.model.trainable_variables
    )


def test_remove_old_versions_removes_only_old_exports(tmp_path):
    for name in ("1", "2", "9", "10", "11", "12", "9.bak", "notes"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "saved_model.pb").write_text("")
    (tmp_path / "3").mkdir()  # not an export
    (tmp_path / "4").symlink_to(tmp_path / "notes")
    removed = versions.remove_old_versions(tmp_path / "11", keep=2)
    assert removed == [tmp_path / name for name in ("1", "2", "9")]
    assert sorted(os.listdir(tmp_path)) == sorted(
        ["3", "4", "10", "11", "12", "9.bak", "notes"]
    )


def test_a_failed_export_leaves_nothing(translator, tmp_path, monkeypatch):
    def fail(*args, **options):
        (pathlib.Path(args[1]) / "saved_model.pb").write_text("half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(tf.saved_model, "save", fail)
    with pytest.raises(T2TLiteError, match="No space left on device"):
        export_saved_model(translator, tmp_path / "export")
    assert os.listdir(tmp_path / "export") == []


def test_concurrent_exports_get_two_versions_and_killed_ones_are_removed(
    tmp_path,
):
    with subprocess.Popen(["sleep", "60"]) as other:
        (tmp_path / f".1.{other.pid}.tmp").mkdir()  # is writing version 1
        assert versions.next_version(tmp_path, versions.SAVED_MODEL).name == "2"
        other.kill()
    assert versions.next_version(tmp_path, versions.SAVED_MODEL).name == "1"
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    "function, message",
    [
        (lambda x: tf.py_function(lambda y: y, [x], tf.float32), "EagerPyFunc"),
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
def test_unservable_model_is_rejected(function, message, tmp_path):
    module = tf.Module()
    module.f = tf.function(
        function, input_signature=[tf.TensorSpec([4], tf.float32)]
    )
    tf.saved_model.save(module, str(tmp_path))
    with pytest.raises(T2TLiteError, match=message):
        verify.check_servable(tmp_path)


@pytest.mark.parametrize(
    ("found", "equal"),
    [
        ([-1.0, -2.0005], True),
        ([-1.0, -2.5], False),
        ([-1.0, np.nan], False),
        ([-1.0], False),
    ],
)
def test_verification_requires_close_finite_arrays_of_equal_size(found, equal):
    found, wanted = (np.array(x, np.float32) for x in (found, [-1.0, -2.0]))
    assert verify.is_equal(found, wanted, 1e-3) is equal


@pytest.mark.slow
def test_export_with_wrong_weights_is_rejected_and_the_old_one_stays(
    translator, tmp_path, monkeypatch
):
    old = tmp_path / "1" / "saved_model.pb"
    old.parent.mkdir()
    old.write_text("old")
    save = tf.saved_model.save

    def save_other_weights(served, *args):
        kept = [weight.numpy() for weight in served.weights]
        for weight in served.weights:
            weight.assign(-weight)
        save(served, *args)
        for weight, value in zip(served.weights, kept, strict=True):
            weight.assign(value)

    monkeypatch.setattr(tf.saved_model, "save", save_other_weights)
    with pytest.raises(T2TLiteError, match="output outputs.*differs"):
        export_saved_model(translator, tmp_path, verified=True)
    assert os.listdir(tmp_path) == ["1"]
    assert old.read_text() == "old"


@pytest.mark.slow
def test_failed_verification_is_one_clear_error(tmp_path):
    with pytest.raises(T2TLiteError, match="without t2t-lite.*SavedModel"):
        verify.verify(tmp_path, {}, [], "float32")


@pytest.mark.slow
def test_the_verifying_process_cannot_import_this_package(tmp_path):
    (tmp_path / "requests.json").write_text("[]")
    tf.saved_model.save(tf.Module(), str(tmp_path / "saved"))
    code = (
        f"{verify.PROGRAM}\n"
        "for name in ('t2t_lite', 't2t_lite.errors'):\n"
        "    try:\n"
        "        __import__(name)\n"
        "    except ImportError:\n"
        "        continue\n"
        "    raise SystemExit(f'{name} can be imported')\n"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", code, str(tmp_path / "saved")],
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr


def test_export_contains_its_description(translator, exported):
    about = json.loads((exported / versions.ABOUT).read_text())
    assert about["problem"] is about["source_language"] is None
    assert set(about["signatures"]) > {"serving_default", "attention"}
    assert about["parameters"] == sum(
        int(tf.size(weight)) for weight in translator.model.trainable_variables
    )
    expected = {
        **{"format": 1, "max_length": 20},
        **{"precision": "float32", "form": None, "models": 1},
    }
    assert about | expected == about
    assert about["hparams"]["num_hidden_layers"] == 2
    assert about["search"]["beam_size"] == 3


@pytest.mark.slow
def test_warmup_covers_each_signature_at_several_lengths(
    translator, exported, served
):
    lengths = {name: [] for name in served}
    logs = pytest.importorskip("tensorflow_serving.apis.prediction_log_pb2")
    records = tf.data.TFRecordDataset(str(exported / WARMUP_FILE))
    for record in records.as_numpy_iterator():
        log = logs.PredictionLog.FromString(record)
        log.DiscardUnknownFields()
        assert log.ByteSize() == len(record)
        request = log.predict_log.request
        texts = {n: tf.make_ndarray(v) for n, v in request.inputs.items()}
        name = request.model_spec.signature_name
        texts = {n: tf.constant(v, tf.string) for n, v in texts.items()}
        for value in served[name](**texts).values():
            assert value.shape[0] == 1
        (ids,) = translator.source_encoder.encode_tf(texts["inputs"])
        lengths[name].append(len(ids))
    for found in lengths.values():
        assert len(found) == 3 and found == sorted(found)
        assert found[-1] >= translator.max_length - 1  # near the limit


def test_warmup_texts_are_from_dev_or_made_up_without_data(tiny_run, tmp_path):
    run = Run.open(tiny_run)
    translator = run.translator(run.load_model()[0])
    sources, targets = run.data.texts("dev")
    pairs = sample_pairs(translator, run)
    assert sorted(pairs) == sorted(zip(sources, targets, strict=True))
    run.data.folder = tmp_path
    del run.data.manifest
    made_up = sample_pairs(translator, run)
    assert made_up and not {*made_up} & {*pairs}
