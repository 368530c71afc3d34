"""Ctrl-C and SIGTERM ask to stop, SIGUSR1 to save; a second one insists."""

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Iterator
from typing import Any, Self

_STOP = (signal.SIGINT, signal.SIGTERM)


class StopRequested(BaseException):
    """Says why to stop, "SIGTERM" say. No `except Exception` catches it."""


class StopSignals:
    """While entered, a signal is noted instead of ending us.

    A second one that asks to stop does at once what it did before: Ctrl-C
    raises KeyboardInterrupt, SIGTERM ends the process. What is on disk is
    whole at any time, see `files`.

    Attributes:
      requested: the name of the signal that came, "SIGINT" say, or None.
    """

    def __init__(self) -> None:
        self.requested: str | None = None
        self._save_requested = False
        self._previous: dict[int, Any] = {}
        self._may_raise = False
        self._expected = False

    def __enter__(self) -> Self:
        # Python delivers signals to the main thread alone.
        if threading.current_thread() is threading.main_thread():
            handlers = dict.fromkeys(_STOP, self._note_stop)
            handlers[signal.SIGUSR1] = self._note_save
            self._previous = {
                number: signal.signal(number, handler)
                for number, handler in handlers.items()
            }
        return self

    def __exit__(self, *exception: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        self._previous = {}

    def take_save_request(self) -> bool:
        """Whether SIGUSR1 has come since this was last asked."""
        taken, self._save_requested = self._save_requested, False
        return taken

    def ask(self, name: str) -> None:
        """Does as if a signal came here that came to another process.

        It may be called in any thread. A scheduler that signals all processes
        does not insist with the one that comes here next.
        """
        if not self.requested:
            self._expected = True
            os.kill(os.getpid(), getattr(signal, name))

    @contextlib.contextmanager
    def interruptible(
        self, seconds: float | None = None, why: str = ""
    ) -> Iterator[None]:
        """Work that may be broken off anywhere: StopRequested ends it.

        Args:
          seconds: after so many, too; only in the main thread.
          why: what StopRequested then says.
        """
        self._may_raise = True
        try:
            if self.requested:
                raise StopRequested(self.requested)
            with self._alarm(seconds, why):
                yield
        finally:
            self._may_raise = False

    @contextlib.contextmanager
    def _alarm(self, seconds: float | None, why: str) -> Iterator[None]:
        if seconds is None or not self._previous:
            yield
            return

        def ring(number: int, frame: object) -> None:
            del number, frame
            self._break_off(why)

        before = signal.signal(signal.SIGALRM, ring)
        try:
            # 0 would turn it off.
            signal.setitimer(signal.ITIMER_REAL, max(seconds, 1e-6))
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)

    def _break_off(self, why: str) -> None:
        if self._may_raise:
            self._may_raise = False
            raise StopRequested(why)

    def _note_save(self, number: int, frame: object) -> None:
        del number, frame
        self._save_requested = True
        os.write(2, b"\nSIGUSR1: saving after this update, then going on.\n")

    def _note_stop(self, number: int, frame: object) -> None:
        del frame
        name = signal.Signals(number).name
        if self.requested and self._expected:
            self._expected = False
            return
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
        self._break_off(name)
