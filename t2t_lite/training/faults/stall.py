"""A watchdog for training that hangs."""

import faulthandler
from typing import Self


class HangWatchdog:
    """While entered, writes the stacks of all threads to stderr after a hang.

    A thread of C writes them, so a call that holds the GIL shows, too. Training
    is not ended: a file system that hangs may come back.

    Args:
      minutes: without a call of `moved`; 0 turns the watchdog off.
    """

    def __init__(self, minutes: float):
        self._seconds = minutes * 60

    def __enter__(self) -> Self:
        self.moved()
        return self

    def __exit__(self, *exception: object) -> None:
        if self._seconds:
            faulthandler.cancel_dump_traceback_later()

    def moved(self) -> None:
        """Report progress; restarts the clock."""
        if self._seconds:
            faulthandler.dump_traceback_later(self._seconds, file=2)
