import functools
import subprocess
import sys
import types

import pytest
import tensorflow as tf

from t2t_lite import runtime
from t2t_lite.errors import T2TLiteError
from t2t_lite.runtime import start_tensorflow


def printed_by(code):
    """What it prints in a process of its own, in words."""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    return done.stdout.split()


def test_keras_on_another_backend_is_refused(monkeypatch):
    backend = types.SimpleNamespace(backend=lambda: "jax")
    keras = types.SimpleNamespace(backend=backend)
    monkeypatch.setitem(sys.modules, "keras", keras)
    with pytest.raises(T2TLiteError, match="here it runs on jax"):
        start_tensorflow()


@pytest.mark.parametrize(
    ("cores", "count", "each"), [(8, 2, 4), (2, 2, 1), (2, 4, 1), (7, 2, 3)]
)
def test_computations_at_once_share_the_cores(monkeypatch, cores, count, each):
    threads = {}
    for kind in ("intra", "inter"):
        monkeypatch.setattr(
            tf.config.threading,
            f"set_{kind}_op_parallelism_threads",
            functools.partial(threads.__setitem__, kind),
        )
    monkeypatch.setattr(runtime, "usable_cores", lambda: cores)
    runtime.share_cores(count)
    assert threads == {"intra": each, "inter": count}


def test_garbage_is_looked_for_again_after_the_import_of_tensorflow():
    """In a process of its own, for what is frozen stays so."""
    code = (
        "import gc, sys, types\n"
        "from t2t_lite.runtime import start_tensorflow\n"
        "class Finder:\n"
        "    def find_spec(name, path=None, target=None):\n"
        "        if name == 'tensorflow':\n"
        "            print(gc.isenabled())\n"
        "sys.meta_path.insert(0, Finder)\n"
        "start_tensorflow()\n"
        "print(gc.isenabled(), gc.get_freeze_count() > 100_000)\n"
        "class Ring: pass\n"
        "ring = Ring()\n"
        "ring.itself = ring\n"
        "del ring\n"
        "gc.collect()\n"
        "print(any(isinstance(o, Ring) for o in gc.get_objects()))\n"
    )
    assert printed_by(code) == ["False", "True", "True", "False"]


@pytest.mark.parametrize("enabled", [True, False])
def test_the_collector_is_as_it_was_even_after_an_error(monkeypatch, enabled):
    done = []
    monkeypatch.setattr(
        runtime,
        "gc",
        types.SimpleNamespace(
            isenabled=lambda: enabled,
            disable=lambda: done.append("disable"),
            freeze=lambda: done.append("freeze"),
            enable=lambda: done.append("enable"),
        ),
    )
    with pytest.raises(ImportError), runtime._nothing_is_garbage():
        done.append("import")
        raise ImportError
    then = ["disable", "import", "freeze"]
    assert done == (then + ["enable"] if enabled else then)


def test_only_a_process_that_starts_tensorflow_fixes_its_weights(monkeypatch):
    monkeypatch.delenv("TF_ONEDNN_ASSUME_FROZEN_WEIGHTS", raising=False)
    start_tensorflow(fixed_weights=True)  # it is there already
    assert not runtime.weights_are_fixed()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("environment", "asked", "fixed"),
    [(None, True, True), ("0", True, False), ("1", False, False)]
    + [(None, None, False), ("1", None, True)],
)
def test_who_starts_tensorflow_says_whether_weights_are_fixed(
    monkeypatch, environment, asked, fixed
):
    monkeypatch.delenv("TF_ONEDNN_ASSUME_FROZEN_WEIGHTS", raising=False)
    if environment is not None:
        monkeypatch.setenv("TF_ONEDNN_ASSUME_FROZEN_WEIGHTS", environment)
    code = (
        "from t2t_lite.runtime import start_tensorflow, weights_are_fixed\n"
        f"start_tensorflow(verbose=True, fixed_weights={asked})\n"
        "print(weights_are_fixed())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == [str(fixed)]
