"""The error that a client receives, and the record of a request."""

import asyncio
import contextlib
from collections.abc import Iterator

import grpc

from t2t_lite.errors import in_words
from t2t_lite.progress import say
from t2t_lite.serving.server import metrics


class Refusal(Exception):
    """A request that the server rejects.

    Args:
      status: the kind of error; `rest` translates it to an HTTP status.
      message: states the rule, the value and the fix.
    """

    def __init__(self, status: grpc.StatusCode, message: str):
        super().__init__(message)
        self.status = status
        # One line that fits into a header of HTTP/2.
        self.message = " ".join(message.split())[:1000]


def invalid(message: str) -> Refusal:
    """Return the refusal of a malformed request."""
    return Refusal(grpc.StatusCode.INVALID_ARGUMENT, message)


@contextlib.contextmanager
def recorded(api: str) -> Iterator[None]:
    """Count a request and measure its latency; log errors of the server.

    Args:
      api: "REST" or "gRPC".

    Raises:
      Refusal: any error that the block raises.
    """
    code = "OK"
    try:
        with metrics.LATENCY.labels(api).time():
            yield
    except asyncio.CancelledError:  # the client has disconnected
        code = "CANCELLED"
        raise
    except Refusal as refusal:
        code = refusal.status.name
        raise
    except Exception as error:
        code = "INTERNAL"
        say(f"{api} request: {in_words(error)}")
        raise Refusal(grpc.StatusCode.INTERNAL, "Internal error.") from error
    finally:
        metrics.REQUESTS.labels(api, code).inc()
