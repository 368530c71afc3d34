"""Errors and metrics (of prometheus_client) of requests."""

import asyncio
import contextlib
from collections.abc import Iterator

import grpc
from prometheus_client import Counter, Gauge, Histogram

from t2t_lite.errors import format_error
from t2t_lite.progress import log

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
_ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256)

REQUESTS = Counter("t2t_lite_requests", "Requests by status", ("api", "code"))
LATENCY = Histogram(
    "t2t_lite_request_seconds", "Latency", ("api",), buckets=_SECONDS
)
TEXTS = Counter("t2t_lite_texts", "Texts answered")
BATCH = Histogram("t2t_lite_batch_texts", "Texts in a batch", buckets=_ROWS)
BATCH_SECONDS = Histogram(
    "t2t_lite_batch_seconds", "Run time of a batch", buckets=_SECONDS
)
QUEUE = Gauge("t2t_lite_queue_texts", "Texts in the queue")
VERSION = Gauge("t2t_lite_version", "The version that serves requests")


class ApiError(Exception):
    """An error, with the name of a gRPC status, for the client."""

    def __init__(self, message: str, status: str = "INVALID_ARGUMENT"):
        super().__init__(message)
        self.status = grpc.StatusCode[status]
        # One line that fits into an HTTP/2 header.
        self.message = " ".join(message.split())[:1000]


@contextlib.contextmanager
def record_request(api: str) -> Iterator[None]:
    """Count a "REST" or "gRPC" request and its latency; log internal errors."""
    code = "OK"
    try:
        with LATENCY.labels(api).time():
            yield
    except asyncio.CancelledError:  # the client has disconnected
        code = "CANCELLED"
        raise
    except ApiError as error:
        code = error.status.name
        raise
    except Exception as error:
        code = "INTERNAL"
        log(f"{api} request: {format_error(error)}")
        raise ApiError("Internal error.", code) from error
    finally:
        REQUESTS.labels(api, code).inc()
