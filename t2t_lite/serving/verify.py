"""Compares the answers of an export with those of the graphs it was made of."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from t2t_lite.errors import T2TLiteError
from t2t_lite.serving import asker
from t2t_lite.serving.requests import Request
from t2t_lite.serving.served import ServedTranslator

# Relative and absolute tolerance of scores and attention weights. Sums of
# bfloat16 depend on the order in which threads add.
_TOLERANCE = {"float32": 1e-3, "bfloat16": 0.1}


def verify(
    saved_model: pathlib.Path,
    served: ServedTranslator,
    requests: Sequence[Request],
    dtype: str,
) -> None:
    """Load an export in a process without this package and compare answers.

    Args:
      saved_model: the folder of the export.
      served: what was exported.
      requests: sent to both.
      dtype: in which the model computes.

    Raises:
      T2TLiteError: the export cannot be loaded, or an answer differs or holds
        a number that is not finite.
    """
    # Within the unfinished export, so that a crash leaves nothing elsewhere.
    with tempfile.TemporaryDirectory(
        prefix=".verify.", dir=saved_model
    ) as name:
        folder = pathlib.Path(name)
        path = folder / "requests.json"
        path.write_text(json.dumps(requests), "utf-8")
        done = subprocess.run(
            [sys.executable, "-P", asker.__file__]
            + [str(saved_model.absolute()), "requests.json", "."],
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
        for number, (signature, inputs) in enumerate(requests):
            texts = [tf.constant(v, tf.string) for v in inputs.values()]
            for name, value in served.answers[signature](*texts).items():
                content = tf.io.read_file(f"{folder}/{number}.{name}")
                found = tf.io.parse_tensor(content, value.dtype).numpy()
                if not is_equal(found, value.numpy(), _TOLERANCE[dtype]):
                    raise _failed(
                        f"the output {name} of {signature} differs for "
                        f"{str(inputs)[:200]}"
                    )


def is_equal(found: np.ndarray, wanted: np.ndarray, tolerance: float) -> bool:
    """Return whether two arrays are equal, and all their numbers finite.

    Args:
      found: output of the export.
      wanted: output of the reference.
      tolerance: relative and absolute, of floats.
    """
    if found.dtype.kind != "f":
        return np.array_equal(found, wanted)
    is_close = found.shape == wanted.shape and np.allclose(
        found, wanted, tolerance, tolerance
    )
    return is_close and bool(np.isfinite(found).all())


def _failed(reason: str) -> T2TLiteError:
    return T2TLiteError(
        f"The export does not answer as the model does: {reason}. Nothing was "
        "written. Report this as a bug; --noverify exports without this check."
    )
