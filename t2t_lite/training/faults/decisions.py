"""What time and signals ask for between two updates, in one place."""

import contextlib
import math
import time
from collections.abc import Iterator
from typing import NamedTuple

from t2t_lite.training.faults.deadline import Deadline
from t2t_lite.training.faults.signals import StopRequested, StopSignals


class Decision(NamedTuple):
    """What is done now, in plain values, on which workers can agree."""

    save: bool = False
    stop: str | None = None  # why, "SIGTERM" say; None goes on


class Decisions:
    """Decides once between two updates.

    All that depends on a clock or on a signal is asked here and nowhere else
    in the loop: what follows from the number of the update, such as when to
    evaluate, is the same on every worker anyway. `check` and `interruptible`
    break off work of this process alone.

    Args:
      signals: that came to this process.
      deadline: by which it has to be gone.
      save_steps: updates between checkpoints.
      save_minutes: minutes between them, where `save_steps` is None.
    """

    def __init__(
        self,
        signals: StopSignals,
        deadline: Deadline,
        save_steps: int | None,
        save_minutes: float,
    ):
        self._signals = signals
        self._deadline = deadline
        self._save_steps = save_steps
        self._save_seconds = save_minutes * 60
        self._saved_at = time.monotonic()

    def decide(self, step: int) -> Decision:
        """What to do after the update `step`."""
        asked_to_save = self._signals.take_save_request()
        stop = self._signals.requested
        if self._deadline.leaves_no_update:
            stop = stop or self._deadline.name
        return Decision(asked_to_save or self._save_is_due(step), stop)

    @contextlib.contextmanager
    def updating(self) -> Iterator[None]:
        """Notes how long the update inside takes."""
        start = time.monotonic()
        yield
        self._deadline.updated(time.monotonic() - start)

    @contextlib.contextmanager
    def saving(self) -> Iterator[None]:
        """Notes how long the save inside takes, and when the next is due."""
        start = time.monotonic()
        try:
            yield
        finally:
            self._saved_at = time.monotonic()
        self._deadline.saved(self._saved_at - start)

    def check(self) -> None:
        """Raises StopRequested if this process must stop now."""
        if self._signals.requested:
            raise StopRequested(self._signals.requested)
        if self._deadline.seconds_left <= 0:
            raise StopRequested(self._deadline.name)

    @contextlib.contextmanager
    def interruptible(self) -> Iterator[None]:
        """Work that may be broken off anywhere: StopRequested ends it."""
        self.check()
        left = self._deadline.seconds_left
        seconds = None if math.isinf(left) else left
        with self._signals.interruptible(seconds, self._deadline.name):
            yield

    def _save_is_due(self, step: int) -> bool:
        if self._save_steps:
            return step % self._save_steps == 0
        return time.monotonic() - self._saved_at >= self._save_seconds
