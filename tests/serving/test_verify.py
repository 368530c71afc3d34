"""What does not answer as the decoder is no export."""

import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from support.random_translator import random_translator, train_encoder
from t2t_lite.errors import T2TLiteError
from t2t_lite.serving import asker, verify, versions
from t2t_lite.serving.export import export_saved_model
from t2t_lite.serving.requests import Request

ASKED = Request("nbest", {"inputs": ["a", "b"]})
SOUND = {
    "outputs": np.array([["x", "y"], ["z", "w"]]),
    "scores": np.array([[-1.0, -2.0], [-1.0, -1.0]], np.float32),
    "cut": np.array([False, True]),
    "source_lengths": np.array([3, 20], np.int32),
}


@pytest.fixture(scope="module")
def translator(tmp_path_factory):
    return random_translator(train_encoder(tmp_path_factory.mktemp("v")))


def wrong(**changed):
    return verify._wrong(ASKED, {**SOUND, **changed}, SOUND, 1e-3)


def test_the_same_answers_are_right_and_ties_may_be_turned_around():
    assert wrong() is None
    assert wrong(outputs=np.array([["x", "y"], ["w", "z"]])) is None
    assert wrong(**{n: v[:, 0] for n, v in SOUND.items() if v.ndim > 1}) is None


@pytest.mark.parametrize(
    "changed, what",
    [
        ({"outputs": np.array([["y", "x"], ["z", "w"]])}, "outputs is not"),
        ({"outputs": np.array([["x", "y"], ["z", ""]])}, "outputs is not"),
        ({"scores": SOUND["scores"] - 0.1}, "scores is not"),
        ({"scores": SOUND["scores"] * np.nan}, "not finite"),
        ({"cut": np.array([True, True])}, "cut is not"),
        ({"source_lengths": np.array([3, 19])}, "source_lengths is not"),
        ({"cut": np.array([True])}, "cut has 1 rows instead of 2"),
    ],
)
def test_an_answer_that_is_not_the_decoders_is_named(changed, what):
    assert what in wrong(**changed)


@pytest.mark.slow
def test_an_export_with_other_weights_is_refused_and_the_old_one_stays(
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
    with pytest.raises(T2TLiteError, match="is not the decoder's.*noverify"):
        export_saved_model(translator, tmp_path, verified=True)
    assert os.listdir(tmp_path) == ["1"]
    assert old.read_text() == "old"


def test_a_process_that_fails_is_one_clear_error(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with (
        pytest.raises(T2TLiteError, match="without this package.*no message"),
        verify._asking(tmp_path, [ASKED]) as answers,
    ):
        answers()


_KILLED = """
import pathlib, sys, time
from t2t_lite.serving import verify, versions

def write(folder):
    (folder / versions.SAVED_MODEL).touch()
    with verify._asking(folder, []):
        print("verifying", flush=True)
        time.sleep(60)

versions.write_version(sys.argv[1], versions.SAVED_MODEL, write)
"""


def test_the_next_export_sweeps_up_after_one_that_was_killed(tmp_path):
    exports, others = tmp_path / "exports", tmp_path / "others"
    others.mkdir()
    killed = subprocess.Popen(
        [sys.executable, "-c", _KILLED, str(exports)],
        env={**os.environ, "TMPDIR": str(others)},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert killed.stdout.readline() == "verifying\n"
    killed.kill()
    killed.communicate(timeout=60)
    left = f".1.{killed.pid}.tmp"
    assert os.listdir(exports) == [left]
    assert any(
        name.startswith(".verify.") for name in os.listdir(exports / left)
    )
    assert not os.listdir(others)
    versions.write_version(
        exports,
        versions.SAVED_MODEL,
        lambda folder: (folder / versions.SAVED_MODEL).touch(),
    )
    assert os.listdir(exports) == ["1"]
    assert os.listdir(exports / "1") == [versions.SAVED_MODEL]


def test_two_exports_at_once_are_two_versions(tmp_path):
    def write(folder):
        (folder / versions.SAVED_MODEL).touch()

    first = subprocess.Popen(
        [sys.executable, "-c", _KILLED, str(tmp_path)],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert first.stdout.readline() == "verifying\n"
        second = versions.write_version(tmp_path, versions.SAVED_MODEL, write)
        assert second.name == "2"
        assert (tmp_path / f".1.{first.pid}.tmp").is_dir()
    finally:
        first.kill()
        first.communicate(timeout=60)


def test_the_asking_process_cannot_import_this_package(tmp_path):
    (tmp_path / asker.REQUESTS).write_text("[]")
    tf.saved_model.save(tf.Module(), str(tmp_path / "saved"))
    code = (
        "import runpy, sys\n"
        f"sys.argv = ['', {str(tmp_path / 'saved')!r}, {str(tmp_path)!r}]\n"
        f"runpy.run_path({asker.__file__!r}, run_name='__main__')\n"
        "for name in ('t2t_lite', 't2t_lite.errors', 't2t_lite.bin.decoder'):\n"
        "    try:\n"
        "        __import__(name)\n"
        "    except ImportError:\n"
        "        continue\n"
        "    raise SystemExit(f'{name} can be imported')\n"
        "assert not [n for n in sys.modules if n.startswith('t2t_lite.')]\n"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", code],
        capture_output=True,
        text=True,
        check=False,
        cwd=pathlib.Path(asker.__file__).parents[2],
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / asker.ANSWERS).is_file()
