"""Fixtures that every test file may use; none of them loads TensorFlow."""

import importlib
import os
import random
import subprocess
import sys

import pytest

# Set before any test imports TensorFlow.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ["KERAS_BACKEND"] = "tensorflow"
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")


@pytest.fixture(autouse=True)
def _seed():
    """Every test starts from the same state of Python's generator."""
    random.seed(0)


@pytest.fixture
def run_command(capfd):
    """Runs a command in this process: `(exit code, stdout, stderr)`.

    `run_command("trainer", "--problem=...")` calls `t2t_lite.bin.trainer.main`.
    """

    def run(module, *argv):
        capfd.readouterr()
        main = importlib.import_module(f"t2t_lite.bin.{module}").main
        code = main([str(word) for word in argv])
        out, err = capfd.readouterr()
        return code, out, err

    return run


@pytest.fixture
def run_process():
    """Runs a command in a process of its own: a CompletedProcess of text."""

    def run(module, *argv, **options):
        return subprocess.run(
            [sys.executable, "-m", f"t2t_lite.bin.{module}", *map(str, argv)],
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
            **options,
        )

    return run


@pytest.fixture
def forget_plugins(monkeypatch):
    """Undoes what a test registers and imports."""
    from t2t_lite import plugins, registry

    plugins.load_plugins()
    for kind in (registry._PROBLEMS, registry._HPARAMS):
        monkeypatch.setattr(kind, "_entries", dict(kind._entries))
    monkeypatch.setattr(plugins, "_loaded", set(plugins._loaded))
    monkeypatch.setattr(sys, "path", list(sys.path))
    known = set(sys.modules)
    yield
    for name in set(sys.modules) - known:
        if name.startswith("usr_"):
            del sys.modules[name]
