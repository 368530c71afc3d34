"""TensorFlow Serving's REST API, the page and the metrics.

https://www.tensorflow.org/tfx/serving/api_rest says what it looks like.
"""

import asyncio
import json
import logging
import re
import urllib.parse
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web

from t2t_lite.errors import in_words
from t2t_lite.progress import say
from t2t_lite.serving.page import files
from t2t_lite.serving.server import descriptions, json_tensors
from t2t_lite.serving.server.batching import Tensors
from t2t_lite.serving.server.models import LARGEST_VERSION
from t2t_lite.serving.server.monitoring import CONTENT_TYPE, Monitor, Record
from t2t_lite.serving.server.predict import ModelSpec, Predictor
from t2t_lite.serving.server.refusal import Refusal, Status, invalid
from t2t_lite.serving.server.signature import Signature

_PREFIX = r"(?i)/v1/models/([^/:]+)(?:/versions/(\d+)|/labels/([^/:]+))?"
_CALL = re.compile(rf"{_PREFIX}:(classify|regress|predict)")
_GET = re.compile(rf"{_PREFIX}(/metadata)?")
_LONG = 100  # digits, zeros included, of a version's number
_NOT_FOR_PAGES = (
    "This request comes from the web page of another site, which may not use "
    "this server."
)

_RECORD = web.RequestKey("record", Record)


class RestApi:
    """The handlers of a server.

    Args:
      predictor: answers.
      monitor: counts.
    """

    def __init__(self, predictor: Predictor, monitor: Monitor):
        self._predictor = predictor
        self._monitor = monitor

    def application(self) -> web.Application:
        """What aiohttp runs."""
        app = web.Application(
            middlewares=[self._watch],
            client_max_size=self._predictor.limits.body_bytes,
        )
        app.router.add_get("/", self._page)
        app.router.add_get("/page/{name}", self._page)
        app.router.add_get("/models", self._models)
        app.router.add_get("/monitoring/prometheus/metrics", self._metrics)
        app.router.add_route("*", "/{v1:[vV]1}/{path:.*}", self._serve)
        return app

    @web.middleware
    async def _watch(
        self,
        request: web.Request,
        handler: Callable[[web.Request], Awaitable[web.StreamResponse]],
    ) -> web.StreamResponse:
        """Counts a request and says in JSON what is wrong with it."""
        what = f"{request.method} {_path(request)}"
        record = Record("REST", request.remote or "", what)
        request[_RECORD] = record
        with self._monitor.watch(record, "200"):
            record.code = "500"
            try:
                response = await handler(request)
            except asyncio.CancelledError:
                record.code = str(Status.CANCELLED.http)
                raise
            except Refusal as refusal:
                response = _error(refusal.status.http, refusal.message)
            except web.HTTPRequestEntityTooLarge:
                most = self._predictor.limits.body_bytes
                response = _error(413, f"A body may have {most} bytes.")
            except web.RequestPayloadError:
                response = _error(400, "The body is not in its encoding.")
            except web.HTTPException as error:
                response = _error(error.status, f"{error.reason}: {what}")
                response.headers.update(error.headers)
                response.content_type = "application/json"
            except Exception as error:  # a mistake of ours
                say(f"{what}: {in_words(error)}")
                response = _error(500, "Internal error.")
            record.code = str(response.status)
            return response

    async def _serve(self, http: web.Request) -> web.Response:
        if http.method == "POST":
            return await self._call(http)
        if http.method in ("GET", "HEAD"):
            return await self._describe(http)
        raise _malformed(http)

    async def _call(self, http: web.Request) -> web.Response:
        if http.headers.get("Sec-Fetch-Site") in ("cross-site", "same-site"):
            raise Refusal(Status.PERMISSION_DENIED, _NOT_FOR_PAGES)
        found = _CALL.fullmatch(_path(http))
        if not found:
            raise _malformed(http)
        if found[4].lower() != "predict":
            raise Refusal(Status.UNIMPLEMENTED, f"{found[4]} is not served.")
        spec = _spec(found)
        self._predictor.version(spec)  # before anything of the body is read
        body = json_tensors.parse(await self._body(http))
        in_rows = "instances" in body

        def read(signature: Signature) -> Tensors:
            return json_tensors.tensors_of(body, signature.inputs)

        outputs = await self._predictor.predict(
            spec, body.get("signature_name", ""), read, http[_RECORD]
        )
        return _answer(json_tensors.json_of(outputs, in_rows))

    async def _body(self, http: web.Request) -> bytes:
        try:
            async with asyncio.timeout(self._predictor.limits.seconds):
                return await http.read()
        except TimeoutError:
            why = "The deadline passed before the body was there."
            raise Refusal(Status.DEADLINE_EXCEEDED, why) from None

    async def _describe(self, http: web.Request) -> web.Response:
        if _path(http).lower().rstrip("/") == "/v1/models":
            raise invalid("Missing model name in request.")
        found = _GET.fullmatch(_path(http))
        if not found:
            raise _malformed(http)
        spec = _spec(found)
        models = self._predictor.models
        if found[4]:
            told = descriptions.metadata_json(
                self._predictor.version(spec), spec
            )
        else:
            told = descriptions.status_json(models.by_name.get(spec.name), spec)
        http[_RECORD].model = spec.name
        return _answer(json.dumps(told, indent=1).encode())

    async def _models(self, http: web.Request) -> web.Response:
        told = descriptions.models_json(self._predictor.models)
        return _answer(json.dumps(told, ensure_ascii=False).encode())

    async def _metrics(self, http: web.Request) -> web.Response:
        headers = {"Content-Type": CONTENT_TYPE}
        return web.Response(body=self._monitor.metrics(), headers=headers)

    async def _page(self, http: web.Request) -> web.Response:
        found = files.page_file(http.match_info.get("name", files.INDEX))
        if found is None:
            raise web.HTTPNotFound
        body, content_type = found
        headers = {
            "Content-Type": content_type,
            "Content-Security-Policy": files.CONTENT_SECURITY_POLICY,
            "X-Content-Type-Options": "nosniff",
            "Referrer-Policy": "no-referrer",
            "Cache-Control": "no-cache",
        }
        return web.Response(body=body, headers=headers)


class OneLine(logging.Filter):
    """Says what aiohttp logs in one line, and not what it is about.

    That is a piece of a request that is no HTTP: maybe of a text.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        if isinstance(error, web.RequestPayloadError):
            return False  # it has been answered
        why = f": {type(error).__name__}" if error else ""
        say(f"{record.getMessage()}{why}.")
        return False


def _path(http: web.Request) -> str:
    return http.raw_path.partition("?")[0]


def _spec(found: re.Match[str]) -> ModelSpec:
    name, number, label = found[1], found[2], found[3]
    # Python refuses to read numbers of thousands of digits.
    if number is not None and (
        len(number) > _LONG or int(number) > LARGEST_VERSION
    ):
        raise invalid(f"Failed to convert version: {number} to numeric.")
    return ModelSpec(
        urllib.parse.unquote(name),
        None if number is None else int(number),
        urllib.parse.unquote(label or ""),
    )


def _malformed(http: web.Request) -> Refusal:
    return invalid(f"Malformed request: {http.method} {_path(http)}")


def _answer(body: bytes) -> web.Response:
    return web.Response(body=body, content_type="application/json")


def _error(code: int, message: str) -> web.Response:
    body: Any = {"error": message}
    return web.json_response(body, status=code)
