"""Whether an export answers as the decoder does, before it gets its name."""

import contextlib
import json
import os
import pathlib
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import tensorflow as tf

from t2t_lite.decoding.search.log_probs import is_possible
from t2t_lite.decoding.translator import Translator
from t2t_lite.errors import T2TLiteError
from t2t_lite.model.ensemble import Ensemble
from t2t_lite.serving import asker
from t2t_lite.serving.requests import Request
from t2t_lite.serving.served import ServedTranslator

# What a problem makes of an output, see `Problem.complete`.
Complete: TypeAlias = Callable[[str, str], tuple[str, Any]]
Arrays: TypeAlias = Mapping[str, np.ndarray]
# Relative and absolute, between numbers that are equal but for rounding.
_CLOSE = {"float32": 1e-3, "bfloat16": 0.1}


def verify(
    saved_model: str | os.PathLike,
    translator: Translator,
    served: ServedTranslator,
    requests: Sequence[Request],
    complete: Complete | None = None,
) -> None:
    """Asks an export in a process without this package, and compares.

    Args:
      saved_model: the folder of the export.
      translator: whose answers, those of the decoder, are the right ones.
      served: what was exported; tells what attention is.
      requests: what to ask.
      complete: `Problem.complete`, where answers have a form.

    Raises:
      T2TLiteError: it cannot be loaded there, or an answer is another one, has
        other rows than its request, or holds a number that is not finite.
    """
    decoder = _Decoder(translator, served, complete)
    with _asking(pathlib.Path(saved_model), requests) as answers:
        # Computed while the other process works.
        right = [decoder(request) for request in requests]
        found = answers()
    model = translator.model
    one = model.models[0] if isinstance(model, Ensemble) else model
    close = _CLOSE[one.dtype_policy.compute_dtype]
    for request, given, wanted in zip(requests, found, right, strict=True):
        if wrong := _wrong(request, given, wanted, close):
            raise _refused(
                f"{wrong} in its answer to the signature {request.signature}, "
                f"of {str(request.inputs)[:200]}"
            )


@contextlib.contextmanager
def _asking(
    saved_model: pathlib.Path, requests: Sequence[Request]
) -> Iterator[Callable[[], Sequence[Arrays]]]:
    """Starts the other process; gives what waits for its answers.

    What the two tell each other lies in the export, which has no name yet:
    who sweeps up after a killed exporter finds all of it.
    """
    saved_model = saved_model.absolute()
    with (
        tempfile.TemporaryDirectory(prefix=".verify.", dir=saved_model) as name,
        open(pathlib.Path(name, "messages"), "w+b") as messages,
    ):
        folder = pathlib.Path(name)
        (folder / asker.REQUESTS).write_text(json.dumps(requests), "utf-8")
        process = subprocess.Popen(
            [sys.executable, "-P", asker.__file__, str(saved_model), folder],
            cwd=folder,
            # The GPU, where there is one, is shared with this process.
            env={**os.environ, "TF_FORCE_GPU_ALLOW_GROWTH": "true"},
            stdin=subprocess.DEVNULL,
            stdout=messages,
            stderr=messages,
        )

        def answers() -> Sequence[Arrays]:
            if process.wait():
                messages.seek(0)
                lines = messages.read().decode("utf-8", "replace").split("\n")
                last = ["no message", *filter(None, map(str.strip, lines))][-1]
                raise _refused(f"a process without this package says: {last}")
            found: list[dict[str, np.ndarray]] = [{} for _ in requests]
            with np.load(folder / asker.ANSWERS) as arrays:
                for name, value in arrays.items():
                    number, output = name.split(".")
                    found[int(number)][output] = value
            return found

        try:
            yield answers
        finally:
            process.kill()  # it has ended, unless something failed here
            process.wait()


class _Decoder:
    """The right answers to requests; see `verify`."""

    def __init__(
        self,
        translator: Translator,
        served: ServedTranslator,
        complete: Complete | None,
    ):
        self._translator = translator
        self._served = served
        self._complete = complete

    def __call__(self, request: Request) -> Arrays:
        texts = {
            name: tf.constant(values, tf.string)
            for name, values in request.inputs.items()
        }
        if "targets" in texts:
            pair = texts["inputs"], texts["targets"]
            ask = self._translator.score
            if request.signature == "attention":
                ask = self._served.answers["attention"]
            return asker.arrays_of(ask(*pair))
        inputs = texts.pop("inputs")
        # All of the beam, so that one graph tells of both signatures.
        beam_size = self._translator.settings.beam_size
        found = self._translator.translate(inputs, beam_size, texts)
        if self._translator.form is not None:
            found["targets"] = found.pop("outputs")
            if self._complete:
                found["outputs"] = self._completed(inputs, found["targets"])
        return asker.arrays_of(found)

    def _completed(self, inputs: tf.Tensor, targets: tf.Tensor) -> tf.Tensor:
        assert self._complete
        rows = zip(inputs.numpy(), targets.numpy(), strict=True)
        answers = [
            [self._complete(source.decode(), text.decode())[0] for text in row]
            for source, row in rows
        ]
        return tf.constant(answers, tf.string, targets.shape)


def _wrong(
    request: Request, given: Arrays, wanted: Arrays, close: float
) -> str | None:
    """What of an answer is wrong; None: nothing.

    Args:
      request: what was asked.
      given: the export's answer.
      wanted: the decoder's; all hypotheses where the request is for a search.
      close: see `_CLOSE`.
    """
    rows = len(request.inputs["inputs"])
    for name, value in given.items():
        if len(value) != rows:
            return f"{name} has {len(value)} rows instead of {rows}"
        if value.dtype.kind == "f" and not np.isfinite(value).all():
            return f"{name} has a number that is not finite"
    compare = _other_search if "outputs" in given else _other
    if other := compare(given, wanted, close):
        return f"{other} is not the decoder's"
    return None


def _other(given: Arrays, wanted: Arrays, close: float) -> str | None:
    """The first output that differs."""
    for name, value in given.items():
        if not _is_close(value, wanted[name], close):
            return name
    return None


def _other_search(given: Arrays, wanted: Arrays, close: float) -> str | None:
    """Likewise; hypotheses of equal scores may come in any order."""
    given = {n: v[:, None] if v.ndim < 2 else v for n, v in given.items()}
    scores = given["scores"]
    if not _is_close(scores, wanted["scores"][:, : scores.shape[1]], close):
        return "scores"
    for name in ("cut", "source_lengths"):
        if not _is_close(given[name][:, 0], wanted[name], close):
            return name
    tied = np.isclose(  # [B, given, wanted]
        scores[:, :, None], wanted["scores"][:, None], close, close
    )
    for name in ("outputs", "targets"):
        if name in given and name in wanted:
            equal = given[name][:, :, None] == wanted[name][:, None]
            if not ((equal & tied).any(-1) | ~is_possible(scores)).all():
                return name
    return None


def _is_close(value: np.ndarray, wanted: np.ndarray, close: float) -> bool:
    if value.dtype.kind != "f":
        return np.array_equal(value, wanted)
    return value.shape == wanted.shape and np.allclose(
        value, wanted, close, close
    )


def _refused(reason: str) -> T2TLiteError:
    return T2TLiteError(
        f"The export does not do what the decoder does: {reason}. Nothing was "
        "written. Report this as a bug; --noverify exports all the same."
    )
