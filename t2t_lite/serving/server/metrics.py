"""Metrics for Prometheus, in its default registry."""

from prometheus_client import Counter, Gauge, Histogram

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
