"""Progress of a training run: a bar, `metrics.jsonl`, TensorBoard events."""

import contextlib
import dataclasses
import json
import math
import os
import pathlib
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Self, TextIO

import tensorflow as tf

from t2t_lite.errors import format_error
from t2t_lite.progress import Counter, log
from t2t_lite.training.config import METRICS_FILE, SAMPLES_FILE, read_records
from t2t_lite.training.update import UpdateStats

EVENTS_FOLDER = "tensorboard"
_SHOWN = 500  # characters of a text of dev; its file has all


class MetricsFile:
    """Append JSON records to a file of a run, one object with a `step` a line.

    The file is append-only. A run that resumes from an older checkpoint, at
    `step`, records later steps again, with their evaluations; readers use the
    last record of each step.

    Attributes:
      evaluated: the step and the weights of each evaluation on dev, in order.
    """

    def __init__(self, path: pathlib.Path, step: int):
        self._path = path
        self.evaluated = {
            (record["step"], record.get("weights")): None
            for record in read_records(path)
            if record["step"] <= step and "dev_loss" in record
        }

    def write(self, record: Mapping[str, Any]) -> None:
        """Append a record; a number that is not finite becomes null.

        A record that cannot be written is lost, and a line reports that.
        """
        if "dev_loss" in record:
            self.evaluated[record["step"], record.get("weights")] = None
        line = json.dumps(
            {k: v if _is_finite(v) else None for k, v in record.items()}
        )
        try:
            with self._path.open("ab+") as file:
                if file.tell():
                    file.seek(-1, os.SEEK_END)
                    if file.read() != b"\n":  # a crash cut off the last record
                        file.write(b"\n")
                file.write(f"{line}\n".encode())
        except OSError as error:
            reason = format_error(error, place=False)
            log(f"WARNING: {self._path} lacks a record: {reason}.")


class TrainingLog:
    """Shows and records the progress of training.

    On a terminal there is a live bar, elsewhere a line for every record. Enter
    it to show the bar. The first update is the one after `step`, the last is
    `total_steps`. `note` writes a line to the `stream`, by default stderr.

    Attributes:
      metrics: `metrics.jsonl`.
    """

    def __init__(
        self,
        output_dir: pathlib.Path,
        step: int,
        total_steps: int,
        stream: TextIO | None = None,
    ):
        self._total = total_steps
        self.metrics = MetricsFile(output_dir / METRICS_FILE, step)
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

    def phase(self, text: str, brief: bool = False) -> None:
        """Report the current work, on the bar or in a line.

        Without a bar nothing reports work that is `brief`.
        """
        self._line.update(text)
        if not (self._line.is_live or brief):
            self.note(text)

    def wants_progress(self) -> bool:
        """Return whether there is a bar that has not moved for a second."""
        return self._line.is_live and time.monotonic() - self._shown_at >= 1

    def progress(self, record: Mapping[str, Any]) -> None:
        """Move the bar; `record` as in `training`."""
        self._shown_at = time.monotonic()
        step = record["step"]
        self._line.update(_status(record), step, f"{step}/{self._total}")

    def training(self, record: Mapping[str, Any]) -> None:
        """Record the updates since the last record, see `Meter.record`."""
        self._write(record, "train")
        self.progress(record)
        if not self._line.is_live:
            self.note(
                f"step {record['step']}/{self._total}  {_status(record)}  "
                f"ETA {self._line.time_left}"
            )

    def evaluation(
        self, record: Mapping[str, Any], samples: Sequence[dict[str, str]] = ()
    ) -> None:
        """Record an evaluation, and show one of the samples."""
        weights = record.get("weights")
        self._write(record, "averaged" if weights else "dev")
        if samples:
            of = {k: record[k] for k in ("step", "weights") if k in record}
            self._samples.write({**of, "samples": list(samples)})
        values = "  ".join(
            f"{key.removeprefix('dev_')} {value:.4g}"
            for key, value in record.items()
            if key.startswith("dev_")
        )
        of_weights = f" ({weights})" if weights else ""
        self.note(f"step {record['step']}{of_weights} on dev:  {values}")
        for sample in samples[len(samples) // 2 :][:1]:
            for name, text in sample.items():
                more = " ..." if len(text) > _SHOWN else ""
                self.note(f"  {name + ':':12} {text[:_SHOWN]}{more}")

    def _write(self, record: Mapping[str, Any], group: str) -> None:
        """Write a record to `metrics.jsonl` and as TensorBoard scalars."""
        self.metrics.write(record)
        # Events that cannot be written are no reason to fail.
        with (
            contextlib.suppress(tf.errors.OpError),
            self._events.as_default(step=record["step"]),
        ):
            for key, value in record.items():
                if key != "step" and isinstance(value, (int, float)):
                    # Only training smooths labels: two losses, two names.
                    name = "smoothed_loss" if key == "loss" else key
                    name = f"{group}/{name.removeprefix('dev_')}"
                    tf.summary.write(name, float(value), metadata=_SCALAR)


# `tf.summary.scalar` writes the same, but requires TensorBoard.
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
    """Sums over all updates of a run that were read."""

    seconds: float = 0.0  # of the updates; evaluating and saving is not counted
    skipped: int = 0  # updates
    source_tokens: float = 0.0  # real ones
    target_tokens: float = 0.0


class Meter:
    """Adds up the results of updates, reading them from the device late.

    Attributes:
      totals: of the run; `timed` adds the seconds.
      consecutive_skips: number of the last updates read that were skipped.
    """

    def __init__(self, totals: Totals | None = None):
        self.totals = totals or Totals()
        self.consecutive_skips = 0
        self._unread: list[UpdateStats] = []
        self.start_interval()

    def start_interval(self) -> None:
        """Forget the updates of `record`."""
        self._seconds_before = self.totals.seconds
        self._interval: list[UpdateStats] = []

    @contextlib.contextmanager
    def timed(self) -> Iterator[None]:
        """Count the time inside, of an update."""
        start = time.monotonic()
        yield
        self.totals.seconds += time.monotonic() - start

    def add(self, stats: UpdateStats) -> None:
        """Note an update, and read the ones before it.

        They are done when this one has been handed to the device: to read
        them keeps nothing waiting.
        """
        self._read()
        self._unread.append(stats)

    def read(self) -> None:
        """Wait for the update under way."""
        if self._unread:
            with self.timed():
                self._read()

    def _read(self) -> None:
        for stats in self._unread:
            read = stats.read()
            self._interval.append(read)
            self.totals.source_tokens += read.source_tokens
            self.totals.target_tokens += read.target_tokens
            self.totals.skipped += int(read.skipped)
            self.consecutive_skips += 1
            if not read.skipped:
                self.consecutive_skips = 0
        self._unread.clear()

    @property
    def skipped_in_interval(self) -> int:
        """Number of updates skipped since the interval started."""
        return sum(bool(each.skipped) for each in self._interval)

    def record(self) -> dict[str, Any]:
        """Return the facts of `metrics.jsonl` on the updates of the interval.

        `loss` is the smoothed cross-entropy per real target token in nats, and
        `gradient_norm` the mean, both without skipped updates; `padding` is the
        share of the positions that held no token, 0-1.
        """
        made = [each for each in self._interval if not each.skipped]
        seconds = self.totals.seconds - self._seconds_before
        tokens = _sum(self._interval, "source_tokens", "target_tokens")
        padding = 1 - _ratio(tokens, _sum(self._interval, "positions"))
        return {
            "loss": _ratio(_sum(made, "loss_sum"), _sum(made, "target_tokens")),
            "learning_rate": self._interval[-1].learning_rate,
            "tokens_per_second": _ratio(tokens, seconds),
            "gradient_norm": _ratio(_sum(made, "gradient_norm"), len(made)),
            "padding": round(padding, 4),
            "skipped": self.totals.skipped,
            "seconds": round(self.totals.seconds, 2),
        }


def _sum(updates: Sequence[UpdateStats], *names: str) -> float:
    return sum(getattr(each, name) for each in updates for name in names)


def _ratio(total: float, count: float) -> float:
    return total / count if count else math.nan
