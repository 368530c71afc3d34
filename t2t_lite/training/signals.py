"""Signals, the time limit, the hang watchdog, and the lock of a run.

Signals only set a flag. The training loop checks the flag and the time limit
between accumulation passes and between evaluation batches, so an update is
either complete or not applied.
"""

import collections
import contextlib
import faulthandler
import math
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, Self

import filelock
import psutil

from t2t_lite.errors import T2TLiteError, explain
from t2t_lite.training.options import TrainingOptions

_STOP = (signal.SIGINT, signal.SIGTERM)
_RECENT_UPDATES = 100  # updates that estimate the duration of the next one
_SAVE_MARGIN = 1.5  # estimated duration of a save / duration of the last save
_EXIT_SECONDS = 5.0  # from the last save to the end of the process


class StopRequested(Exception):
    """A request to stop training, with the reason, such as SIGTERM."""


class Decision(NamedTuple):
    """The actions after an update."""

    save: bool = False
    stop: str | None = None  # the reason, such as "SIGTERM"


class Requests:
    """Requests to stop or to save: signals, the time limit, the save interval.

    The context manager handles signals in the main thread: SIGINT and SIGTERM
    stop training, SIGUSR1 saves. The first SIGINT or SIGTERM restores the
    previous handlers, so that a second signal acts immediately.

    After `hang_timeout_minutes` without progress the watchdog writes the stacks
    of all threads to stderr; training may recover. `max_minutes` counts from
    the start of the process, and includes the last save, `save_seconds`.
    """

    def __init__(self, options: TrainingOptions):
        self._options = options
        self._ends_at = math.inf
        if options.max_minutes is not None:
            left = options.max_minutes * 60 - process_seconds()
            self._ends_at = time.monotonic() + left
        self.save_seconds = 0.0
        self._saved_at = time.monotonic()
        self._updates = collections.deque([0.0], maxlen=_RECENT_UPDATES)
        self._signal: str | None = None
        self._save_requested = False
        self._previous: dict[int, Any] = {}

    def __enter__(self) -> Self:
        # Python delivers signals only to the main thread.
        if threading.current_thread() is threading.main_thread():
            self._previous = {
                number: signal.signal(number, self._handle)
                for number in (*_STOP, signal.SIGUSR1)
            }
        return self

    def __exit__(self, *exception: object) -> None:
        self._restore(*self._previous)
        faulthandler.cancel_dump_traceback_later()

    def _restore(self, *numbers: int) -> None:
        for number in numbers:
            signal.signal(number, self._previous.pop(number))

    def _handle(self, number: int, frame: object) -> None:
        name = signal.Signals(number).name
        if number == signal.SIGUSR1:
            self._save_requested = True
            action = "saving after this update, then continuing"
        else:
            self._signal = name
            self._restore(*_STOP)
            action = "saving, then stopping; repeat to stop immediately"
        try:
            os.write(2, f"\n{name}: {action}.\n".encode())
        except OSError:  # the signal has also ended the reader, such as `tee`
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)

    def heartbeat(self) -> None:
        """Restart the hang watchdog."""
        if minutes := self._options.hang_timeout_minutes:
            # A C thread writes the stacks, even if a call holds the GIL.
            faulthandler.dump_traceback_later(minutes * 60, file=2)

    def check(self) -> None:
        """Raise StopRequested if this process must stop now."""
        if reason := self._stop_reason(needed=0.0):
            raise StopRequested(reason)

    def decide(self, step: int) -> Decision:
        """Return the actions after the update `step`."""
        minutes = (time.monotonic() - self._saved_at) / 60
        save = self._save_requested or minutes >= self._options.save_minutes
        if self._options.save_steps:
            save = self._save_requested or step % self._options.save_steps == 0
        return Decision(save, self._stop_reason(max(self._updates)))

    def _stop_reason(self, needed: float) -> str | None:
        """Return the reason to stop before `needed` seconds of work."""
        save = self.save_seconds * _SAVE_MARGIN + _EXIT_SECONDS
        if self._signal or self._ends_at - save - time.monotonic() > needed:
            return self._signal
        return f"`max_minutes={self._options.max_minutes:g}`"

    @contextlib.contextmanager
    def timing_update(self) -> Iterator[None]:
        """Measure the update in the block, to estimate the next one."""
        start = time.monotonic()
        yield
        self._updates.append(time.monotonic() - start)

    @contextlib.contextmanager
    def timing_save(self) -> Iterator[None]:
        """Measure the save in the block, and restart the save interval."""
        start = time.monotonic()
        try:
            yield
        finally:
            self._save_requested = False
            self._saved_at = time.monotonic()
        self.save_seconds = self._saved_at - start


def process_seconds() -> float:
    """Return the age of this process in seconds."""
    return time.time() - psutil.Process().create_time()


@contextlib.contextmanager
def run_lock(output_dir: Path) -> Iterator[None]:
    """Create and lock the folder of a run against other trainers."""
    lock = filelock.FileLock(output_dir / ".lock")
    fix = "Correct this, or choose another `output_dir`."
    with explain(f"{output_dir} cannot be written", OSError, fix=fix):
        output_dir.mkdir(parents=True, exist_ok=True)
        try:
            held = lock.acquire(blocking=False)
        except filelock.Timeout as error:
            raise T2TLiteError(
                f"Another trainer is writing to {output_dir}. Wait for it, or "
                "choose another `output_dir`."
            ) from error
    with held:
        yield
