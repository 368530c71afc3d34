"""Requests to stop or to save, the hang watchdog, and the lock of a run.

Signals and the time limit only set a flag; the loop checks it between passes
and between the batches of an evaluation. So what stops is always whole.
"""

import collections
import contextlib
import faulthandler
import math
import os
import pathlib
import signal
import threading
import time
from collections.abc import Iterator
from typing import Any, NamedTuple, Self

import filelock
import psutil

from t2t_lite.errors import T2TLiteError, format_error
from t2t_lite.training.options import TrainingOptions

_STOP = (signal.SIGINT, signal.SIGTERM)
# An update may take longer than the ones before it, a save than the last one.
_RECENT_UPDATES = 100
_SAVE_MARGIN = 1.5  # of the last save
_EXIT_SECONDS = 5.0  # to end the process in; TensorFlow takes its time


class StopRequested(Exception):
    """Training has to stop; the message names the reason, such as SIGTERM."""


class Decision(NamedTuple):
    """The action after an update."""

    save: bool = False
    stop: str | None = None  # the reason, such as "SIGTERM"


class Requests:
    """Requests to stop or save: signals, the time limit, the save interval.

    Enter it to note signals, in the main thread. SIGINT and SIGTERM request to
    stop, SIGUSR1 requests to save. The first SIGINT or SIGTERM restores the
    previous handlers, so that the next one acts immediately.

    After `hang_timeout_minutes` without progress the stacks of all threads go
    to stderr. Training continues, because a file system that hangs may recover.

    The minutes of `max_minutes` count from the start of the process. The next
    save is expected to take `save_seconds`, as the last one did.
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
        # Python delivers signals to the main thread alone.
        if threading.current_thread() is threading.main_thread():
            self._previous = {
                number: signal.signal(number, self._note)
                for number in (*_STOP, signal.SIGUSR1)
            }
        return self

    def __exit__(self, *exception: object) -> None:
        self._restore(*self._previous)
        faulthandler.cancel_dump_traceback_later()

    def _restore(self, *numbers: int) -> None:
        for number in numbers:
            signal.signal(number, self._previous.pop(number))

    def _note(self, number: int, frame: object) -> None:
        del frame
        name = signal.Signals(number).name
        then = "saving after this update, then continuing"
        if number == signal.SIGUSR1:
            self._save_requested = True
        else:
            self._signal = name
            self._restore(*_STOP)
            then = "saving, then stopping; again to stop immediately"
        os.write(2, f"\n{name}: {then}.\n".encode())

    def progress(self) -> None:
        """Report progress, which restarts the hang watchdog."""
        if minutes := self._options.hang_timeout_minutes:
            # A thread of C writes the stacks, also if a call holds the GIL.
            faulthandler.dump_traceback_later(minutes * 60, file=2)

    def check(self) -> None:
        """Raise StopRequested if this process must stop now."""
        if reason := self._stop_reason(needed=0.0):
            raise StopRequested(reason)

    def decide(self, step: int) -> Decision:
        """Return what to do after the update `step`."""
        due = (
            time.monotonic() - self._saved_at >= self._options.save_minutes * 60
        )
        if self._options.save_steps:
            due = step % self._options.save_steps == 0
        return Decision(
            self._save_requested or due, self._stop_reason(max(self._updates))
        )

    def _stop_reason(self, needed: float) -> str | None:
        """Return why to stop, if the next step needs so many seconds."""
        save = self.save_seconds * _SAVE_MARGIN + _EXIT_SECONDS
        if self._signal or self._ends_at - save - time.monotonic() > needed:
            return self._signal
        return f"`max_minutes={self._options.max_minutes:g}`"

    @contextlib.contextmanager
    def timing_update(self) -> Iterator[None]:
        """Measure the update inside, to know if another one is in time."""
        start = time.monotonic()
        yield
        self._updates.append(time.monotonic() - start)

    @contextlib.contextmanager
    def timing_save(self) -> Iterator[None]:
        """Measure the save inside; the next one is due an interval later."""
        start = time.monotonic()
        try:
            yield
        finally:
            self._save_requested = False
            self._saved_at = time.monotonic()
        self.save_seconds = self._saved_at - start


def process_seconds() -> float:
    """Return the age of this process."""
    return time.time() - psutil.Process().create_time()


@contextlib.contextmanager
def run_lock(output_dir: pathlib.Path) -> Iterator[None]:
    """Keep other trainers out of a run's folder, which is created.

    Two would overwrite each other's checkpoints. The system releases the lock
    when the process ends in any way.
    """
    lock = filelock.FileLock(output_dir / ".lock", timeout=0)
    try:
        output_dir.mkdir(parents=True, exist_ok=True)
        held = lock.acquire()
    except filelock.Timeout as error:
        raise T2TLiteError(
            f"Another trainer is writing to {output_dir}; wait for it, or "
            "choose another `output_dir`."
        ) from error
    except OSError as error:
        raise T2TLiteError(
            f"{output_dir} cannot be written: "
            f"{format_error(error, place=False)}. Or choose another "
            "`output_dir`."
        ) from error
    with held:
        yield
