"""Ctrl-C and SIGTERM ask to stop, SIGUSR1 to save; a second one insists."""

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Iterator
from typing import Any, Self

_STOP = (signal.SIGINT, signal.SIGTERM)
# Python notices a signal between two steps of its own. One that insists ends
# the process if that takes longer, as in a search of TensorFlow.
_NOTICED_SECONDS = 1.0
# What Python calls while it collects garbage may swallow StopRequested; so it
# is raised again.
_AGAIN_SECONDS = 1.0


class StopRequested(BaseException):
    """Says why to stop, "SIGTERM" say. No `except Exception` catches it."""


class StopSignals:
    """While entered, a signal is noted instead of ending us.

    A second one that asks to stop does at once what it did before: Ctrl-C
    raises KeyboardInterrupt, SIGTERM ends the process; both end it where
    Python does not get to that. What is on disk is whole at any time, see
    `files`.

    Attributes:
      requested: the name of the signal that came, "SIGINT" say, or None.
      save_requested: whether SIGUSR1 came since `take_save_request`.
    """

    def __init__(self) -> None:
        self.requested: str | None = None
        self.save_requested = False
        self._previous: dict[int, Any] = {}
        self._may_raise = False
        self._noticed = threading.Event()
        self._writer = -1

    def __enter__(self) -> Self:
        # Python delivers signals to the main thread alone.
        if threading.current_thread() is threading.main_thread():
            handlers = dict.fromkeys(_STOP, self._note_stop)
            handlers[signal.SIGUSR1] = self._note_save
            self._previous = {
                number: signal.signal(number, handler)
                for number, handler in handlers.items()
            }
            self._noticed.clear()
            reader, self._writer = os.pipe()
            os.set_blocking(self._writer, False)
            self._woken = signal.set_wakeup_fd(
                self._writer, warn_on_full_buffer=False
            )
            watcher = threading.Thread(
                target=self._watch, args=(reader,), daemon=True
            )
            watcher.start()
        return self

    def __exit__(self, *exception: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        self._previous = {}
        self._noticed.set()
        if self._writer >= 0:
            signal.set_wakeup_fd(self._woken)
            os.close(self._writer)
            self._writer = -1

    def _watch(self, reader: int) -> None:
        """Ends the process if a signal insists and is not noticed."""
        count = 0
        while came := os.read(reader, 1):  # closed at the end
            count += came[0] in _STOP
            if count > 1 and not self._noticed.wait(_NOTICED_SECONDS):
                _say_again(came[0])
                os._exit(128 + came[0])
        os.close(reader)

    def take_save_request(self) -> bool:
        """Whether SIGUSR1 has come since this was last asked."""
        taken, self.save_requested = self.save_requested, False
        return taken

    @contextlib.contextmanager
    def interruptible(
        self, seconds: float | None = None, why: str = ""
    ) -> Iterator[None]:
        """Work that may be broken off anywhere: StopRequested ends it.

        Args:
          seconds: after so many, too; only in the main thread.
          why: what StopRequested then says.
        """
        is_main = bool(self._previous)

        def ring(number: int, frame: object) -> None:
            del number, frame
            self._break_off(self.requested or why)

        def tell(unraisable: Any) -> None:
            # A stop that was swallowed comes again: no traceback of it.
            if not issubclass(unraisable.exc_type, StopRequested):
                hook(unraisable)

        before = signal.signal(signal.SIGALRM, ring) if is_main else None
        hook, sys.unraisablehook = sys.unraisablehook, tell
        try:
            self._may_raise = True
            if self.requested:
                raise StopRequested(self.requested)
            if is_main and seconds is not None:
                # 0 would turn it off.
                signal.setitimer(signal.ITIMER_REAL, max(seconds, 1e-6))
            yield
        finally:
            self._may_raise = False
            sys.unraisablehook = hook
            if is_main:
                signal.setitimer(signal.ITIMER_REAL, 0)
                signal.signal(signal.SIGALRM, before)

    def _break_off(self, why: str) -> None:
        if self._may_raise:
            signal.setitimer(signal.ITIMER_REAL, _AGAIN_SECONDS)
            raise StopRequested(why)

    def _note_save(self, number: int, frame: object) -> None:
        del number, frame
        self.save_requested = True
        os.write(2, b"\nSIGUSR1: saving after this update, then going on.\n")

    def _note_stop(self, number: int, frame: object) -> None:
        del frame
        name = signal.Signals(number).name
        if self.requested:
            _say_again(number)
            self.__exit__()
            signal.raise_signal(number)
            return
        self.requested = name
        os.write(
            2, f"\n{name}: saving, then stopping; again to stop now.\n".encode()
        )
        self._break_off(name)


def _say_again(number: int) -> None:
    """Says that a signal insists; also shows the cursor, which a bar hides."""
    cursor = "\x1b[?25h" if sys.stderr.isatty() else ""
    name = signal.Signals(number).name
    os.write(2, f"{cursor}\n{name} again: stopping.\n".encode())
