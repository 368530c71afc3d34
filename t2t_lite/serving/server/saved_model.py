"""A SavedModel, loaded and warm."""

import functools
import json
import pathlib
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_text  # noqa: F401 (models use its ops)
from tensorflow.core.protobuf import saved_model_pb2
from tensorflow_serving.apis import prediction_log_pb2

from t2t_lite.errors import T2TLiteError, in_words
from t2t_lite.serving.server import proto_tensors
from t2t_lite.serving.server.batching import Tensors
from t2t_lite.serving.server.refusal import Refusal, Status
from t2t_lite.serving.server.signature import (
    DEFAULT_SIGNATURE,
    Signature,
    TensorSpec,
)

_EXTRA = "assets.extra"
_WARMUP = "tf_serving_warmup_requests"
_ABOUT = "t2t-lite.json"
_MOST_WARMUP_REQUESTS = 1000  # of the stock server
_MOST_ELEMENTS = 1 << 24  # of a tensor in a warm-up request
_STATUSES = {status.number: status for status in Status}


class SavedModel:
    """What a version of a model serves.

    Attributes:
      signatures: those that can be called, by name.
      signature_defs: all, as the model describes them.
      about: what `assets.extra/t2t-lite.json` says, or None.
      sample: a request that it answers, as the name of a signature and its
        inputs; None if it has no warm-up requests.

    Args:
      folder: of the version.

    Raises:
      T2TLiteError: it cannot be loaded, or a warm-up request fails.
    """

    def __init__(self, folder: pathlib.Path):
        try:
            self._loaded = tf.saved_model.load(str(folder))
            self.signature_defs = _signature_defs(folder)
            self.about = _about(folder / _EXTRA / _ABOUT)
        except Exception as error:
            raise T2TLiteError(
                f"Cannot load {folder}: {in_words(error)}."
            ) from error
        self.signatures = {
            name: _signature(name, self.signature_defs[name], function)
            for name, function in self._loaded.signatures.items()
        }
        if not self.signatures:
            raise T2TLiteError(f"{folder} has no signature to serve.")
        self.sample: tuple[str, Tensors] | None = None
        self._warm_up(folder / _EXTRA / _WARMUP)

    def _warm_up(self, requests: pathlib.Path) -> None:
        if not requests.is_file():
            return
        try:
            for number, request in enumerate(_read_requests(requests), 1):
                asked = request.model_spec.signature_name or DEFAULT_SIGNATURE
                signature = self.signatures[asked]
                inputs = proto_tensors.tensors_of(
                    request.inputs, signature.inputs, _MOST_ELEMENTS
                )
                signature.run(inputs)
                self.sample = self.sample or (asked, inputs)
                if number == _MOST_WARMUP_REQUESTS:
                    return
        except Exception as error:
            raise T2TLiteError(
                f"A request of {requests} fails: {in_words(error)}."
            ) from error


def _signature_defs(folder: pathlib.Path) -> Mapping[str, Any]:
    proto = saved_model_pb2.SavedModel.FromString(
        (folder / "saved_model.pb").read_bytes()
    )
    for graph in proto.meta_graphs:
        if "serve" in graph.meta_info_def.tags:
            defs = tf.compat.v1.MetaGraphDef().signature_def
            for name, signature in graph.signature_def.items():
                defs[name].CopyFrom(signature)
            return defs
    raise T2TLiteError("no graph has the tag serve")


def _about(file: pathlib.Path) -> dict[str, Any] | None:
    return json.loads(file.read_bytes()) if file.is_file() else None


def _read_requests(file: pathlib.Path) -> Iterator[Any]:
    """The Predict requests of a file of PredictionLogs."""
    for record in tf.data.TFRecordDataset(str(file)).as_numpy_iterator():
        log = prediction_log_pb2.PredictionLog.FromString(record)
        if log.HasField("predict_log"):
            yield log.predict_log.request


def _signature(name: str, described: Any, function: Any) -> Signature:
    inputs, outputs = (
        {key: _spec(info) for key, info in sorted(infos.items())}
        for infos in (described.inputs, described.outputs)
    )
    return Signature(name, inputs, outputs, functools.partial(_run, function))


def _spec(info: Any) -> TensorSpec:
    shape = tf.TensorShape(info.tensor_shape)
    sizes = None if shape.rank is None else tuple(shape.as_list())
    return TensorSpec(np.dtype(tf.as_dtype(info.dtype).as_numpy_dtype), sizes)


def _run(function: Any, inputs: Tensors) -> Tensors:
    """Calls a function of the model.

    Raises:
      Refusal: it fails.
    """
    try:
        outputs = function(
            **{name: tf.constant(value) for name, value in inputs.items()}
        )
        return {name: outputs[name].numpy() for name in sorted(outputs)}
    except tf.errors.OpError as error:
        status = _STATUSES.get(error.error_code, Status.INTERNAL)
        raise Refusal(status, f"The model: {in_words(error)}.") from error
