"""Client of t2t-lite-server and TensorFlow Serving, by REST and gRPC."""

import dataclasses
import json
import re
import time
import urllib.parse
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import tenacity
import urllib3

from t2t_lite.decoding.results import Result, hypotheses_of
from t2t_lite.errors import T2TLiteError, UsageError

Columns: TypeAlias = Mapping[str, Sequence[Any]]  # outputs by name
# Arguments: signature, texts, timeout in seconds.
Predict: TypeAlias = Callable[[str, Sequence[str], float], Columns]
_URL = re.compile(r"(https?://[^/@?# ]+(/[^?# ]*)?|grpcs?://[^/@?# ]+/?)")
_PORTS = {"http": 8501, "https": 443, "grpc": 8500, "grpcs": 443}
# HTTP and gRPC statuses that permit a retry.
_BUSY = (429, 502, 503, "UNAVAILABLE", "RESOURCE_EXHAUSTED", "ABORTED")
# Statuses that a single text of the request may have caused.
_TEXT_ERRORS = (
    *(400, 413, 422, 500, 504, "INVALID_ARGUMENT", "OUT_OF_RANGE"),
    *("INTERNAL", "UNKNOWN", "DEADLINE_EXCEEDED"),
)


class Failure(T2TLiteError):
    """A request failed.

    The `status` is an HTTP status code or the name of a gRPC status.
    """

    def __init__(self, reason: str, status: int | str):
        super().__init__(" ".join(reason.split()))
        # gRPC has one status for a full queue and for too large messages.
        too_large = "larger than max" in reason
        self.is_busy = status in _BUSY and not too_large
        self.is_late = status == "DEADLINE_EXCEEDED"
        # One text may have caused the error; smaller requests may succeed.
        self.is_text_error = status in _TEXT_ERRORS or too_large


def connect(url: str, name: str, version: int | None = None) -> Predict:
    """Return a function that sends requests to a model.

    The URL is http://HOST:PORT, https://..., grpc://... or grpcs://...; without
    a version, the newest one answers.
    """
    try:
        split = urllib.parse.urlsplit(url)
        host, port = split.hostname or "", split.port
        host.encode("idna")
        is_valid = port != 0 and url.isascii() and _URL.fullmatch(url)
    except ValueError:
        is_valid = False
    if not is_valid:
        raise UsageError(
            "`server` must be http://HOST:PORT or grpc://HOST:PORT, or "
            f"https:// or grpcs:// with TLS (got {url!r})."
        )
    host = f"[{host}]" if ":" in host else host
    address = f"{host}:{port or _PORTS[split.scheme]}"
    if split.scheme.startswith("grpc"):
        return _grpc(address, split.scheme == "grpcs", name, version)
    path = f"{split.path.rstrip('/')}/v1/models/{urllib.parse.quote(name, '')}"
    if version is not None:
        path += f"/versions/{version}"
    return _rest(f"{split.scheme}://{address}{path}:predict")


def _rest(url: str) -> Predict:
    pool = urllib3.PoolManager(maxsize=64, retries=False)

    def predict(signature, texts, seconds):
        content = {"signature_name": signature, "inputs": {"inputs": [*texts]}}
        try:
            response = pool.request("POST", url, json=content, timeout=seconds)
        except urllib3.exceptions.ReadTimeoutError as error:
            reason = f"no answer within {seconds:.0f} seconds"
            raise Failure(reason, "DEADLINE_EXCEEDED") from error
        except urllib3.exceptions.SSLError as error:
            raise Failure(str(error), "UNAUTHENTICATED") from error
        except urllib3.exceptions.HTTPError as error:
            raise Failure(str(error), "UNAVAILABLE") from error
        try:
            body = json.loads(response.data)
        except ValueError:
            body = None
        body = body if isinstance(body, dict) else {}
        if response.status == 200 and isinstance(body.get("outputs"), dict):
            return body["outputs"]
        reason = f"the server returned status {response.status}"
        raise Failure(str(body.get("error", reason)), response.status)

    return predict


def _grpc(address: str, tls: bool, name: str, version: int | None) -> Predict:
    import grpc
    import tensorflow as tf
    from tensorflow_serving.apis import predict_pb2 as protos
    from tensorflow_serving.apis import prediction_service_pb2_grpc as services

    options = [("grpc.max_receive_message_length", -1)]
    channel = grpc.insecure_channel(address, options)
    if tls:
        credentials = grpc.ssl_channel_credentials()
        channel = grpc.secure_channel(address, credentials, options)
    stub = services.PredictionServiceStub(channel)

    def predict(signature, texts, seconds):
        request = protos.PredictRequest()
        request.model_spec.name = name
        request.model_spec.signature_name = signature
        if version is not None:
            request.model_spec.version.value = version
        tensor = tf.make_tensor_proto([text.encode() for text in texts])
        request.inputs["inputs"].CopyFrom(tensor)
        try:
            response = stub.Predict(request, timeout=seconds)
        except grpc.RpcError as error:
            status = error.code().name
            raise Failure(error.details() or status, status) from error
        return {k: tf.make_ndarray(v) for k, v in response.outputs.items()}

    return predict


@dataclasses.dataclass
class Client:
    """Translates texts. Retries while the server is busy or unreachable.

    After `seconds` without an answer, there are no retries until the server
    answers again, so that a large file does not wait for each line.
    """

    predict: Predict  # from `connect`
    signature: str = "serving_default"  # or "nbest"
    seconds: float = 60.0  # timeout of a request, retries included
    # Called once with the reason when the server is busy or unreachable.
    note: Callable[[str], None] = lambda reason: None

    def __post_init__(self) -> None:
        self._is_lost = False
        self._is_waiting = False
        self._retry = tenacity.Retrying(
            retry=tenacity.retry_if_exception(
                lambda x: (
                    isinstance(x, Failure) and x.is_busy and not self._is_lost
                )
            ),
            wait=tenacity.wait_random_exponential(multiplier=0.2, max=10),
            stop=tenacity.stop_before_delay(self.seconds),
            before_sleep=self._report,
            reraise=True,
        )

    def translate(self, texts: Sequence[str]) -> list[Result]:
        """Return a result for each text, without its line number.

        If a single text may have caused an error, the request is split in
        halves and sent again, so that the other texts are translated.
        """
        return self._translate(texts, self._is_lost)

    def _translate(self, texts: Sequence[str], was_lost: bool) -> list[Result]:
        deadline = time.monotonic() + self.seconds
        try:
            columns = self._retry(self._send, texts, deadline)
        except Failure as failure:
            self._is_lost |= failure.is_busy or failure.is_late
            can_split = failure.is_text_error and len(texts) > 1
            if not can_split or (failure.is_late and was_lost):
                return [Result(0, x, error=str(failure)) for x in texts]
            middle = len(texts) // 2
            first = self._translate(texts[:middle], was_lost)
            return first + self._translate(texts[middle:], was_lost)
        self._is_lost = self._is_waiting = False
        if len(columns.get("outputs", ())) != len(texts):
            names = ", ".join(sorted(columns)) or "none"
            error = f"outputs must have one value per text (got {names})."
            return [Result(0, text, error=error) for text in texts]
        truncated = columns.get("cut", [False] * len(texts))
        return [
            Result(0, x, hypotheses_of(columns, row), truncated=truncated[row])
            for row, x in enumerate(texts)
        ]

    def _send(self, texts: Sequence[str], deadline: float) -> Columns:
        seconds = max(deadline - time.monotonic(), 0.001)
        return self.predict(self.signature, texts, seconds)

    def _report(self, state: tenacity.RetryCallState) -> None:
        """Report the reason of the second and later retries, once."""
        if state.attempt_number > 1 and not self._is_waiting:
            self._is_waiting = True
            self.note(str(state.outcome and state.outcome.exception()))
