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

    All that depends on a clock or on a signal is decided here and nowhere else
    in the loop: what follows from the number of the update, such as when to
    evaluate, is the same on every worker anyway. Workers agree when one of them
    wants a decision, which they learn from the sums of an update. `check` is
    for a process that trains alone.

    Args:
      signals: that came to this process.
      deadline: by which it has to be gone.
      save_steps: updates between checkpoints.
      save_minutes: minutes between them, where `save_steps` is None.
      exchange: gives the values of all workers; None for a single process.
    """

    def __init__(
        self,
        signals: StopSignals,
        deadline: Deadline,
        save_steps: int | None,
        save_minutes: float,
        exchange: Callable[[Any], list[Any]] | None = None,
    ):
        self._signals = signals
        self._deadline = deadline
        self._save_steps = save_steps
        self._save_seconds = save_minutes * 60
        self._saved_at = time.monotonic()
        self._exchange = exchange

    def is_wanted(self, step: int) -> bool:
        """Return whether this process wants to save or stop after the update.

        Args:
          step: the number of the update.
        """
        return bool(
            self._signals.save_requested
            or self._save_is_due(step)
            or self._stop_reason()
        )

    def decide(self, step: int, is_wanted: bool = True) -> Decision:
        """Return what to do after the update `step`.

        Args:
          step: the number of the update.
          is_wanted: whether any worker wanted a decision; the same on all. A
            single process always decides.
        """
        if self._exchange and not is_wanted:
            return Decision()
        save = self._signals.take_save_request() or self._save_is_due(step)
        decision = Decision(save, self._stop_reason())
        if not self._exchange:
            return decision
        saves, stops = zip(*self._exchange(decision), strict=True)
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

    def _stop_reason(self) -> str | None:
        late = self._deadline.leaves_no_update
        return self._signals.requested or (
            self._deadline.name if late else None
        )

    def _save_is_due(self, step: int) -> bool:
        if self._save_steps:
            return step % self._save_steps == 0
        return time.monotonic() - self._saved_at >= self._save_seconds
