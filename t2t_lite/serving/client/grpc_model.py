"""TensorFlow Serving's gRPC API; it needs grpcio, which t2t-lite[serve] has."""

from collections.abc import Sequence
from typing import Any

from t2t_lite.errors import T2TLiteError
from t2t_lite.serving.client import messages
from t2t_lite.serving.client.address import Address
from t2t_lite.serving.client.columns import Columns
from t2t_lite.serving.client.patience import Busy, Late, Refused

_BUSY = ("UNAVAILABLE", "RESOURCE_EXHAUSTED", "ABORTED")
_FOR_A_TEXT = (
    "INVALID_ARGUMENT",
    "OUT_OF_RANGE",
    "INTERNAL",
    "UNKNOWN",
)
# What gRPC says of a message beyond the server's limit, for which it has the
# status of a full queue.
_TOO_LARGE = "larger than max"
_LEAST_SECONDS = 0.001
# Answers are as large as they are: the server has its limits.
_OPTIONS = [
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
]


class GrpcModel:
    """A model behind gRPC.

    Args:
      address: of the server.
      name: of the model.
      version: of it; None takes the newest.

    Raises:
      T2TLiteError: grpcio is not installed.
    """

    def __init__(self, address: Address, name: str, version: int | None):
        try:
            import grpc
        except ImportError as error:
            raise T2TLiteError(
                "grpc:// needs grpcio, which is not installed: pip install "
                "'t2t-lite[serve]', or ask over http://."
            ) from error
        self._name = name
        self._version = version
        self._error: Any = grpc.RpcError
        where = address.netloc
        channel = (
            grpc.secure_channel(where, grpc.ssl_channel_credentials(), _OPTIONS)
            if address.secure
            else grpc.insecure_channel(where, _OPTIONS)
        )
        # Bytes in, bytes out: the messages are ours.
        self._predict = channel.unary_unary(messages.METHOD)

    def predict(
        self, signature: str, texts: Sequence[str], seconds: float
    ) -> Columns:
        asked = messages.request(self._name, self._version, signature, texts)
        try:
            content = self._predict(asked, timeout=max(seconds, _LEAST_SECONDS))
        except self._error as error:
            status = error.code().name
            told = " ".join((error.details() or status).split())
            if status == "DEADLINE_EXCEEDED":
                raise Late(told) from error
            too_large = status == "RESOURCE_EXHAUSTED" and _TOO_LARGE in told
            if status in _BUSY and not too_large:
                raise Busy(told) from error
            for_a_text = too_large or status in _FOR_A_TEXT
            raise Refused(told, for_a_text) from error
        return messages.response(content)
