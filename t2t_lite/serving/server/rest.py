"""TensorFlow Serving's REST API, the web page and the metrics.

https://www.tensorflow.org/tfx/serving/api_rest documents the API.
"""

import asyncio
import base64
import json
import urllib.parse
from collections.abc import Awaitable, Callable
from typing import Any

import grpc
import numpy as np
import prometheus_client
from aiohttp import web
from google.protobuf import json_format

from t2t_lite.serving.page import files
from t2t_lite.serving.server.grpc_service import status_of
from t2t_lite.serving.server.predict import Predictor
from t2t_lite.serving.server.refusal import Refusal, invalid, recorded

_PATH = r"/v1/models/{name:[^/:]+}{version:(/versions/\d{1,19})?}"
_HTTP_STATUS = {
    grpc.StatusCode.INVALID_ARGUMENT: 400,
    grpc.StatusCode.FAILED_PRECONDITION: 400,
    grpc.StatusCode.PERMISSION_DENIED: 403,
    grpc.StatusCode.NOT_FOUND: 404,
    grpc.StatusCode.UNIMPLEMENTED: 405,
    grpc.StatusCode.OUT_OF_RANGE: 413,
    grpc.StatusCode.RESOURCE_EXHAUSTED: 503,
    grpc.StatusCode.DEADLINE_EXCEEDED: 504,
}  # others: 500
_STATUS_OF = {code: status for status, code in _HTTP_STATUS.items()}


def application(predictor: Predictor) -> web.Application:
    """Return the aiohttp application that answers REST requests."""
    model = predictor.model
    limits = predictor.limits

    async def predict(http: web.Request) -> web.Response:
        if http.headers.get("Sec-Fetch-Site") in ("cross-site", "same-site"):
            raise Refusal(
                grpc.StatusCode.PERMISSION_DENIED,
                "Web pages of other sites may not use this server.",
            )
        version = model.find(*_model_of(http))
        try:
            async with asyncio.timeout(limits.seconds):
                request = _parse(await http.read())
        except TimeoutError:
            raise Refusal(
                grpc.StatusCode.DEADLINE_EXCEEDED,
                "The deadline passed before the body was received.",
            ) from None
        outputs = await predictor.predict(
            version, request.get("signature_name", ""), _inputs_of(request)
        )
        if "inputs" in request:
            return _json({"outputs": _only_value(outputs)})
        rows = zip(*outputs.values(), strict=True)
        named = [dict(zip(outputs, row, strict=True)) for row in rows]
        return _json({"predictions": [_only_value(row) for row in named]})

    async def status(http: web.Request) -> web.Response:
        return _json(_proto_json(status_of(model, *_model_of(http))))

    async def metadata(http: web.Request) -> web.Response:
        version = model.find(*_model_of(http))
        spec = {"name": model.name, "version": str(version.number)}
        signatures = {"signature_def": _proto_json(version.metadata)}
        return _json({"model_spec": spec, "metadata": signatures})

    async def describe(http: web.Request) -> web.Response:
        version = model.find(model.name)
        about = {"version": version.number, "about": version.about}
        return _json({"name": model.name, **about})

    async def prometheus(http: web.Request) -> web.Response:
        headers = {"Content-Type": prometheus_client.CONTENT_TYPE_LATEST}
        text = prometheus_client.generate_latest()
        return web.Response(body=text, headers=headers)

    async def page(http: web.Request) -> web.Response:
        found = files.page_file(http.match_info.get("name", files.INDEX))
        if found is None:
            raise web.HTTPNotFound
        return web.Response(body=found[0], headers=found[1])

    app = web.Application(
        middlewares=[_answer], client_max_size=limits.body_bytes
    )
    app.router.add_get("/", page)
    app.router.add_get("/page/{name}", page)
    app.router.add_get("/model", describe)  # for the page
    app.router.add_get("/monitoring/prometheus/metrics", prometheus)
    app.router.add_get(_PATH, status)
    app.router.add_get(f"{_PATH}/metadata", metadata)
    app.router.add_post(f"{_PATH}:predict", predict)
    return app


@web.middleware
async def _answer(
    request: web.Request,
    handler: Callable[[web.Request], Awaitable[web.StreamResponse]],
) -> web.StreamResponse:
    """Count a request and convert errors to JSON."""
    try:
        with recorded("REST"):
            try:
                return await handler(request)
            except web.RequestPayloadError:
                raise invalid("The body has an invalid encoding.") from None
            except web.HTTPException as error:
                raise Refusal(_STATUS_OF[error.status], error.reason) from None
    except Refusal as refusal:
        status = _HTTP_STATUS.get(refusal.status, 500)
        return web.json_response({"error": refusal.message}, status=status)


def _model_of(http: web.Request) -> tuple[str, int | None]:
    """Return the name and the version in a path."""
    name = urllib.parse.unquote(http.match_info["name"])
    version = http.match_info["version"].rpartition("/")[2]
    return name, int(version) if version else None


def _json(content: Any) -> web.Response:
    text = json.dumps(content, ensure_ascii=False, default=_plain)
    return web.Response(body=text.encode(), content_type="application/json")


def _proto_json(message: Any) -> Any:
    return json_format.MessageToDict(
        message,
        preserving_proto_field_name=True,
        always_print_fields_with_no_presence=True,
    )


def _parse(body: bytes) -> dict[str, Any]:
    """Return the JSON object of a request; {"b64": ...} become bytes."""
    try:
        request = json.loads(body, object_hook=_decode_base64)
    except (ValueError, RecursionError) as error:
        raise invalid(f"The body is not valid JSON: {error}") from error
    if not isinstance(request, dict):
        raise invalid("The body must be a JSON object.")
    if ("instances" in request) == ("inputs" in request):
        raise invalid('The body must have either "instances" or "inputs".')
    if not isinstance(request.get("signature_name", ""), str):
        raise invalid('"signature_name" must be a string.')
    return request


def _decode_base64(found: dict[str, Any]) -> Any:
    if found.keys() == {"b64"} and isinstance(found["b64"], str):
        return base64.b64decode(found["b64"], validate=True)
    return found


def _inputs_of(request: dict[str, Any]) -> dict[str, Any]:
    """Return the columns of a request by name; "" is the only input."""
    if "inputs" in request:
        columns = request["inputs"]
        return columns if isinstance(columns, dict) else {"": columns}
    rows = request["instances"]
    if not isinstance(rows, list) or not rows:
        raise invalid('"instances" must be a list that is not empty.')
    if not all(isinstance(row, dict) for row in rows):
        return {"": rows}
    if any(row.keys() != rows[0].keys() for row in rows):
        raise invalid('All "instances" must have the same keys.')
    return {name: [row[name] for row in rows] for name in rows[0]}


def _only_value(values: dict[str, Any]) -> Any:
    return next(iter(values.values())) if len(values) == 1 else values


def _plain(value: Any) -> Any:
    """Convert arrays, their elements and bytes for `json.dumps`."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if value.dtype == np.float32:
        value = value.astype(str).astype(float)  # the shortest decimals
    return value.tolist()
