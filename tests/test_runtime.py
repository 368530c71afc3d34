import functools
import sys
import types

import pytest
import tensorflow as tf

from t2t_lite import runtime
from t2t_lite.errors import T2TLiteError
from t2t_lite.runtime import start_tensorflow


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
