"""Ctrl-C and SIGTERM: the first asks to stop, the second one insists."""

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Iterator
from typing import Any, Self

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class StopRequested(BaseException):
    """Raised inside `StopSignals.interruptible`; no `except Exception`."""


class StopSignals:
    """While entered, a signal is noted in `requested` instead of ending us.

    A second one does at once what it did before: Ctrl-C raises
    KeyboardInterrupt, SIGTERM ends the process. What is on disk is whole at
    any time, see `files`.

    Attributes:
      requested: the name of the signal that came, "SIGINT" say, or None.
    """

    def __init__(self) -> None:
        self.requested: str | None = None
        self._previous: dict[int, Any] = {}
        self._may_raise = False

    def __enter__(self) -> Self:
        # Python delivers signals to the main thread alone.
        if threading.current_thread() is threading.main_thread():
            self._previous = {
                number: signal.signal(number, self._handle)
                for number in _SIGNALS
            }
        return self

    def __exit__(self, *exception: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        self._previous = {}

    def check(self) -> None:
        """Raises StopRequested if a signal has come."""
        if self.requested:
            raise StopRequested

    @contextlib.contextmanager
    def interruptible(self) -> Iterator[None]:
        """Work that may be broken off anywhere: StopRequested ends it."""
        self._may_raise = True
        try:
            self.check()
            yield
        finally:
            self._may_raise = False

    def _handle(self, number: int, frame: object) -> None:
        del frame
        name = signal.Signals(number).name
        if self.requested:
            # Also shows the cursor, which a progress bar hides.
            cursor = "\x1b[?25h" if sys.stderr.isatty() else ""
            os.write(2, f"{cursor}\n{name} again: stopping.\n".encode())
            self.__exit__()
            signal.raise_signal(number)
            return
        self.requested = name
        os.write(
            2, f"\n{name}: saving, then stopping; again to stop now.\n".encode()
        )
        if self._may_raise:
            self._may_raise = False
            raise StopRequested
