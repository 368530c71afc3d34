"""The model of a server: its versions, and the outputs of a request."""

import asyncio
import contextlib
import dataclasses
import gc
import json
import math
import pathlib
from collections.abc import Callable, Mapping
from typing import Any

import grpc
import numpy as np
import tensorflow as tf
import tensorflow_text  # noqa: F401 (registers the ops of tokenizers)
from tensorflow.core.protobuf import saved_model_pb2
from tensorflow_serving.apis import (
    get_model_metadata_pb2,
    get_model_status_pb2,
    prediction_log_pb2,
)

from t2t_lite.errors import T2TLiteError, format_error
from t2t_lite.serving.server import requests
from t2t_lite.serving.server.batching import Batcher, Run, Tensors
from t2t_lite.serving.server.requests import Limits, Refusal

State = get_model_status_pb2.ModelVersionStatus
_STATUSES = {status.value[0]: status.name for status in grpc.StatusCode}


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
    signatures = {n: _signature(n, f) for n, f in loaded.signatures.items()}
    extra = folder / "assets.extra"
    if (warmup := extra / "tf_serving_warmup_requests").is_file():
        for record in tf.data.TFRecordDataset(str(warmup)).as_numpy_iterator():
            log = prediction_log_pb2.PredictionLog.FromString(record)
            request = log.predict_log.request
            inputs = request.inputs.items()
            signatures[request.model_spec.signature_name].run(
                {name: tf.make_ndarray(proto) for name, proto in inputs}
            )
    content = (folder / "saved_model.pb").read_bytes()
    (graph, *_) = saved_model_pb2.SavedModel.FromString(content).meta_graphs
    metadata = get_model_metadata_pb2.SignatureDefMap(
        signature_def=graph.signature_def
    )
    about = extra / "t2t-lite.json"
    description = json.loads(about.read_bytes()) if about.is_file() else None
    return Version(int(folder.name), signatures, metadata, description)


def _signature(name: str, function: Any) -> Signature:
    inputs = function.structured_input_signature[1]
    kinds = {(spec.dtype, spec.shape.rank) for spec in inputs.values()}
    if kinds != {(tf.string, 1)}:
        raise T2TLiteError(
            f"All inputs of {name} must be strings [batch]. TensorFlow Serving "
            "serves other models"
        )

    def run(inputs: Tensors) -> Tensors:
        try:
            outputs = function(**{k: tf.constant(v) for k, v in inputs.items()})
            return {name: outputs[name].numpy() for name in sorted(outputs)}
        except tf.errors.OpError as error:
            status = _STATUSES.get(error.error_code, "INTERNAL")
            raise Refusal(
                f"The model: {format_error(error)}.", status
            ) from error

    shapes = [spec.shape for spec in function.structured_outputs.values()]
    is_batchable = all(x.rank and None not in x.as_list()[1:] for x in shapes)
    return Signature(tuple(sorted(inputs)), run, is_batchable)


@dataclasses.dataclass
class Model:
    """A model whose newest version is served."""

    name: str  # in requests
    base_path: pathlib.Path  # holds the versions
    batcher: Batcher  # runs the requests
    limits: Limits  # of each request
    load: Callable[[pathlib.Path], Version]  # `load_version`
    log: Callable[[str], None]  # receives a line for each event
    _current: Version | None = None
    _states: dict[int, int] = dataclasses.field(default_factory=dict)
    # The files of the versions that cannot be loaded.
    _broken: dict[int, object] = dataclasses.field(default_factory=dict)

    def find(self, name: str, number: int | None = None) -> Version:
        """Return the current version, if it is the one that a request names.

        Raises:
          Refusal: it is not.
        """
        version = self._current
        if version and name == self.name and number in (None, version.number):
            return version
        there = f"{self.name} version {version and version.number}"
        asked = name if number is None else f"{name} version {number}"
        raise Refusal(f"This server has {there}; got {asked}.", "NOT_FOUND")

    def status(
        self, name: str, number: int | None = None
    ) -> get_model_status_pb2.GetModelStatusResponse:
        """Return the states of one version, or of all versions, newest first.

        Raises:
          Refusal: the server does not have them.
        """
        response = get_model_status_pb2.GetModelStatusResponse()
        for version, state in sorted(self._states.items(), reverse=True):
            if name == self.name and number in (None, version):
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
        """Return the outputs of a request.

        Args:
          version: from `find`.
          signature_name: "" is "serving_default".
          inputs: lists of str or bytes by name; "" is the only input.
          seconds: how long the client waits.

        Raises:
          Refusal: the request is malformed, exceeds a limit or is too late.
        """
        deadline = asyncio.get_running_loop().time()
        deadline += min(self.limits.seconds, seconds)
        signature = version.signatures.get(signature_name or "serving_default")
        if not signature:
            known = ", ".join(version.signatures)
            reason = f"The signatures are {known}; got {signature_name}."
            raise Refusal(reason, "FAILED_PRECONDITION")
        if inputs.keys() == {""} and len(signature.inputs) == 1:
            inputs = {signature.inputs[0]: inputs[""]}
        if inputs.keys() != set(signature.inputs):
            expected = ", ".join(signature.inputs)
            raise Refusal(f"The inputs of this signature are {expected}.")
        tensors = {k: self._tensor(k, v) for k, v in inputs.items()}
        columns = list(tensors.values())
        if len({len(column) for column in columns}) > 1:
            raise Refusal("All inputs must have equally many texts.")
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
            raise Refusal(f"{name} must be a list of strings.")
        if len(texts) > self.limits.texts:
            raise Refusal(
                f"A request may have {self.limits.texts} texts; got "
                f"{len(texts)}. Send several requests."
            )
        tensor = np.empty(len(texts), object)
        for row, text in enumerate(texts):
            if isinstance(text, str):
                text = text.encode("utf-8", "replace")
            if not isinstance(text, bytes):
                got = type(text).__name__
                raise Refusal(f"{name} must hold strings; got {got}.")
            count, most = len(text), self.limits.characters
            if count > most:  # bytes
                count = len(text.decode("utf-8", "replace"))
            if count > most:
                raise Refusal(
                    f"A text may have {most} characters; got {count}."
                )
            tensor[row] = text
        return tensor

    async def start(self) -> None:
        """Load the newest version.

        Raises:
          T2TLiteError: no version can be loaded.
        """
        await self.refresh()
        if not self._current:
            raise T2TLiteError(
                f"`model_base_path={self.base_path}` has no version that can "
                "be loaded. A version is a folder named 1, 2, ... with a "
                "saved_model.pb."
            )

    async def watch(self, seconds: float) -> None:
        """Call `refresh` every `seconds` until cancelled."""
        logged = ""
        while True:
            await asyncio.sleep(seconds)
            try:
                await self.refresh()
            except OSError as error:  # of the folder, or stderr is closed
                problem = f"Cannot look for versions: {format_error(error)}."
                if problem != logged:
                    with contextlib.suppress(OSError):
                        self.log(problem)
                logged = problem

    async def refresh(self) -> None:
        """Load the newest version and switch to it.

        A version that cannot be loaded is skipped until its files change.

        Raises:
          OSError: the folder cannot be read.
        """
        folders = {
            int(folder.name): folder
            for folder in self.base_path.iterdir()
            if folder.name.isdecimal()
            and int(folder.name) < 2**63  # the protos have int64
            and (folder / "saved_model.pb").is_file()
        }
        for number in self._broken.keys() - folders.keys():
            del self._broken[number], self._states[number]
        for number, folder in sorted(folders.items(), reverse=True):
            if self._current and number == self._current.number:
                return
            stats = [(str(file), file.stat()) for file in folder.rglob("*")]
            files = {(name, x.st_size, x.st_mtime_ns) for name, x in stats}
            if self._broken.get(number) == files:
                continue
            self._states[number] = State.LOADING
            try:
                version = await asyncio.to_thread(self.load, folder)
            except Exception as error:
                self._broken[number] = files
                self._states[number] = State.END
                self.log(f"Cannot load {folder}: {format_error(error)}.")
                continue
            if self._current:
                del self._states[self._current.number]
            self._current = version
            self._states[number] = State.AVAILABLE
            requests.VERSION.set(number)
            self.log(f"Loaded {self.name} version {number}.")
            gc.collect()  # objects of TensorFlow form reference cycles
            return
