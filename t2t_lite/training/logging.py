"""Logging of a training run: progress bar, `metrics.jsonl`, TensorBoard."""

import contextlib
import dataclasses
import json
import math
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self, TextIO

import tensorflow as tf

from t2t_lite.errors import format_error
from t2t_lite.progress import Counter, log
from t2t_lite.training.config import METRICS_FILE, SAMPLES_FILE, read_records
from t2t_lite.training.update import UpdateStats

# Functions of a record of `metrics.jsonl`.
Callbacks = Sequence[Callable[[dict[str, Any]], object]]

EVENTS_FOLDER = "tensorboard"
_MAX_SHOWN = 500  # characters of a logged translation; its file has all


class MetricsFile:
    """An append-only file of JSON records with a `step`, one record per line.

    A run that resumes from an older checkpoint, at `step`, records later steps
    again; readers use the last record of each step. `evaluated` has the step
    and the weights of each evaluation on dev, in order. The `callbacks` are
    called with each new record.
    """

    def __init__(self, path: Path, step: int, callbacks: Callbacks = ()):
        self._path, self._callbacks = path, callbacks
        self.evaluated = {
            (record["step"], record.get("weights")): None
            for record in read_records(path)
            if record["step"] <= step and "dev_loss" in record
        }

    def write(self, record: Mapping[str, Any]) -> None:
        """Append a record, with null for numbers that are not finite.

        A failed write is a warning, because training can continue.
        """
        if "dev_loss" in record:
            self.evaluated[record["step"], record.get("weights")] = None
        record = {k: v if _is_finite(v) else None for k, v in record.items()}
        line = json.dumps(record)
        try:
            with self._path.open("ab+") as file:
                if file.tell():
                    file.seek(-1, os.SEEK_END)
                    if file.read() != b"\n":  # a crash truncated the last line
                        file.write(b"\n")
                file.write(f"{line}\n".encode())
        except OSError as error:
            reason = format_error(error, place=False)
            log(f"WARNING: Cannot write to {self._path}: {reason}.")
        for callback in self._callbacks:
            callback(dict(record))


class TrainingLog:
    """Shows and records the progress of training from `step` to `total_steps`.

    A terminal shows a progress bar inside the context manager; other streams
    get a line per record. The default stream is stderr, and `note` writes a
    line to it. For `callbacks` see `MetricsFile`.
    """

    def __init__(
        self,
        output_dir: Path,
        step: int,
        total_steps: int,
        stream: TextIO | None = None,
        callbacks: Callbacks = (),
    ):
        self._total = total_steps
        path = output_dir / METRICS_FILE
        self.metrics = MetricsFile(path, step, callbacks)
        self._samples = MetricsFile(output_dir / SAMPLES_FILE, step)
        self._events = tf.summary.create_file_writer(
            str(output_dir / EVENTS_FOLDER), flush_millis=10_000
        )
        self._shown_at = time.monotonic()
        self._line = Counter(
            f"{step}/{total_steps}",
            total=total_steps,
            done=step,
            stream=stream,
            stays=True,
        )
        self.note = self._line.log
        self._line.update("starting")

    def __enter__(self) -> Self:
        self._line.__enter__()
        return self

    def __exit__(self, *exception: object) -> None:
        self._line.__exit__()
        with contextlib.suppress(tf.errors.OpError):
            self._events.close()

    def show_status(self, text: str, brief: bool = False) -> None:
        """Show the activity, on the bar or, unless it is `brief`, in a line."""
        self._line.update(text)
        if not (self._line.is_live or brief):
            self.note(text)

    def wants_progress(self) -> bool:
        """Return whether the bar was last updated more than a second ago."""
        return self._line.is_live and time.monotonic() - self._shown_at >= 1

    def show_progress(self, record: Mapping[str, Any]) -> None:
        """Update the bar with a record of `training`."""
        self._shown_at = time.monotonic()
        step = record["step"]
        self._line.update(_status(record), step, f"{step}/{self._total}")

    def record_updates(self, record: Mapping[str, Any]) -> None:
        """Record and show the updates since the last record."""
        self._write(record, "train")
        self.show_progress(record)
        if not self._line.is_live:
            self.note(
                f"step {record['step']}/{self._total}  {_status(record)}  "
                f"ETA {self._line.time_left}"
            )

    def record_evaluation(
        self, record: Mapping[str, Any], samples: Sequence[dict[str, str]] = ()
    ) -> None:
        """Record an evaluation and show one of its samples."""
        weights = record.get("weights")
        self._write(record, "averaged" if weights else "dev")
        if samples:
            keys = {k: record[k] for k in ("step", "weights") if k in record}
            self._samples.write({**keys, "samples": list(samples)})
        values = "  ".join(
            f"{key.removeprefix('dev_')} {value:.4g}"
            for key, value in record.items()
            if key.startswith("dev_")
        )
        label = f" ({weights})" if weights else ""
        self.note(f"step {record['step']}{label} on dev:  {values}")
        for sample in samples[len(samples) // 2 :][:1]:
            for name, text in sample.items():
                dots = " ..." if len(text) > _MAX_SHOWN else ""
                self.note(f"  {name + ':':12} {text[:_MAX_SHOWN]}{dots}")

    def _write(self, record: Mapping[str, Any], group: str) -> None:
        self.metrics.write(record)
        # Training continues if events cannot be written.
        with (
            contextlib.suppress(tf.errors.OpError),
            self._events.as_default(step=record["step"]),
        ):
            for key, value in record.items():
                if key != "step" and isinstance(value, (int, float)):
                    # Only the training loss has label smoothing.
                    name = "smoothed_loss" if key == "loss" else key
                    name = f"{group}/{name.removeprefix('dev_')}"
                    tf.summary.write(name, float(value), metadata=_SCALAR)


# `tf.summary.scalar` writes the same events, but requires TensorBoard.
_SCALAR = tf.compat.v1.SummaryMetadata(
    plugin_data=tf.compat.v1.SummaryMetadata.PluginData(plugin_name="scalars"),
    data_class=1,  # a scalar
)


def _status(record: Mapping[str, Any]) -> str:
    loss = record["loss"]
    return (
        f"loss {format(loss, '.3f') if _is_finite(loss) else '-'}  "
        f"{record['tokens_per_second']:,.0f} tokens/s  "
        f"rate {record['learning_rate']:.2e}  epoch {record['epoch']}"
    )


def _is_finite(value: Any) -> bool:
    return not isinstance(value, float) or math.isfinite(value)


@dataclasses.dataclass
class Totals:
    """Sums over the updates of a run whose results were read."""

    seconds: float = 0.0  # of updates, without evaluation and saving
    skipped: int = 0  # number of skipped updates
    source_tokens: float = 0.0  # real tokens
    target_tokens: float = 0.0  # real tokens


class Meter:
    """Sums the results of updates, without waiting for the device."""

    def __init__(self, totals: Totals | None = None):
        self.totals = totals or Totals()
        self.consecutive_skips = 0
        self._unread: list[UpdateStats] = []
        self.start_interval()

    def start_interval(self) -> None:
        """Start a new interval for `record`."""
        self._seconds_before = self.totals.seconds
        self._interval: list[UpdateStats] = []

    @contextlib.contextmanager
    def timed(self) -> Iterator[None]:
        """Add the duration of the block to the seconds."""
        start = time.monotonic()
        yield
        self.totals.seconds += time.monotonic() - start

    def add(self, stats: UpdateStats) -> None:
        """Add an update, and read earlier ones, which are done by now."""
        self._sum_unread()
        self._unread.append(stats)

    def read(self) -> None:
        """Wait for the current update and read its results."""
        if self._unread:
            with self.timed():
                self._sum_unread()

    def _sum_unread(self) -> None:
        for stats in self._unread:
            values = stats.read()
            self._interval.append(values)
            self.totals.source_tokens += values.source_tokens
            self.totals.target_tokens += values.target_tokens
            self.totals.skipped += int(values.skipped)
            skips = self.consecutive_skips + 1
            self.consecutive_skips = skips if values.skipped else 0
        self._unread.clear()

    @property
    def skipped_in_interval(self) -> int:
        """The number of updates skipped since the interval started."""
        return sum(bool(each.skipped) for each in self._interval)

    def record(self) -> dict[str, Any]:
        """Return the record of the interval for `metrics.jsonl`.

        `loss` is the smoothed cross-entropy per real target token in nats;
        `gradient_norm` is a mean. Both exclude skipped updates. `padding` is
        the fraction of positions without a token, 0-1.
        """
        used = [each for each in self._interval if not each.skipped]
        seconds = self.totals.seconds - self._seconds_before
        tokens = _sum(self._interval, "source_tokens", "target_tokens")
        padding = 1 - _ratio(tokens, _sum(self._interval, "positions"))
        return {
            "loss": _ratio(_sum(used, "loss_sum"), _sum(used, "target_tokens")),
            "learning_rate": self._interval[-1].learning_rate,
            "tokens_per_second": _ratio(tokens, seconds),
            "gradient_norm": _ratio(_sum(used, "gradient_norm"), len(used)),
            "padding": round(padding, 4),
            "skipped": self.totals.skipped,
            "seconds": round(self.totals.seconds, 2),
        }


def _sum(updates: Sequence[UpdateStats], *names: str) -> float:
    return sum(getattr(each, name) for each in updates for name in names)


def _ratio(total: float, count: float) -> float:
    return total / count if count else math.nan
