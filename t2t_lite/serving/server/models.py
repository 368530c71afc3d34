"""The versions of one model: watch the folder, load, switch."""

import asyncio
import contextlib
import dataclasses
import functools
import gc
import json
import pathlib
from collections.abc import Callable, Mapping
from typing import Any

import grpc
import tensorflow as tf
import tensorflow_text  # noqa: F401 (registers the ops of tokenizers)
from tensorflow.core.protobuf import saved_model_pb2
from tensorflow_serving.apis import (
    get_model_metadata_pb2,
    get_model_status_pb2,
    prediction_log_pb2,
)

from t2t_lite.errors import T2TLiteError, in_words
from t2t_lite.serving.server import metrics
from t2t_lite.serving.server.batching import Run, Tensors
from t2t_lite.serving.server.refusal import Refusal

State = get_model_status_pb2.ModelVersionStatus
_STATUSES = {status.value[0]: status for status in grpc.StatusCode}


@dataclasses.dataclass(frozen=True)
class Signature:
    """A function of a SavedModel from strings [B] to tensors [B, ...]."""

    inputs: tuple[str, ...]  # names
    run: Run  # thread-safe
    # Whether requests can be concatenated: an output with a second unknown
    # dimension would depend on the rest of the batch.
    is_batchable: bool = True


@dataclasses.dataclass(frozen=True)
class Version:
    """A loaded version. It is freed after its last request."""

    number: int  # the name of its folder
    signatures: Mapping[str, Signature]
    metadata: Any = None  # a SignatureDefMap
    about: dict[str, Any] | None = None  # assets.extra/t2t-lite.json


def load_version(folder: pathlib.Path) -> Version:
    """Load a SavedModel and run its warm-up requests."""
    loaded = tf.saved_model.load(str(folder))
    signatures = {
        name: _signature(name, function)
        for name, function in loaded.signatures.items()
    }
    extra = folder / "assets.extra"
    if (warmup := extra / "tf_serving_warmup_requests").is_file():
        for record in tf.data.TFRecordDataset(str(warmup)).as_numpy_iterator():
            log = prediction_log_pb2.PredictionLog.FromString(record)
            request = log.predict_log.request
            inputs = request.inputs.items()
            signatures[request.model_spec.signature_name].run(
                {name: tf.make_ndarray(proto) for name, proto in inputs}
            )
    proto = saved_model_pb2.SavedModel.FromString(
        (folder / "saved_model.pb").read_bytes()
    )
    metadata = get_model_metadata_pb2.SignatureDefMap()
    for name, definition in proto.meta_graphs[0].signature_def.items():
        metadata.signature_def[name].CopyFrom(definition)
    about = extra / "t2t-lite.json"
    return Version(
        int(folder.name),
        signatures,
        metadata,
        json.loads(about.read_bytes()) if about.is_file() else None,
    )


def _signature(name: str, function: Any) -> Signature:
    inputs = function.structured_input_signature[1]
    kinds = {(spec.dtype, spec.shape.rank) for spec in inputs.values()}
    if kinds != {(tf.string, 1)}:
        raise T2TLiteError(
            f"All inputs of {name} must be strings [batch]. TensorFlow Serving "
            "serves other models"
        )
    shapes = [spec.shape for spec in function.structured_outputs.values()]
    return Signature(
        tuple(sorted(inputs)),
        functools.partial(_run, function),
        all(x.rank and None not in x.as_list()[1:] for x in shapes),
    )


def _run(function: Any, inputs: Tensors) -> Tensors:
    try:
        outputs = function(**{k: tf.constant(v) for k, v in inputs.items()})
        return {name: outputs[name].numpy() for name in sorted(outputs)}
    except tf.errors.OpError as error:
        status = _STATUSES.get(error.error_code, grpc.StatusCode.INTERNAL)
        raise Refusal(status, f"The model: {in_words(error)}.") from error


class Model:
    """A model whose newest version is served.

    Attributes:
      name: its name in requests.
      states: `State` of each version that is loading, served or broken.

    Args:
      name: see above.
      base_path: the folder that holds the versions.
      load: loads the folder of a version; `load_version`.
      log: receives a line for each event.
    """

    def __init__(
        self,
        name: str,
        base_path: pathlib.Path,
        load: Callable[[pathlib.Path], Version],
        log: Callable[[str], None],
    ):
        self.name = name
        self.states: dict[int, Any] = {}
        self._current: Version | None = None
        self._broken: dict[int, object] = {}  # the files of broken versions
        self._base_path = base_path
        self._load = load
        self._log = log

    def find(self, name: str, number: int | None = None) -> Version:
        """Return the current version, if it is the one that a request names.

        Raises:
          Refusal: it is not.
        """
        version = self._current
        wanted = number is None or (version and number == version.number)
        if not version or name != self.name or not wanted:
            asked = name if number is None else f"{name} version {number}"
            raise Refusal(
                grpc.StatusCode.NOT_FOUND,
                f"This server has {self.name} version "
                f"{version and version.number}; got {asked}.",
            )
        return version

    async def refresh(self) -> None:
        """Load the newest version and switch to it.

        A version that cannot be loaded is skipped until its files change.

        Raises:
          OSError: the folder cannot be read.
        """
        folders = await asyncio.to_thread(_list_versions, self._base_path)
        for number in self._broken.keys() - folders.keys():
            del self._broken[number], self.states[number]
        for number, folder in sorted(folders.items(), reverse=True):
            if self._current and number == self._current.number:
                return
            files = _stat_files(folder)
            if self._broken.get(number) == files:
                continue
            self.states[number] = State.LOADING
            try:
                version = await asyncio.to_thread(self._load, folder)
            except Exception as error:
                self._broken[number] = files
                self.states[number] = State.END
                self._log(f"Cannot load {folder}: {in_words(error)}.")
                continue
            if self._current:
                del self.states[self._current.number]
            self._current = version
            self.states[number] = State.AVAILABLE
            metrics.VERSION.set(number)
            self._log(f"Loaded {self.name} version {number}.")
            gc.collect()  # objects of TensorFlow form reference cycles
            return

    async def start(self) -> None:
        """Load the newest version.

        Raises:
          T2TLiteError: no version can be loaded.
        """
        await self.refresh()
        if not self._current:
            raise T2TLiteError(
                f"--model_base_path={self._base_path} has no version that can "
                "be loaded. A version is a folder named 1, 2, ... with a "
                "saved_model.pb."
            )

    async def watch(self, seconds: float) -> None:
        """Call `refresh` every `seconds` until cancelled."""
        logged = ""
        while True:
            await asyncio.sleep(seconds)
            problem = ""
            try:
                await self.refresh()
            except Exception as error:
                problem = f"Cannot look for versions: {in_words(error)}."
            if problem and problem != logged:
                with contextlib.suppress(OSError):  # stderr is closed
                    self._log(problem)
            logged = problem


def _list_versions(base_path: pathlib.Path) -> dict[int, pathlib.Path]:
    return {
        int(folder.name): folder
        for folder in base_path.iterdir()
        if folder.name.isdecimal()
        and int(folder.name) < 2**63  # the protos have int64
        and (folder / "saved_model.pb").is_file()
    }


def _stat_files(folder: pathlib.Path) -> set[tuple[str, int, int]]:
    """Return path, size and time of each file."""
    stats = [(str(file), file.stat()) for file in folder.rglob("*")]
    return {(name, stat.st_size, stat.st_mtime_ns) for name, stat in stats}
