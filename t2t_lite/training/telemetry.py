"""What a training run tells: a progress bar, `metrics.jsonl`, events."""

import contextlib
import json
import math
import pathlib
import time
from collections.abc import Mapping, Sequence
from typing import Any, Self, TextIO

import tensorflow as tf

from t2t_lite.errors import T2TLiteError, in_words
from t2t_lite.progress import Line, say
from t2t_lite.training.config import (
    METRICS_FILE,
    SAMPLES_FILE,
    read_records,
)
from t2t_lite.training.validation import Sample

EVENTS_FOLDER = "tensorboard"
_SHOWN = 500  # characters of a text of dev; its file has all


class MetricsFile:
    """Append JSON records to a file of a run, one object with a `step` a line.

    The file is append-only. A run that resumes from an older checkpoint records
    some steps again; readers use the last record of each step.

    Args:
      path: the file; it is created if missing.
      step: the update from which the run resumes. Evaluations of later steps
        are repeated, so they count as not yet made.

    Raises:
      T2TLiteError: the file cannot be read or written.
    """

    def __init__(self, path: pathlib.Path, step: int):
        self._path = path
        self._evaluated: dict[tuple[int, str | None], Mapping[str, Any]] = {}
        self._unwritten = b""
        for record in read_records(path):
            if record["step"] <= step:
                self._note_evaluation(record)
        try:
            self._file = open(path, "ab+", buffering=0)
        except OSError as error:
            raise T2TLiteError(
                f"{path} cannot be written: {in_words(error, place=False)}."
            ) from error
        if size := self._file.tell():
            self._file.seek(size - 1)
            if self._file.read(1) != b"\n":  # a crash cut off the last record
                self._append("")

    def write(self, record: Mapping[str, Any]) -> None:
        """Append a record; a number that is not finite becomes null.

        A record that does not fit on a full disk waits for the next call.
        """
        self._note_evaluation(record)
        line = {key: _finite(value) for key, value in record.items()}
        self._append(json.dumps(line))

    def has_evaluation(self, step: int, weights: str | None = None) -> bool:
        """Return whether dev was evaluated at `step` with these weights."""
        return (step, weights) in self._evaluated

    def evaluations(self, weights: str | None) -> list[Mapping[str, Any]]:
        """Return the dev records of these weights, in their order."""
        return [
            record
            for (_, evaluated), record in self._evaluated.items()
            if evaluated == weights
        ]

    def close(self) -> None:
        """Close the file; records that still cannot be written are lost."""
        if self._flush():
            count = self._unwritten.count(b"\n")
            say(f"WARNING: {self._path} lacks its last {count} line(s).")
        self._file.close()

    def _note_evaluation(self, record: Mapping[str, Any]) -> None:
        if "dev_loss" in record:
            self._evaluated[record["step"], record.get("weights")] = record

    def _append(self, line: str) -> None:
        waiting = bool(self._unwritten)
        self._unwritten += f"{line}\n".encode()
        error = self._flush()
        if error and not waiting:
            say(
                f"WARNING: {self._path} cannot be written: "
                f"{in_words(error, place=False)}. Its records wait in memory."
            )

    def _flush(self) -> OSError | None:
        try:
            while self._unwritten:
                written = self._file.write(self._unwritten)
                self._unwritten = self._unwritten[written:]
        except OSError as error:
            return error
        return None


class Telemetry:
    """Shows and writes down how training goes.

    On a terminal there is a live bar, elsewhere a line for every record. Enter
    it to show the bar.

    Args:
      output_dir: the run.
      step: where it goes on.
      total_steps: where it ends.
      stream: where people look; stdout is for results.
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
        self._events = _Events(output_dir / EVENTS_FOLDER)
        self._shown_at = time.monotonic()
        self._line = Line(
            f"{step}/{total_steps}", total_steps, step, stream, stays=True
        )
        self.activity("starting")

    def __enter__(self) -> Self:
        self._line.__enter__()
        return self

    def __exit__(self, *exception: object) -> None:
        self._line.__exit__()
        self.metrics.close()
        self._samples.close()
        self._events.close()

    def has_evaluation(self, step: int, weights: str | None = None) -> bool:
        """Whether the metrics tell of that evaluation."""
        return self.metrics.has_evaluation(step, weights)

    def evaluations(self, weights: str | None) -> list[Mapping[str, Any]]:
        """See `MetricsFile`."""
        return self.metrics.evaluations(weights)

    def wants_progress(self) -> bool:
        """Whether there is a bar that has not moved for a second."""
        return self._line.is_live and time.monotonic() - self._shown_at >= 1

    def progress(self, record: Mapping[str, Any]) -> None:
        """Moves the bar; `record` as in `training`."""
        self._shown_at = time.monotonic()
        step = record["step"]
        self._line.update(_status(record), step, f"{step}/{self._total}")

    def training(self, record: Mapping[str, Any]) -> None:
        """Records how training went since the last record.

        Args:
          record: has `step`, `loss`, `learning_rate`, `tokens_per_second`.
        """
        self._write(record)
        self.progress(record)
        if not self._line.is_live:
            self.note(
                f"step {record['step']}/{self._total}  {_status(record)}  "
                f"ETA {self._line.time_left}"
            )

    def evaluation(
        self, record: Mapping[str, Any], samples: Sequence[Sample] = ()
    ) -> None:
        """Records an evaluation, and shows one of the samples.

        Args:
          record: has `step` and `dev_loss`.
          samples: as in `DevEvaluation`.
        """
        self._write(record)
        if samples:
            of = {
                key: record[key] for key in ("step", "weights") if key in record
            }
            told = [sample._asdict() for sample in samples]
            self._samples.write({**of, "samples": told})
        values = "  ".join(
            f"{key.removeprefix('dev_')} {value:.4g}"
            for key, value in record.items()
            if key.startswith("dev_")
        )
        weights = f" ({record['weights']})" if "weights" in record else ""
        self.note(f"step {record['step']}{weights} on dev:  {values}")
        for sample in samples[len(samples) // 2 :][:1]:
            for name, text in sample._asdict().items():
                more = " ..." if len(text) > _SHOWN else ""
                self.note(f"  {name + ':':12} {text[:_SHOWN]}{more}")

    def phase(self, text: str) -> None:
        """Says what is done now, on the bar or in a line."""
        if self._line.is_live:
            self.activity(text)
        else:
            self.note(text)

    def activity(self, text: str) -> None:
        """Says on the bar what is done now, as evaluations take a while."""
        self._line.update(text)

    def note(self, text: str) -> None:
        """Writes a line for people."""
        self._line.say(text)

    def _write(self, record: Mapping[str, Any]) -> None:
        self.metrics.write(record)
        self._events.write(record)


class _Events:
    """TensorBoard scalars."""

    def __init__(self, folder: pathlib.Path):
        self._writer = tf.summary.create_file_writer(
            str(folder), flush_millis=10_000
        )

    def write(self, record: Mapping[str, Any]) -> None:
        group = "dev" if "dev_loss" in record else "train"
        if "weights" in record:
            group = "averaged"
        # Events that cannot be written are no reason to fail.
        with (
            contextlib.suppress(tf.errors.OpError),
            self._writer.as_default(step=record["step"]),
        ):
            for key, value in record.items():
                if key != "step" and isinstance(value, (int, float)):
                    # Only training smooths labels: two losses, two names.
                    name = "smoothed_loss" if key == "loss" else key
                    name = name.removeprefix("dev_")
                    tf.summary.scalar(f"{group}/{name}", value)

    def close(self) -> None:
        with contextlib.suppress(tf.errors.OpError):
            self._writer.close()


def _status(record: Mapping[str, Any]) -> str:
    return (
        f"loss {_or_dash(record['loss'], '.3f')}  "
        f"{record['tokens_per_second']:,.0f} tokens/s  "
        f"rate {record['learning_rate']:.2e}  epoch {record['epoch']}"
    )


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def _or_dash(value: float | None, form: str) -> str:
    if value is None or not math.isfinite(value):
        return "-"
    return format(value, form)
