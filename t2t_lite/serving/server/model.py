"""The model of a server: loads versions and computes outputs of requests."""

import asyncio
import contextlib
import dataclasses
import gc
import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import tensorflow as tf
import tensorflow_text  # noqa: F401 (registers the ops of tokenizers)
from tensorflow.core.protobuf import saved_model_pb2
from tensorflow_serving.apis import get_model_metadata_pb2 as metadata_pb2
from tensorflow_serving.apis import get_model_status_pb2 as status_pb2
from tensorflow_serving.apis import prediction_log_pb2

from t2t_lite.errors import T2TLiteError, format_error
from t2t_lite.serving.options import ServerOptions
from t2t_lite.serving.server import requests
from t2t_lite.serving.server.batching import Batcher, Run, Tensors
from t2t_lite.serving.server.requests import ApiError

State = status_pb2.ModelVersionStatus
_DEFAULT = "serving_default"  # the signature of requests without a name
_STATUSES = {status.value[0]: status.name for status in grpc.StatusCode}


@dataclasses.dataclass(frozen=True)
class Signature:
    """A function of a SavedModel from strings [B] to tensors [B, ...]."""

    inputs: tuple[str, ...]  # names
    run: Run  # thread-safe
    # Requests can be concatenated. False if an output has a second unknown
    # dimension, which would depend on the rest of the batch.
    is_batchable: bool = True


@dataclasses.dataclass(frozen=True)
class Version:
    """A loaded version; its memory is freed after its last request."""

    number: int  # name of its folder
    signatures: Mapping[str, Signature]
    metadata: Any = None  # a SignatureDefMap
    about: dict[str, Any] | None = None  # assets.extra/t2t-lite.json


def load_version(folder: Path) -> Version:
    """Load a SavedModel and run its warm-up requests."""
    loaded = tf.saved_model.load(str(folder))
    signatures = {n: _signature(n, f) for n, f in loaded.signatures.items()}
    if not signatures:
        raise T2TLiteError("The SavedModel has no signature")
    extra = folder / "assets.extra"
    if (warmup := extra / "tf_serving_warmup_requests").is_file():
        for record in tf.data.TFRecordDataset(str(warmup)).as_numpy_iterator():
            log = prediction_log_pb2.PredictionLog.FromString(record)
            request = log.predict_log.request
            inputs = request.inputs.items()
            signatures[request.model_spec.signature_name or _DEFAULT].run(
                {name: tf.make_ndarray(proto) for name, proto in inputs}
            )
    content = (folder / "saved_model.pb").read_bytes()
    (graph, *_) = saved_model_pb2.SavedModel.FromString(content).meta_graphs
    metadata = metadata_pb2.SignatureDefMap(signature_def=graph.signature_def)
    about = extra / "t2t-lite.json"
    description = json.loads(about.read_bytes()) if about.is_file() else None
    return Version(int(folder.name), signatures, metadata, description)


def _signature(name: str, function: Any) -> Signature:
    inputs = function.structured_input_signature[1]
    types = {(spec.dtype, spec.shape.rank) for spec in inputs.values()}
    if types != {(tf.string, 1)}:
        raise T2TLiteError(
            f"All inputs of {name} must be strings [batch]. Use TensorFlow "
            "Serving for other models"
        )

    def run(inputs: Tensors) -> Tensors:
        try:
            outputs = function(**{k: tf.constant(v) for k, v in inputs.items()})
            return {name: outputs[name].numpy() for name in sorted(outputs)}
        except tf.errors.OpError as error:
            status = _STATUSES.get(error.error_code, "INTERNAL")
            message = f"The model failed: {format_error(error)}."
            raise ApiError(message, status) from error

    shapes = [spec.shape for spec in function.structured_outputs.values()]
    is_batchable = all(x.rank and None not in x.as_list()[1:] for x in shapes)
    return Signature(tuple(sorted(inputs)), run, is_batchable)


@dataclasses.dataclass
class Model:
    """A model; its newest version is served."""

    options: ServerOptions
    batcher: Batcher  # runs the requests
    load: Callable[[Path], Version]  # `load_version`
    log: Callable[[str], None]  # called with a message for each event
    _current: Version | None = None
    _states: dict[int, int] = dataclasses.field(default_factory=dict)
    # Files of versions that failed to load, by version.
    _failed: dict[int, object] = dataclasses.field(default_factory=dict)

    @property
    def seconds(self) -> float:
        """The maximum time of a request."""
        return self.options.rest_api_timeout_in_ms / 1000

    def find(self, name: str, number: int | None = None) -> Version:
        """Return the current version if it matches a request."""
        version, own_name = self._current, self.options.model_name
        if version and name == own_name and number in (None, version.number):
            return version
        served = f"{own_name} version {version and version.number}"
        requested = name if number is None else f"{name} version {number}"
        message = f"The server serves {served}, not {requested}."
        raise ApiError(message, "NOT_FOUND")

    def status(
        self, name: str, number: int | None = None
    ) -> status_pb2.GetModelStatusResponse:
        """Return the state of a version, or of all versions, newest first."""
        response = status_pb2.GetModelStatusResponse()
        for version, state in sorted(self._states.items(), reverse=True):
            if name == self.options.model_name and number in (None, version):
                code = 14 if state == State.END else 0  # UNAVAILABLE
                response.model_version_status.add(
                    version=version, state=state, status={"error_code": code}
                )
        if not response.model_version_status:
            self.find(name, number)  # raises
        return response

    async def predict(
        self,
        version: Version,
        signature_name: str,
        inputs: Mapping[str, Any],
        seconds: float = math.inf,
    ) -> Tensors:
        """Return the outputs of a request, within the client's `seconds`.

        The signature "" means "serving_default". The inputs are lists of str or
        bytes by name; "" means the only input.
        """
        deadline = asyncio.get_running_loop().time()
        deadline += min(self.seconds, seconds)
        signature = version.signatures.get(signature_name or _DEFAULT)
        if not signature:
            known = ", ".join(version.signatures)
            reason = f"The signatures are {known} (got {signature_name})."
            raise ApiError(reason, "FAILED_PRECONDITION")
        if inputs.keys() == {""} and len(signature.inputs) == 1:
            inputs = {signature.inputs[0]: inputs[""]}
        if inputs.keys() != set(signature.inputs):
            expected = ", ".join(signature.inputs)
            raise ApiError(f"The signature requires the inputs {expected}.")
        tensors = {k: self._tensor(k, v) for k, v in inputs.items()}
        columns = list(tensors.values())
        if len({len(column) for column in columns}) > 1:
            raise ApiError("All inputs must have the same number of texts.")
        maximum = self.options.max_batch_size
        if len(columns[0]) > maximum and not signature.is_batchable:
            raise ApiError(
                f"A request of the signature {signature_name} must have at "
                f"most {maximum} texts (got {len(columns[0])})."
            )
        outputs = await self.batcher.answer(
            signature.run,
            tensors,
            [sum(map(len, row)) for row in zip(*columns, strict=True)],
            signature.run if signature.is_batchable else None,
            deadline,
        )
        requests.TEXTS.inc(len(columns[0]))
        return outputs

    def _tensor(self, name: str, texts: Any) -> np.ndarray:
        if not isinstance(texts, list):
            raise ApiError(f"{name} must be a list of strings.")
        maximum = self.options.max_texts
        if len(texts) > maximum:
            raise ApiError(
                f"A request must have at most {maximum} texts (got "
                f"{len(texts)}): send several requests."
            )
        tensor = np.empty(len(texts), object)
        for row, text in enumerate(texts):
            if isinstance(text, str):
                text = text.encode("utf-8", "replace")
            if not isinstance(text, bytes):
                got = type(text).__name__
                raise ApiError(f"{name} must contain strings (got {got}).")
            count, maximum = len(text), self.options.max_characters
            if count > maximum:  # more bytes than characters are allowed
                count = len(text.decode("utf-8", "replace"))
            if count > maximum:
                raise ApiError(
                    f"A text must have at most {maximum} characters (got "
                    f"{count})."
                )
            tensor[row] = text
        return tensor

    async def start(self) -> None:
        """Load the newest version."""
        await self.refresh()
        if not self._current:
            raise T2TLiteError(
                "No version could be loaded from `model_base_path="
                f"{self.options.model_base_path}`. A version is a folder named "
                "1, 2, ... with a saved_model.pb."
            )

    async def watch(self) -> None:
        """Call `refresh` regularly until cancelled."""
        logged = ""
        while True:
            await asyncio.sleep(self.options.file_system_poll_wait_seconds)
            try:
                await self.refresh()
            except OSError as error:  # unreadable folder or closed stderr
                problem = f"Cannot check for versions: {format_error(error)}."
                if problem != logged:
                    with contextlib.suppress(OSError):
                        self.log(problem)
                logged = problem

    async def refresh(self) -> None:
        """Load the newest version and switch to it.

        A version that failed to load is skipped until its files change.
        """
        folders = {
            int(folder.name): folder
            for folder in self.options.model_base_path.iterdir()
            if folder.name.isdecimal()
            and int(folder.name) < 2**63  # fits the int64 of the protos
            and (folder / "saved_model.pb").is_file()
        }
        for number in self._failed.keys() - folders.keys():
            del self._failed[number], self._states[number]
        for number, folder in sorted(folders.items(), reverse=True):
            if self._current and number == self._current.number:
                return
            stats = [(str(file), file.stat()) for file in folder.rglob("*")]
            files = {(name, x.st_size, x.st_mtime_ns) for name, x in stats}
            if self._failed.get(number) == files:
                continue
            self._states[number] = State.LOADING
            try:
                version = await asyncio.to_thread(self.load, folder)
            except Exception as error:
                self._failed[number] = files
                self._states[number] = State.END
                self.log(f"Cannot load {folder}: {format_error(error)}.")
                continue
            if self._current:
                del self._states[self._current.number]
            self._current = version
            self._states[number] = State.AVAILABLE
            self._failed.pop(number, None)
            requests.VERSION.set(number)
            self.log(f"Loaded {self.options.model_name} version {number}.")
            gc.collect()  # objects of TensorFlow form reference cycles
            return
