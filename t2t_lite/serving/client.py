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

from t2t_lite.errors import T2TLiteError, UsageError

Columns: TypeAlias = Mapping[str, Sequence[Any]]  # outputs by name
# Takes a signature, texts and the seconds that the answer may take.
Predict: TypeAlias = Callable[[str, Sequence[str], float], Columns]
_URL = re.compile(r"(https?://[^/@?# ]+(/[^?# ]*)?|grpcs?://[^/@?# ]+/?)")
_PORTS = {"http": 8501, "https": 443, "grpc": 8500, "grpcs": 443}
# A hypothesis with a lower score does not exist; see decoding.search.state.
_NO_HYPOTHESIS = -1e7
# HTTP and gRPC statuses after which a later request may succeed, and those
# that one of the texts may have caused.
_BUSY = (429, 502, 503, "UNAVAILABLE", "RESOURCE_EXHAUSTED", "ABORTED")
_OF_A_TEXT = (
    *(400, 413, 422, 500, 504, "INVALID_ARGUMENT", "OUT_OF_RANGE"),
    *("INTERNAL", "UNKNOWN", "DEADLINE_EXCEEDED"),
)


class Failure(T2TLiteError):
    """A request without an answer.

    Args:
      reason: one line.
      status: of HTTP, or the name of a status of gRPC.
    """

    def __init__(self, reason: str, status: int | str):
        super().__init__(" ".join(reason.split()))
        # gRPC has one status for a full queue and for too large messages.
        too_large = "larger than max" in reason
        self.is_busy = status in _BUSY and not too_large
        self.is_late = status == "DEADLINE_EXCEEDED"
        # Whether the other texts of the request are worth another one.
        self.is_of_a_text = status in _OF_A_TEXT or too_large


def connect(url: str, name: str, version: int | None = None) -> Predict:
    """Return a function that sends requests to a model.

    Args:
      url: http://HOST:PORT, https://..., grpc://... or grpcs://...
      name: of the model.
      version: of the model; None is the newest.

    Raises:
      UsageError: the URL is malformed.
    """
    try:
        parts = urllib.parse.urlsplit(url)
        host, port = parts.hostname or "", parts.port
        host.encode("idna")
        is_valid = port != 0 and url.isascii() and _URL.fullmatch(url)
    except ValueError:
        is_valid = False
    if not is_valid:
        raise UsageError(
            "`server` must be http://HOST:PORT or grpc://HOST:PORT, or "
            f"https:// or grpcs:// with TLS; got {url!r}."
        )
    host = f"[{host}]" if ":" in host else host
    address = f"{host}:{port or _PORTS[parts.scheme]}"
    if parts.scheme.startswith("grpc"):
        return _grpc(address, parts.scheme == "grpcs", name, version)
    path = f"{parts.path.rstrip('/')}/v1/models/{urllib.parse.quote(name, '')}"
    if version is not None:
        path += f"/versions/{version}"
    return _rest(f"{parts.scheme}://{address}{path}:predict")


def _rest(url: str) -> Predict:
    pool = urllib3.PoolManager(maxsize=64, retries=False)

    def predict(
        signature: str, texts: Sequence[str], seconds: float
    ) -> Columns:
        body = {"signature_name": signature, "inputs": {"inputs": [*texts]}}
        try:
            response = pool.request("POST", url, json=body, timeout=seconds)
        except urllib3.exceptions.ReadTimeoutError as error:
            reason = f"no answer within {seconds:.0f} seconds"
            raise Failure(reason, "DEADLINE_EXCEEDED") from error
        except urllib3.exceptions.SSLError as error:
            raise Failure(str(error), "UNAUTHENTICATED") from error
        except urllib3.exceptions.HTTPError as error:
            raise Failure(str(error), "UNAVAILABLE") from error
        try:
            found = json.loads(response.data)
        except ValueError:
            found = None
        found = found if isinstance(found, dict) else {}
        if response.status == 200 and isinstance(found.get("outputs"), dict):
            return found["outputs"]
        reason = f"the server answered {response.status}"
        raise Failure(str(found.get("error", reason)), response.status)

    return predict


def _grpc(
    address: str, secure: bool, name: str, version: int | None
) -> Predict:
    import grpc
    import tensorflow as tf
    from tensorflow_serving.apis import predict_pb2 as protos
    from tensorflow_serving.apis import prediction_service_pb2_grpc as services

    options = [("grpc.max_receive_message_length", -1)]
    credentials = grpc.ssl_channel_credentials()
    channel = grpc.insecure_channel(address, options)
    if secure:
        channel = grpc.secure_channel(address, credentials, options)
    stub = services.PredictionServiceStub(channel)

    def predict(
        signature: str, texts: Sequence[str], seconds: float
    ) -> Columns:
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
        arrays = {k: tf.make_ndarray(v) for k, v in response.outputs.items()}
        return {name: _decode(array.tolist()) for name, array in arrays.items()}

    return predict


def _decode(value: Any) -> Any:
    if isinstance(value, list):
        return [_decode(each) for each in value]
    return value.decode(errors="replace") if isinstance(value, bytes) else value


@dataclasses.dataclass(frozen=True)
class Answer:
    """The answer to one text."""

    # Translations and their scores, best first.
    hypotheses: Sequence[tuple[str, float | None]] = ()
    cut: bool = False  # whether the end of the text was truncated
    error: str | None = None  # why there is no answer


class Client:
    """Translates texts. Repeats a request while the server is busy or away.

    After `seconds` without an answer, each request is sent only once until the
    server answers again: a file of a million lines must not wait for each line.

    Args:
      predict: from `connect`.
      signature: "serving_default" or "nbest".
      seconds: time limit of a request with its repetitions.
      note: called with the reason once when the server is busy or away.
    """

    def __init__(
        self,
        predict: Predict,
        signature: str = "serving_default",
        seconds: float = 60.0,
        note: Callable[[str], None] = lambda reason: None,
    ):
        self._predict = predict
        self._signature = signature
        self._seconds = seconds
        self._note = note
        self._is_lost = False
        self._is_waiting = False
        self._retry = tenacity.Retrying(
            retry=tenacity.retry_if_exception(self._is_worth_a_retry),
            wait=tenacity.wait_random_exponential(multiplier=0.2, max=10),
            stop=tenacity.stop_before_delay(seconds),
            before_sleep=self._report,
            reraise=True,
        )

    def translate(self, texts: Sequence[str]) -> list[Answer]:
        """Return an answer for each text.

        If a request fails because of one of its texts, each half is sent
        again, so that the other texts have an answer.
        """
        return self._translate(texts, self._is_lost)

    def _translate(self, texts: Sequence[str], was_lost: bool) -> list[Answer]:
        deadline = time.monotonic() + self._seconds
        try:
            columns = self._retry(self._send, texts, deadline)
        except Failure as failure:
            self._is_lost |= failure.is_busy or failure.is_late
            can_split = failure.is_of_a_text and len(texts) > 1
            if not can_split or (failure.is_late and was_lost):
                return [Answer(error=str(failure))] * len(texts)
            half = len(texts) // 2
            parts = texts[:half], texts[half:]
            return [
                x for part in parts for x in self._translate(part, was_lost)
            ]
        self._is_lost = self._is_waiting = False
        if len(columns.get("outputs", ())) != len(texts):
            names = ", ".join(sorted(columns)) or "none"
            error = f"There must be an output for each text; got {names}."
            return [Answer(error=error)] * len(texts)
        return [_answer(columns, row) for row in range(len(texts))]

    def _send(self, texts: Sequence[str], deadline: float) -> Columns:
        seconds = max(deadline - time.monotonic(), 0.001)
        return self._predict(self._signature, texts, seconds)

    def _is_worth_a_retry(self, error: BaseException) -> bool:
        is_busy = isinstance(error, Failure) and error.is_busy
        return is_busy and not self._is_lost

    def _report(self, state: tenacity.RetryCallState) -> None:
        """Note the reason, unless the first short wait is enough."""
        if state.attempt_number > 1 and not self._is_waiting:
            self._is_waiting = True
            self._note(str(state.outcome and state.outcome.exception()))


def _answer(columns: Columns, row: int) -> Answer:
    texts = columns["outputs"][row]
    scores = columns["scores"][row] if "scores" in columns else None
    if isinstance(texts, str):
        texts, scores = [texts], [scores]
    pairs = list(zip(texts, scores or [None] * len(texts), strict=True))
    real = [pair for pair in pairs[1:] if (pair[1] or 0) > _NO_HYPOTHESIS]
    cut = "cut" in columns and bool(columns["cut"][row])
    return Answer(pairs[:1] + real, cut)
