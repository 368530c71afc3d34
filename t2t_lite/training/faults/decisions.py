"""What time and signals ask for between two updates, in one place."""

import contextlib
import math
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

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
    evaluate, is the same on every worker anyway. `check` is for a process
    alone. `interruptible` ends the work of all: workers share the deadline, see
    `Deadline.share`, and signals, see `Cluster.share_stop`.

    Args:
      signals: that came to this process.
      deadline: by which it has to be gone.
      save_steps: updates between checkpoints.
      save_minutes: minutes between them, where `save_steps` is None.
      exchange: gives the values of all workers, see `Cluster.exchange`.
    """

    def __init__(
        self,
        signals: StopSignals,
        deadline: Deadline,
        save_steps: int | None,
        save_minutes: float,
        exchange: Callable[[str, Any], list[Any]] = lambda _, value: [value],
    ):
        self._signals = signals
        self._deadline = deadline
        self._save_steps = save_steps
        self._save_seconds = save_minutes * 60
        self._saved_at = time.monotonic()
        self._exchange = exchange

    def decide(self, step: int) -> Decision:
        """What to do after the update `step`."""
        stop = self._signals.requested
        if self._deadline.leaves_no_update:
            stop = stop or self._deadline.name
        save = self._signals.take_save_request() or self._save_is_due(step)
        wishes = self._exchange(f"decision {step}", [save, stop])
        saves, stops = zip(*wishes, strict=True)
        return Decision(any(saves), next(filter(None, stops), None))

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
