"""What does not answer as the decoder is no export."""

import os
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from support.random_translator import random_translator, train_encoder
from t2t_lite.errors import T2TLiteError
from t2t_lite.serving import asker, verify, versions
from t2t_lite.serving.export import export_saved_model


@pytest.fixture(scope="module")
def translator(tmp_path_factory):
    return random_translator(train_encoder(tmp_path_factory.mktemp("v")))


@pytest.mark.parametrize(
    ("found", "equal"),
    [
        (np.array([-1.0, -2.0005], np.float32), True),
        (np.array([-1.0, -2.5], np.float32), False),
        (np.array([-1.0, np.nan], np.float32), False),
        (np.array([-1.0], np.float32), False),
    ],
)
def test_numbers_must_be_close_finite_and_as_many(found, equal):
    wanted = np.array([-1.0, -2.0], np.float32)
    assert verify.is_equal(found, wanted, 1e-3) is equal


def test_texts_must_be_equal():
    wanted = np.array([b"a", b"b"], object)
    assert verify.is_equal(wanted.copy(), wanted, 1e-3)
    assert not verify.is_equal(wanted[::-1], wanted, 1e-3)


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
    with pytest.raises(T2TLiteError, match="differs.*noverify"):
        export_saved_model(translator, tmp_path, verified=True)
    assert os.listdir(tmp_path) == ["1"]
    assert old.read_text() == "old"


def test_a_process_that_fails_is_one_clear_error(tmp_path):
    with pytest.raises(T2TLiteError, match="without t2t-lite.*SavedModel"):
        verify.verify(tmp_path, None, [], "float32")


_KILLED = """
import sys, time
from t2t_lite.serving import versions

def write(folder):
    (folder / versions.SAVED_MODEL).touch()
    print("writing", flush=True)
    time.sleep(60)

versions.write_version(sys.argv[1], versions.SAVED_MODEL, write)
"""


def test_the_next_export_removes_what_a_killed_one_left(tmp_path):
    killed = subprocess.Popen(
        [sys.executable, "-c", _KILLED, str(tmp_path)],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert killed.stdout.readline() == "writing\n"
    killed.kill()
    killed.communicate(timeout=60)
    assert os.listdir(tmp_path) == [f".1.{killed.pid}.tmp"]
    versions.write_version(
        tmp_path,
        versions.SAVED_MODEL,
        lambda folder: (folder / versions.SAVED_MODEL).touch(),
    )
    assert os.listdir(tmp_path) == ["1"]


def test_two_exports_at_once_are_two_versions(tmp_path):
    def write(folder):
        (folder / versions.SAVED_MODEL).touch()

    first = subprocess.Popen(
        [sys.executable, "-c", _KILLED, str(tmp_path)],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert first.stdout.readline() == "writing\n"
        second = versions.write_version(tmp_path, versions.SAVED_MODEL, write)
        assert second.name == "2"
        assert (tmp_path / f".1.{first.pid}.tmp").is_dir()
    finally:
        first.kill()
        first.communicate(timeout=60)


def test_the_process_cannot_import_this_package(tmp_path):
    (tmp_path / "requests").write_text("[]")
    tf.saved_model.save(tf.Module(), str(tmp_path / "saved"))
    code = (
        "import runpy, sys\n"
        "runpy.run_path(sys.argv[0], run_name='__main__')\n"
        "for name in ('t2t_lite', 't2t_lite.errors'):\n"
        "    try:\n"
        "        __import__(name)\n"
        "    except ImportError:\n"
        "        continue\n"
        "    raise SystemExit(f'{name} can be imported')\n"
    )
    argv = [asker.__file__, *(str(tmp_path / x) for x in ("saved", "requests"))]
    code = f"import sys; sys.argv = {[*argv, str(tmp_path)]!r}\n{code}"
    done = subprocess.run(
        [sys.executable, "-P", "-c", code],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
