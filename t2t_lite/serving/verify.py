"""Verification of an export: TensorFlow Serving can run it, outputs agree."""

import inspect
import itertools
import json
import os
import pickle
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2

from t2t_lite.errors import T2TLiteError
from t2t_lite.serving.requests import Request

# Ops of TensorFlow that the stock server cannot run: they need Python, a
# compiler that is not linked, or special hardware.
_FORBIDDEN_OPS = re.compile(r"Xla|PyFunc|EagerPyFunc|_Mkl|Tpu|TPU|Nccl")
# Ops of TF Text, which the server links.
_TEXT_OPS = {
    *("CaseFoldUTF8", "NormalizeUTF8", "RegexSplitWithOffsets"),
    *("SentencepieceOp", "SentencepieceTokenizeOp"),
    *("SentencepieceDetokenizeOp", "FastBertNormalize"),
    "FastWordpieceTokenizeWithOffsets",
}
# A larger float constant is a weight, which should be a variable.
_MAX_CONSTANT = 1 << 20  # bytes
# Relative and absolute tolerance of scores and attention weights. bfloat16 sums
# depend on the order of additions, which varies between threads.
_TOLERANCE = {"float32": 1e-3, "bfloat16": 0.1}


def check_servable(saved_model: Path) -> list[str]:
    """Check that the stock server can run a SavedModel; return its ops.

    The server must link all ops, and no weight may be a constant.
    """
    ops = set()
    content = (saved_model / "saved_model.pb").read_bytes()
    (graph, *_) = saved_model_pb2.SavedModel.FromString(content).meta_graphs
    functions = graph.graph_def.library.function
    nodes = (function.node_def for function in functions)
    for node in itertools.chain(graph.graph_def.node, *nodes):
        # tf.raw_ops contains TensorFlow's ops, but not ops of loaded libraries.
        known = hasattr(tf.raw_ops, node.op) or node.op in _TEXT_OPS
        if not known or _FORBIDDEN_OPS.match(node.op):
            raise T2TLiteError(
                f"TensorFlow Serving does not link the op {node.op} "
                f"({node.name}). Report this as a bug."
            )
        value = node.attr["value"].tensor
        is_real = node.op == "Const" and tf.as_dtype(value.dtype).is_floating
        if is_real and value.ByteSize() > _MAX_CONSTANT:
            raise T2TLiteError(
                "Weights must be variables (got a constant of "
                f"{value.ByteSize()} bytes, {node.name}). Report this as a bug."
            )
        ops.add(node.op)
    return sorted(ops)


def verify(
    saved_model: Path,
    signatures: Mapping[str, Any],
    requests: Sequence[Request],
    dtype: str,
) -> None:
    """Load an export in a process without this package and compare outputs.

    The `signatures` are the exported functions, and `dtype` is the type of the
    model's computations. All numbers in outputs must be finite.
    """
    # A crash leaves files only inside the unfinished export.
    hidden = tempfile.TemporaryDirectory(prefix=".verify.", dir=saved_model)
    with hidden as name:
        folder = Path(name)
        (folder / "requests.json").write_text(json.dumps(requests), "utf-8")
        done = subprocess.run(
            [sys.executable, "-P", "-c", PROGRAM, str(saved_model.absolute())],
            cwd=folder,
            # Share a GPU with this process.
            env={**os.environ, "TF_FORCE_GPU_ALLOW_GROWTH": "true"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
        )
        if done.returncode:
            lines = done.stderr.decode("utf-8", "replace").split("\n")
            last = ["no message", *filter(None, map(str.strip, lines))][-1]
            raise _failed(f"in a process without t2t-lite: {last}")
        actual = pickle.loads((folder / "outputs.pickle").read_bytes())
        for (signature, inputs), outputs in zip(requests, actual, strict=True):
            texts = [tf.constant(v, tf.string) for v in inputs.values()]
            for name, value in signatures[signature](*texts).items():
                expected, tolerance = value.numpy(), _TOLERANCE[dtype]
                if not is_equal(outputs[name], expected, tolerance):
                    raise _failed(
                        f"the output {name} of {signature} differs for "
                        f"{str(inputs)[:200]}"
                    )


def _run_requests(saved_model: str) -> None:
    """Write the outputs of `requests.json` to `outputs.pickle`.

    This function is the program of a process that imports only TensorFlow and
    TF Text; it blocks this package and the packages that only this one needs.
    """
    import json
    import pickle
    import sys

    # None blocks the import of a module.
    blocked = dict.fromkeys(("t2t_lite", "keras_hub", "sentencepiece"))
    sys.modules |= blocked  # type: ignore[arg-type]
    import tensorflow as tf
    import tensorflow_text  # noqa: F401 (registers the ops of tokenizers)

    signatures = tf.saved_model.load(saved_model).signatures
    outputs = []
    with open("requests.json", encoding="utf-8") as file:
        for signature, inputs in json.load(file):
            texts = {k: tf.constant(v, tf.string) for k, v in inputs.items()}
            values = signatures[signature](**texts)
            outputs.append({name: x.numpy() for name, x in values.items()})
    with open("outputs.pickle", "wb") as file:
        pickle.dump(outputs, file)


PROGRAM = f"""{inspect.getsource(_run_requests)}
import sys
_run_requests(sys.argv[1])"""


def is_equal(found: np.ndarray, expected: np.ndarray, tolerance: float) -> bool:
    """Return whether an output equals the expected one and is finite.

    `tolerance` is the relative and absolute tolerance of floats.
    """
    if found.dtype.kind != "f" or found.shape != expected.shape:
        return np.array_equal(found, expected)
    is_close = np.allclose(found, expected, tolerance, tolerance)
    return is_close and bool(np.isfinite(found).all())


def _failed(reason: str) -> T2TLiteError:
    return T2TLiteError(
        f"The export and the model disagree: {reason}. Nothing was written. "
        "Report this as a bug."
    )
