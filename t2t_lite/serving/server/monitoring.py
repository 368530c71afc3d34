"""What a server tells of itself: metrics for Prometheus, and an access log."""

import contextlib
import dataclasses
import datetime
import functools
import json
import logging.handlers
import pathlib
import time
from collections.abc import Callable, Iterator
from typing import Any

import prometheus_client as prometheus

from t2t_lite.errors import in_words
from t2t_lite.progress import say
from t2t_lite.serving.server.batching import Tensors

CONTENT_TYPE = prometheus.CONTENT_TYPE_LATEST
prometheus.disable_created_metrics()  # a second time series for each
_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
_COUNTED = {
    "texts": "Texts answered",
    "characters": "Characters of the texts answered",
    "source_tokens": "Tokens of the texts answered, ends included",
    "target_tokens": (
        "Tokens of the answers, the best one of each text, ends included"
    ),
}
_ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256)


@dataclasses.dataclass
class Record:
    """What is known of a request; filled in while it is answered.

    Attributes:
      api: "REST" or "gRPC".
      peer: who asks.
      what: the method and path, or the name of the call.
      code: of the answer, in HTTP or in gRPC.
      model: its name, if there is such a model.
      version: which one answers.
      signature: which one answers.
      texts: how many it has.
      characters: of all texts.
      source_tokens: of all texts, as the model reads them, ends included; 0
        where it does not tell.
      target_tokens: of all answers, the best one of each text, ends included;
        likewise.
      inputs: the texts themselves.
    """

    api: str
    peer: str
    what: str
    code: str = ""
    model: str = ""
    version: int | None = None
    signature: str = ""
    texts: int = 0
    characters: int = 0
    source_tokens: int = 0
    target_tokens: int = 0
    inputs: Tensors = dataclasses.field(default_factory=dict)


class _LogFile(logging.handlers.WatchedFileHandler):
    """A file that says when it cannot be written, and prints nothing."""

    def handleError(self, record: logging.LogRecord) -> None:
        raise  # the error for which it is called


class AccessLog:
    """A line of JSON for each request.

    Where it cannot be written, as on a full disk, lines are lost, which is said
    once until it can be; requests are answered all the same.

    Args:
      path: appended to. When it is moved away, a new one begins.
      with_texts: write the texts, too.
    """

    def __init__(self, path: pathlib.Path, with_texts: bool = False):
        self._file = _LogFile(path, encoding="utf-8")
        self._with_texts = with_texts
        self._is_broken = False

    def write(self, record: Record, seconds: float) -> None:
        """Adds the line of a request."""
        now = datetime.datetime.now(datetime.UTC)
        line = dataclasses.asdict(dataclasses.replace(record, inputs={}))
        del line["inputs"]
        if self._with_texts:
            line["inputs"] = {
                name: [_shown(value) for value in tensor.flat]
                for name, tensor in record.inputs.items()
            }
        line["milliseconds"] = round(1000 * seconds, 3)
        line = {"time": now.isoformat(timespec="milliseconds"), **line}
        text = json.dumps(line, ensure_ascii=False)
        try:
            self._file.handle(logging.makeLogRecord({"msg": text}))
            self._is_broken = False
        except OSError as error:
            if not self._is_broken:
                say(f"Lines of the access log are lost: {in_words(error)}.")
            self._is_broken = True

    def close(self) -> None:
        """Closes the file."""
        with contextlib.suppress(OSError):  # said by then
            self._file.close()


def _shown(value: object) -> object:
    """A value as JSON has it."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return value.item() if hasattr(value, "item") else value


def _labelled(kind: Callable[..., Any], *what: Any, **more: Any) -> Any:
    """A metric's counter for labels, which is looked up once for each."""
    return functools.cache(kind(*what, **more).labels)


class Monitor:
    """Counts what a server does.

    Args:
      access_log: None for none.
    """

    def __init__(self, access_log: AccessLog | None = None):
        self._access_log = access_log
        self._registry = registry = prometheus.CollectorRegistry()
        prometheus.ProcessCollector(registry=registry)
        self._requests = _labelled(
            prometheus.Counter,
            "t2t_lite_requests",
            "Requests answered or refused",
            ("model", "api", "code"),
            registry=registry,
        )
        self._seconds = _labelled(
            prometheus.Histogram,
            "t2t_lite_request_seconds",
            "From the arrival of a request to its answer",
            ("model", "api"),
            buckets=_SECONDS,
            registry=registry,
        )
        self._counted = {
            what: _labelled(
                prometheus.Counter,
                f"t2t_lite_{what}",
                told,
                ("model",),
                registry=registry,
            )
            for what, told in _COUNTED.items()
        }
        self._batch = prometheus.Histogram(
            "t2t_lite_batch_texts",
            "Texts that ran together",
            buckets=_ROWS,
            registry=registry,
        )
        self._batch_seconds = prometheus.Histogram(
            "t2t_lite_batch_seconds",
            "The time that a batch ran",
            buckets=_SECONDS,
            registry=registry,
        )
        self._queue = prometheus.Gauge(
            "t2t_lite_queue_texts", "Texts that wait", registry=registry
        )
        self._versions = prometheus.Gauge(
            "t2t_lite_versions",
            "Versions that can be asked",
            ("model",),
            registry=registry,
        )

    def ran(self, rows: int, seconds: float) -> None:
        """A batch of so many rows took so long."""
        self._batch.observe(rows)
        self._batch_seconds.observe(seconds)

    def waiting(self, rows: int) -> None:
        """So many rows wait from now on."""
        self._queue.set(rows)

    def count_versions(self, model: str, count: Callable[[], int]) -> None:
        """How many versions of a model can be asked, whenever that is read."""
        self._versions.labels(model).set_function(count)

    @contextlib.contextmanager
    def watch(self, record: Record, ok: str) -> Iterator[Record]:
        """Counts the request that the block answers, and logs it.

        Args:
          record: the block fills it in.
          ok: its code when it is answered.
        """
        start = time.perf_counter()
        try:
            yield record
        finally:
            seconds = time.perf_counter() - start
            self._requests(record.model, record.api, record.code).inc()
            self._seconds(record.model, record.api).observe(seconds)
            if record.code == ok and record.texts:
                for what, counter in self._counted.items():
                    counter(record.model).inc(getattr(record, what))
            if self._access_log:
                self._access_log.write(record, seconds)

    def metrics(self) -> bytes:
        """All counts as Prometheus reads them."""
        return prometheus.generate_latest(self._registry)
