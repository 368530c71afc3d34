"""t2t-lite: a Transformer for text-to-text work, from corpus to served model.

`import t2t_lite` is quick: the public names below are loaded on first use, and
TensorFlow only with `Transformer`, or when `load` and `train` have work for it.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # what __getattr__ loads, for type checkers
    from t2t_lite.api import load, train
    from t2t_lite.decoding.requests import Request
    from t2t_lite.hparam import HParams
    from t2t_lite.model.transformer import Transformer
    from t2t_lite.problem import Problem, Text2TextProblem

__version__ = "0.3.0"

_MODULE_OF = {
    "HParams": "t2t_lite.hparam",
    "Problem": "t2t_lite.problem",
    "Request": "t2t_lite.decoding.requests",
    "Text2TextProblem": "t2t_lite.problem",
    "Transformer": "t2t_lite.model.transformer",
    "load": "t2t_lite.api",
    "train": "t2t_lite.api",
}

__all__ = [
    "HParams",
    "Problem",
    "Request",
    "Text2TextProblem",
    "Transformer",
    "load",
    "train",
]


def __getattr__(name: str) -> Any:
    if name in ("keras_hub", "registry"):
        return importlib.import_module(f"t2t_lite.{name}")
    if name not in _MODULE_OF:
        raise AttributeError(f"module 't2t_lite' has no attribute {name!r}.")
    value = getattr(importlib.import_module(_MODULE_OF[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_MODULE_OF])
