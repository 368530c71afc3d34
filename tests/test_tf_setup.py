"""TensorFlow starts with our settings and without messages."""

import subprocess
import sys
import types

import pytest

from t2t_lite import tf_setup
from t2t_lite.errors import T2TLiteError


def test_keras_with_another_backend_is_refused(monkeypatch):
    backend = types.SimpleNamespace(backend=lambda: "jax")
    keras = types.SimpleNamespace(backend=backend)
    monkeypatch.setitem(sys.modules, "keras", keras)
    with pytest.raises(T2TLiteError, match="jax"):
        tf_setup.start_tensorflow()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("environment", "asked", "fixed"),
    [(None, True, True), ("0", True, False), ("1", False, False)]
    + [(None, None, False), ("1", None, True)],
)
def test_argument_and_environment_freeze_weights(
    monkeypatch, environment, asked, fixed
):
    monkeypatch.delenv("TF_ONEDNN_ASSUME_FROZEN_WEIGHTS", raising=False)
    if environment is not None:
        monkeypatch.setenv("TF_ONEDNN_ASSUME_FROZEN_WEIGHTS", environment)
    code = (
        "from t2t_lite.tf_setup import start_tensorflow, weights_are_frozen\n"
        f"start_tensorflow(frozen_weights={asked})\n"
        f"start_tensorflow(frozen_weights={not asked})  # no effect any more\n"
        "print(weights_are_frozen())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert (done.stdout, done.stderr) == (f"{fixed}\n", "")


def test_a_long_operation_does_not_block_other_functions():
    program = """
import threading
import tensorflow as tf
from t2t_lite.tf_setup import set_num_threads

set_num_threads(1)
started, finished, in_time = threading.Event(), threading.Event(), []

def wait():
    started.set()
    in_time.append(finished.wait(20))

@tf.function
def long(): tf.py_function(wait, [], [])

@tf.function
def short(): tf.py_function(finished.set, [], [])

thread = threading.Thread(target=long)
thread.start()
assert started.wait(60)
short()
thread.join()
assert in_time == [True]
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=100)
