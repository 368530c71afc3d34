"""TensorFlow Serving's REST and gRPC APIs, and the web page.

https://www.tensorflow.org/tfx/serving/api_rest documents the REST API.
"""

import asyncio
import base64
import json
import math
import urllib.parse
from collections.abc import Awaitable, Callable
from typing import Any

import grpc
import grpc.aio
import numpy as np
import prometheus_client
import tensorflow as tf
from aiohttp import web
from google.protobuf import json_format
from google.protobuf.message import DecodeError
from grpc_health.v1 import health, health_pb2_grpc
from tensorflow_serving.apis import get_model_metadata_pb2 as metadata_pb2
from tensorflow_serving.apis import get_model_status_pb2 as status_pb2
from tensorflow_serving.apis import predict_pb2

from t2t_lite.serving import page
from t2t_lite.serving.server.model import Model
from t2t_lite.serving.server.requests import ApiError, record_request

# Larger arrays of float32, attention weights, are rounded, which is faster.
_MAX_EXACT = 4096
_PATH = r"/v1/models/{name:[^/:]+}{version:(/versions/\d{1,19})?}"
_HTTP_STATUS = {
    "INVALID_ARGUMENT": 400,
    "FAILED_PRECONDITION": 400,
    "PERMISSION_DENIED": 403,
    "NOT_FOUND": 404,
    "UNIMPLEMENTED": 405,
    "OUT_OF_RANGE": 413,
    "RESOURCE_EXHAUSTED": 503,
    "DEADLINE_EXCEEDED": 504,
}  # others: 500
_STATUS_OF = {code: status for status, code in _HTTP_STATUS.items()}
# The stock server fills the field of a type, which many clients read;
# `tf.make_tensor_proto` fills `tensor_content`. It also takes 20 us per output
# on a CPU, a sixth of the CPU time of a request with one short text.
_FIELDS = {  # by the `char` of a numpy dtype
    "O": (tf.string, "string_val"),
    "f": (tf.float32, "float_val"),
    "i": (tf.int32, "int_val"),
    "?": (tf.bool, "bool_val"),
}


def rest_application(model: Model) -> web.Application:
    """Create the aiohttp application of the REST API."""
    name = model.options.model_name

    async def predict(http: web.Request) -> web.Response:
        if http.headers.get("Sec-Fetch-Site") in ("cross-site", "same-site"):
            reason = "Requests from web pages of other sites are not allowed."
            raise ApiError(reason, "PERMISSION_DENIED")
        version = model.find(*_model_in_path(http))
        request = _parse(await http.read())
        outputs = await model.predict(
            version, str(request.get("signature_name", "")), _inputs_of(request)
        )
        if "inputs" in request:
            return _json({"outputs": _only_value(outputs)})
        rows = zip(*outputs.values(), strict=True)
        predictions = [dict(zip(outputs, row, strict=True)) for row in rows]
        return _json({"predictions": [_only_value(x) for x in predictions]})

    async def status(http: web.Request) -> web.Response:
        return _json(_proto_json(model.status(*_model_in_path(http))))

    async def metadata(http: web.Request) -> web.Response:
        version = model.find(*_model_in_path(http))
        spec = {"name": name, "version": str(version.number)}
        signatures = {"signature_def": _proto_json(version.metadata)}
        return _json({"model_spec": spec, "metadata": signatures})

    async def describe(http: web.Request) -> web.Response:
        version = model.find(name)
        about = {"version": version.number, "about": version.about}
        return _json({"name": name, **about})

    async def prometheus(http: web.Request) -> web.Response:
        headers = {"Content-Type": prometheus_client.CONTENT_TYPE_LATEST}
        text = prometheus_client.generate_latest()
        return web.Response(body=text, headers=headers)

    async def index(http: web.Request) -> web.StreamResponse:
        return web.FileResponse(page.FOLDER / "index.html")

    async def add_headers(http: web.Request, to: web.StreamResponse) -> None:
        to.headers.update(page.HEADERS)

    @web.middleware
    async def handle_errors(
        request: web.Request,
        handler: Callable[[web.Request], Awaitable[web.StreamResponse]],
    ) -> web.StreamResponse:
        try:
            with record_request("REST"):
                try:
                    async with asyncio.timeout(model.seconds):
                        return await handler(request)
                except TimeoutError:
                    reason = "The deadline has passed."
                    raise ApiError(reason, "DEADLINE_EXCEEDED") from None
                except web.RequestPayloadError:
                    raise ApiError("The body has a wrong encoding.") from None
                except web.HTTPException as error:
                    status = _STATUS_OF[error.status]
                    raise ApiError(error.reason, status) from None
        except ApiError as error:
            code = _HTTP_STATUS.get(error.status.name, 500)
            return web.json_response({"error": error.message}, status=code)

    limit = model.options.max_body_bytes
    app = web.Application(middlewares=[handle_errors], client_max_size=limit)
    app.on_response_prepare.append(add_headers)
    app.router.add_get("/", index)
    app.router.add_static("/page", page.FOLDER)
    app.router.add_get("/model", describe)  # for the page
    app.router.add_get("/monitoring/prometheus/metrics", prometheus)
    app.router.add_get(_PATH, status)
    app.router.add_get(f"{_PATH}/metadata", metadata)
    app.router.add_post(f"{_PATH}:predict", predict)
    return app


def _model_in_path(http: web.Request) -> tuple[str, int | None]:
    name = urllib.parse.unquote(http.match_info["name"])
    version = http.match_info["version"].rpartition("/")[2]
    return name, int(version) if version else None


def _parse(body: bytes) -> dict[str, Any]:
    """Parse the JSON object of a request; {"b64": ...} values become bytes."""

    def decode_base64(value: dict[str, Any]) -> Any:
        if value.keys() == {"b64"} and isinstance(value["b64"], str):
            # Like TensorFlow Serving: any white space, padding or none.
            text = b"".join(value["b64"].encode("ascii").split())
            padding = b"" if b"=" in text else b"=" * (-len(text) % 4)
            return base64.b64decode(text + padding, validate=True)
        return value

    try:
        request = json.loads(body, object_hook=decode_base64)
    except (ValueError, RecursionError) as error:
        raise ApiError(f"The body is not valid JSON: {error}") from error
    if not isinstance(request, dict):
        raise ApiError("The body must be a JSON object.")
    if ("instances" in request) == ("inputs" in request):
        raise ApiError('The body must contain either "instances" or "inputs".')
    return request


def _inputs_of(request: dict[str, Any]) -> dict[str, Any]:
    """Return the columns of a request by input name, "" if it has no name."""
    if "inputs" in request:
        columns = request["inputs"]
        return columns if isinstance(columns, dict) else {"": columns}
    rows = request["instances"]
    if not isinstance(rows, list) or not rows:
        raise ApiError('"instances" must be a non-empty list.')
    if not all(isinstance(row, dict) for row in rows):
        return {"": rows}
    if any(row.keys() != rows[0].keys() for row in rows):
        raise ApiError('All "instances" must have the same keys.')
    return {name: [row[name] for row in rows] for name in rows[0]}


def _only_value(values: dict[str, Any]) -> Any:
    return next(iter(values.values())) if len(values) == 1 else values


def _proto_json(message: Any) -> Any:
    return json_format.MessageToDict(
        message,
        preserving_proto_field_name=True,
        always_print_fields_with_no_presence=True,
    )


def _json(content: Any) -> web.Response:
    text = json.dumps(content, ensure_ascii=False, default=_plain)
    return web.Response(body=text.encode(), content_type="application/json")


def _plain(value: Any) -> Any:
    """Convert arrays, their elements and bytes for `json.dumps`."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if value.dtype == np.float32 and value.size > _MAX_EXACT:
        value = value.astype(float).round(6)
    elif value.dtype == np.float32:
        value = value.astype(str).astype(float)  # shortest decimal form
    return value.tolist()


def grpc_server(model: Model) -> tuple[Any, health.aio.HealthServicer]:
    """Create the `grpc.aio.Server` of a model, and its health service."""

    async def predict(request: Any, context: Any) -> Any:
        spec = request.model_spec
        version = model.find(*_model_in_spec(spec))
        seconds = context.time_remaining()
        outputs = await model.predict(
            version,
            spec.signature_name,
            {name: _texts_of(name, x) for name, x in request.inputs.items()},
            math.inf if seconds is None else seconds,
        )
        response = predict_pb2.PredictResponse(model_spec=spec)
        response.model_spec.version.value = version.number
        for name in request.output_filter or outputs:
            if name not in outputs:
                known = ", ".join(outputs)
                raise ApiError(f"output_filter must be from {known}.")
            _fill(response.outputs[name], outputs[name])
        return response

    async def metadata(request: Any, context: Any) -> Any:
        version = model.find(*_model_in_spec(request.model_spec))
        response = metadata_pb2.GetModelMetadataResponse()
        response.model_spec.name = model.options.model_name
        response.model_spec.version.value = version.number
        response.metadata["signature_def"].Pack(version.metadata)
        return response

    async def status(request: Any, context: Any) -> Any:
        return model.status(*_model_in_spec(request.model_spec))

    server = grpc.aio.server(
        options=[
            ("grpc.max_receive_message_length", model.options.max_body_bytes),
            ("grpc.max_send_message_length", -1),
            ("grpc.so_reuseport", 0),  # a port in use raises an error
            ("grpc.http2.bdp_probe", 0),  # avoids a ping per large request
        ]
    )
    metadata_request = metadata_pb2.GetModelMetadataRequest
    status_request = status_pb2.GetModelStatusRequest
    for service, name, proto, method in (
        ("Prediction", "Predict", predict_pb2.PredictRequest, predict),
        ("Prediction", "GetModelMetadata", metadata_request, metadata),
        ("Model", "GetModelStatus", status_request, status),
    ):
        handler = grpc.method_handlers_generic_handler(
            f"tensorflow.serving.{service}Service",
            {name: _handler(proto, method)},
        )
        server.add_generic_rpc_handlers([handler])
    servicer = health.aio.HealthServicer()
    health_pb2_grpc.add_HealthServicer_to_server(servicer, server)
    return server, servicer


def _handler(proto: Any, method: Callable[[Any, Any], Awaitable[Any]]) -> Any:
    async def call(content: bytes, context: Any) -> bytes:
        try:
            with record_request("gRPC"):
                try:
                    request = proto.FromString(content)
                except DecodeError:
                    name = proto.DESCRIPTOR.name
                    raise ApiError(f"The body is not a valid {name}.") from None
                return (await method(request, context)).SerializeToString()
        except ApiError as error:
            return await context.abort(error.status, error.message)

    return grpc.unary_unary_rpc_method_handler(call)


def _model_in_spec(spec: Any) -> tuple[str, int | None]:
    if spec.version_label:
        raise ApiError("version_label is not supported: use version.")
    return spec.name, spec.version.value if spec.HasField("version") else None


def _texts_of(name: str, proto: Any) -> list[bytes]:
    sizes = [dim.size for dim in proto.tensor_shape.dim]
    count = len(proto.string_val)
    # Checked because a small proto may declare a huge shape, and TensorFlow
    # would repeat its last value.
    if proto.dtype != tf.string.as_datatype_enum or sizes != [count]:
        raise ApiError(
            f"{name} must have dtype DT_STRING, shape [batch] and one string "
            f"per element (got shape {sizes} with {count} strings)."
        )
    return list(proto.string_val)


def _fill(proto: Any, array: np.ndarray) -> None:
    if array.dtype.char not in _FIELDS:
        proto.CopyFrom(tf.make_tensor_proto(array))
        return
    dtype, field = _FIELDS[array.dtype.char]
    proto.dtype = dtype.as_datatype_enum
    for size in array.shape:
        proto.tensor_shape.dim.add(size=size)
    getattr(proto, field).extend(array.ravel().tolist())
