import sys
import types

import pytest

from t2t_lite.errors import T2TLiteError
from t2t_lite.runtime import start_tensorflow


def test_keras_on_another_backend_is_refused(monkeypatch):
    backend = types.SimpleNamespace(backend=lambda: "jax")
    keras = types.SimpleNamespace(backend=backend)
    monkeypatch.setitem(sys.modules, "keras", keras)
    with pytest.raises(T2TLiteError, match="here it runs on jax"):
        start_tensorflow()
