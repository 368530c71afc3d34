"""A limit on a process's minutes, such as a queue sets: leave before it."""

import collections
import math
import os
import pathlib
import time

_STARTED = time.monotonic()
# An update may take longer than the ones before it, a save than the last one.
_LATELY = 100  # updates
_SAVES = 1.5  # of the last one
_MARGIN = 5.0  # seconds to end the process in; TensorFlow takes its time


class Deadline:
    """Tells when to stop so that a save still ends in time.

    Args:
      minutes: from the start of the process; None sets no limit.
      save_seconds: what a save takes, as long as none was made.

    Attributes:
      name: for people, "--max_minutes=60".
    """

    def __init__(self, minutes: float | None, save_seconds: float = 0.0):
        self.name = f"--max_minutes={minutes:g}" if minutes else ""
        self._ends_at = math.inf
        if minutes is not None:
            left = minutes * 60 - process_seconds()
            self._ends_at = time.monotonic() + left
        self._save_seconds = save_seconds
        self._updates: collections.deque[float] = collections.deque(
            [0.0], maxlen=_LATELY
        )

    def updated(self, seconds: float) -> None:
        """Notes how long an update took."""
        self._updates.append(seconds)

    def saved(self, seconds: float) -> None:
        """Notes how long a save took."""
        self._save_seconds = seconds

    @property
    def seconds_left(self) -> float:
        """Until a save must begin."""
        save = self._save_seconds * _SAVES + _MARGIN
        return self._ends_at - save - time.monotonic()

    @property
    def leaves_no_update(self) -> bool:
        """Whether another update might end too late for the save."""
        return self.seconds_left <= max(self._updates)


def process_seconds() -> float:
    """How long this process has run."""
    try:
        stat = pathlib.Path("/proc/self/stat").read_text("ascii", "replace")
        ticks = int(stat.rpartition(")")[2].split()[19])  # since the boot
        started = ticks / os.sysconf("SC_CLK_TCK")
        return time.clock_gettime(time.CLOCK_BOOTTIME) - started
    except (OSError, AttributeError):  # no Linux
        return time.monotonic() - _STARTED
