"""TensorFlow Serving's gRPC API and the standard health service."""

import math
from collections.abc import Awaitable, Callable
from typing import Any

import grpc
import grpc.aio
import numpy as np
import tensorflow as tf
from google.protobuf.message import DecodeError
from grpc_health.v1 import health, health_pb2_grpc
from tensorflow.core.framework import types_pb2
from tensorflow_serving.apis import (
    get_model_metadata_pb2,
    get_model_status_pb2,
    predict_pb2,
)

from t2t_lite.serving.server.models import Model, State
from t2t_lite.serving.server.predict import Predictor
from t2t_lite.serving.server.refusal import Refusal, invalid, recorded

# The stock server fills the field of a type, and many clients read it, while
# `tf.make_tensor_proto` fills `tensor_content`. It also takes 20 us an output
# on a CPU: requests of one short text took 1.2 times the processor time.
_FIELDS = {  # by the `char` of a numpy dtype
    "O": (types_pb2.DT_STRING, "string_val"),
    "f": (types_pb2.DT_FLOAT, "float_val"),
    "i": (types_pb2.DT_INT32, "int_val"),
    "?": (types_pb2.DT_BOOL, "bool_val"),
}


def make_server(predictor: Predictor) -> tuple[Any, health.aio.HealthServicer]:
    """Return a `grpc.aio.Server` and its health service.

    Args:
      predictor: answers requests.
    """
    model = predictor.model

    async def predict(request: Any, context: Any) -> Any:
        spec = request.model_spec
        version = model.find(*_model_of(spec))
        seconds = context.time_remaining()
        inputs = request.inputs.items()
        outputs = await predictor.predict(
            version,
            spec.signature_name,
            {name: _texts_of(name, proto) for name, proto in inputs},
            math.inf if seconds is None else seconds,
        )
        response = predict_pb2.PredictResponse(model_spec=spec)
        response.model_spec.version.value = version.number
        for name in request.output_filter or outputs:
            if name not in outputs:
                raise invalid(f"output_filter may hold {', '.join(outputs)}.")
            _fill(response.outputs[name], outputs[name])
        return response

    async def metadata(request: Any, context: Any) -> Any:
        if set(request.metadata_field) != {"signature_def"}:
            raise invalid("metadata_field must be signature_def.")
        version = model.find(*_model_of(request.model_spec))
        response = get_model_metadata_pb2.GetModelMetadataResponse()
        response.model_spec.name = model.name
        response.model_spec.version.value = version.number
        response.metadata["signature_def"].Pack(version.metadata)
        return response

    async def status(request: Any, context: Any) -> Any:
        return status_of(model, *_model_of(request.model_spec))

    server = grpc.aio.server(
        options=[
            ("grpc.max_receive_message_length", predictor.limits.body_bytes),
            ("grpc.max_send_message_length", -1),
            ("grpc.so_reuseport", 0),  # a port in use is an error
            ("grpc.http2.bdp_probe", 0),  # a ping for each large request
        ]
    )
    servicer = health.aio.HealthServicer()
    health_pb2_grpc.add_HealthServicer_to_server(servicer, server)
    metadata_request = get_model_metadata_pb2.GetModelMetadataRequest
    status_request = get_model_status_pb2.GetModelStatusRequest
    for service, name, kind, method in (
        ("Prediction", "Predict", predict_pb2.PredictRequest, predict),
        ("Prediction", "GetModelMetadata", metadata_request, metadata),
        ("Model", "GetModelStatus", status_request, status),
    ):
        handler = grpc.method_handlers_generic_handler(
            f"tensorflow.serving.{service}Service",
            {name: _handler(kind, method)},
        )
        server.add_generic_rpc_handlers([handler])
    return server, servicer


def _handler(kind: Any, method: Callable[[Any, Any], Awaitable[Any]]) -> Any:
    """Return a gRPC handler that parses, counts and reports errors."""

    async def call(content: bytes, context: Any) -> bytes:
        try:
            with recorded("gRPC"):
                try:
                    request = kind.FromString(content)
                except DecodeError:
                    name = kind.DESCRIPTOR.name
                    raise invalid(f"This is not a valid {name}.") from None
                return (await method(request, context)).SerializeToString()
        except Refusal as refusal:
            return await context.abort(refusal.status, refusal.message)

    return grpc.unary_unary_rpc_method_handler(call)


def status_of(
    model: Model, name: str, number: int | None
) -> get_model_status_pb2.GetModelStatusResponse:
    """Return the states of one version, or of all versions, newest first.

    Raises:
      Refusal: the server does not have them.
    """
    response = get_model_status_pb2.GetModelStatusResponse()
    for version, state in sorted(model.states.items(), reverse=True):
        if name == model.name and number in (None, version):
            added = response.model_version_status.add(
                version=version, state=int(state)
            )
            added.status.error_code = 0
            if state == State.END:
                added.status.error_code = grpc.StatusCode.UNAVAILABLE.value[0]
                added.status.error_message = "See the server's log."
    if not response.model_version_status:
        model.find(name, number)  # raises
    return response


def _model_of(spec: Any) -> tuple[str, int | None]:
    """Return the name and the version of a ModelSpec."""
    if spec.version_label:
        raise invalid("version_label is not supported: give the version.")
    return spec.name, spec.version.value if spec.HasField("version") else None


def _texts_of(name: str, proto: Any) -> list[bytes]:
    """Return the strings of a TensorProto [B]."""
    sizes = [dim.size for dim in proto.tensor_shape.dim]
    count = len(proto.string_val)
    # A small proto may declare a huge shape: TensorFlow repeats its last value.
    if proto.dtype != types_pb2.DT_STRING or sizes != [count]:
        raise invalid(
            f"{name} must have dtype DT_STRING, shape [batch] and a string for "
            f"each element; got shape {sizes} with {count} strings."
        )
    return list(proto.string_val)


def _fill(proto: Any, array: np.ndarray) -> None:
    """Store an array in a TensorProto."""
    if array.dtype.char not in _FIELDS:
        proto.CopyFrom(tf.make_tensor_proto(array))
        return
    proto.dtype, field = _FIELDS[array.dtype.char]
    for size in array.shape:
        proto.tensor_shape.dim.add(size=size)
    getattr(proto, field).extend(array.ravel().tolist())
