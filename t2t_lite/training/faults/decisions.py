"""What time and signals ask for between two updates, in one place."""

import time
from typing import NamedTuple

from t2t_lite.training.faults.signals import StopSignals


class Decision(NamedTuple):
    """What is done now, in plain values, on which workers can agree."""

    save: bool = False
    stop: str | None = None  # why, "SIGTERM" say; None goes on


class Decisions:
    """Decides once between two updates.

    All that depends on a clock or on a signal is asked here and nowhere else
    in the loop: what follows from the number of the update, such as when to
    evaluate, is the same on every worker anyway.

    Args:
      signals: that came to this process.
      save_steps: updates between checkpoints.
      save_minutes: minutes between them, where `save_steps` is None.
    """

    def __init__(
        self,
        signals: StopSignals,
        save_steps: int | None,
        save_minutes: float,
    ):
        self._signals = signals
        self._save_steps = save_steps
        self._save_seconds = save_minutes * 60
        self._saved_at = time.monotonic()

    def decide(self, step: int) -> Decision:
        """What to do after the update `step`."""
        return Decision(
            save=self._save_is_due(step), stop=self._signals.requested
        )

    def saved(self) -> None:
        """Starts the time to the next checkpoint."""
        self._saved_at = time.monotonic()

    def _save_is_due(self, step: int) -> bool:
        if self._save_steps:
            return step % self._save_steps == 0
        return time.monotonic() - self._saved_at >= self._save_seconds
