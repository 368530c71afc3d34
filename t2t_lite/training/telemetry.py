"""What a training run tells: a progress bar, `metrics.jsonl`, events."""

import contextlib
import json
import math
import os
import pathlib
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Self, TextIO

import tensorflow as tf

from t2t_lite import files
from t2t_lite.errors import T2TLiteError, in_words
from t2t_lite.progress import Line, say
from t2t_lite.training.config import METRICS_FILE, SAMPLES_FILE
from t2t_lite.training.validation import Sample

EVENTS_FOLDER = "tensorboard"
_SHOWN = 500  # characters of a text of dev; its file has all


class MetricsFile:
    """`metrics.jsonl`: one JSON object with a `step` on each line.

    Nothing of an older file is lost. Lines about updates that are about to be
    made again go to `metrics.jsonl.superseded`, and damaged ones, such as what
    a crash left of a line, to `metrics.jsonl.damaged`; stderr tells of both.

    Args:
      path: the file; made if it is missing.
      step: where the run goes on.

    Raises:
      T2TLiteError: the file is there and cannot be read.
    """

    def __init__(self, path: pathlib.Path, step: int):
        self._evaluated: dict[tuple[int, str | None], Mapping[str, Any]] = {}
        content = _content(path)
        kept: list[bytes] = []
        superseded: list[bytes] = []
        damaged: dict[int, bytes] = {}
        for number, line in enumerate(content.split(b"\n"), 1):
            record = _record(line)
            if record is None:
                damaged |= {number: line} if line else {}
            elif record["step"] > step:
                superseded.append(line)
            else:
                self._note_evaluation(record)
                kept.append(line)
        if damaged:
            numbers = [str(number) for number in damaged]
            aside = _put_aside(path, "damaged", damaged.values())
            say(
                f"Warning: {path} is damaged in line(s) "
                f"{', '.join(numbers[:8])}{', ...' * (len(numbers) > 8)}, "
                f"which are in {aside} now."
            )
        if superseded:
            aside = _put_aside(path, "superseded", superseded)
            say(
                f"{path}: {len(superseded)} line(s) about updates after "
                f"{step}, which are made again, are in {aside} now."
            )
        if (sound := _joined(kept)) != content:
            with files.write_file(path) as file:
                file.write(sound)
        self._lines = _Lines(path)

    def write(self, record: Mapping[str, Any]) -> None:
        """Appends a line; a number that is not finite becomes null."""
        self._note_evaluation(record)
        line = {key: _finite(value) for key, value in record.items()}
        self._lines.append(json.dumps(line))

    def has_evaluation(self, step: int, weights: str | None = None) -> bool:
        """Whether dev was evaluated at that step, with those weights."""
        return (step, weights) in self._evaluated

    def evaluations(self, weights: str | None) -> list[Mapping[str, Any]]:
        """The lines about dev of these weights, in their order."""
        return [
            record
            for (_, evaluated), record in self._evaluated.items()
            if evaluated == weights
        ]

    def close(self) -> None:
        """Closes the file."""
        self._lines.close()

    def _note_evaluation(self, record: Mapping[str, Any]) -> None:
        if "dev_loss" in record:
            self._evaluated[record["step"], record.get("weights")] = record


class _Lines:
    """Appends lines to a file; those that do not fit on the disk, later."""

    def __init__(self, path: pathlib.Path):
        self._path = path
        self._file = open(path, "ab", buffering=0)
        self._unwritten = b""

    def append(self, line: str) -> None:
        """Appends a line, or keeps it for the next time."""
        waiting = bool(self._unwritten)
        self._unwritten += f"{line}\n".encode()
        error = self._write()
        if error and not waiting:
            say(
                f"WARNING: {self._path} cannot be written: "
                f"{in_words(error, place=False)}. Its lines are kept until "
                "they can be."
            )

    def close(self) -> None:
        """Closes the file; what cannot be written now is lost."""
        if self._write():
            count = self._unwritten.count(b"\n")
            say(f"WARNING: {self._path} lacks its last {count} line(s).")
        self._file.close()

    def _write(self) -> OSError | None:
        try:
            while self._unwritten:
                written = self._file.write(self._unwritten)
                self._unwritten = self._unwritten[written:]
        except OSError as error:
            return error
        return None


def _content(path: pathlib.Path) -> bytes:
    """What a file holds. A link to nowhere is no missing file."""
    if not os.path.lexists(path):
        return b""
    try:
        return path.read_bytes()
    except OSError as error:
        raise T2TLiteError(
            f"{path} cannot be read: "
            f"{in_words(error, place=False)}. Put it back, or move it "
            "away to go on without it."
        ) from error


def _record(line: bytes) -> dict[str, Any] | None:
    """The object that a line of `metrics.jsonl` is; None if it is damaged."""
    try:
        record = json.loads(line.decode("utf-8"))
        weights = record.get("weights")
        sound = type(record["step"]) is int
    except (ValueError, LookupError, AttributeError, RecursionError):
        return None
    return record if sound and isinstance(weights, str | None) else None


def _joined(lines: Iterable[bytes]) -> bytes:
    return b"".join(line + b"\n" for line in lines)


def _put_aside(path: pathlib.Path, why: str, lines: Iterable[bytes]) -> str:
    """Appends lines to the file beside `path` whose name it returns."""
    aside = path.with_name(f"{path.name}.{why}")
    with open(aside, "ab") as file:
        file.write(_joined(lines))
        file.flush()
        os.fsync(file.fileno())
    return aside.name


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
