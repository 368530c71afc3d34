"""Asking again, later and later, while a server is busy or away."""

import math
import random
import threading
import time
from collections.abc import Callable
from typing import TypeVar

from t2t_lite.errors import T2TLiteError

Found = TypeVar("Found")

_FIRST_WAIT, _LONGEST_WAIT = 0.2, 10.0  # seconds
_BETWEEN_NOTES = 30.0  # seconds


class Busy(T2TLiteError):
    """The server cannot answer now, but may later.

    Args:
      message: why.
      wait: seconds that it asks to wait.
    """

    def __init__(self, message: str, wait: float = 0.0):
        super().__init__(message)
        self.wait = wait


class Refused(T2TLiteError):
    """The server's answer is no, and stays no.

    Args:
      message: why.
      for_a_text: whether it may be about one of the texts: others that were
        sent with it may have an answer.
    """

    def __init__(self, message: str, for_a_text: bool = False):
        super().__init__(message)
        self.for_a_text = for_a_text


class Late(Refused):
    """No answer came in time: a text takes long, or the server hangs.

    Args:
      message: why.
    """

    def __init__(self, message: str):
        super().__init__(message, for_a_text=True)


class Patience:
    """Calls something until it is not `Busy`, or the time is over.

    Once that was in vain, a server is asked only once, until it answers: a
    file of a million lines must not wait for a dead server line by line.

    Args:
      seconds: that an answer may take, all tries together.
      note: is told that it waits: why, and how many seconds at most. Once
        until there is an answer again, not more often than every 30 seconds,
        and not of the first short wait. It is called in any thread.
      sleep, clock: stand in for those of `time`.
    """

    def __init__(
        self,
        seconds: float,
        note: Callable[[str, float], None] = lambda *_: None,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ):
        self._seconds = seconds
        self._note = note
        self._sleep = sleep
        self._clock = clock
        self._in_vain = False
        self._waiting = False
        self._noted = -math.inf
        self._lock = threading.Lock()

    @property
    def in_vain(self) -> bool:
        """Whether time has passed without an answer, and none came since."""
        return self._in_vain

    def __call__(self, ask: Callable[[float], Found]) -> Found:
        """What `ask(seconds left)` gives.

        Raises:
          Refused: it is, or it is still busy.
        """
        begin = self._clock()
        end = begin + self._seconds
        wait = _FIRST_WAIT
        tries = 1
        while True:
            try:
                found = ask(end - self._clock())
                self._in_vain = self._waiting = False
                return found
            except Late:
                self._in_vain = True
                raise
            except Busy as busy:
                # Clients that were refused together should not return together.
                pause = max(busy.wait, wait * random.uniform(0.5, 1))
                left = end - self._clock()
                if self._in_vain or pause >= left:
                    self._in_vain = True
                    times = "once" if tries == 1 else f"{tries} times"
                    raise Refused(f"{busy} (asked {times})") from busy
                if self._clock() + pause - begin > _FIRST_WAIT:
                    self._say(str(busy), left)
            self._sleep(pause)
            wait = min(2 * wait, _LONGEST_WAIT)
            tries += 1

    def _say(self, why: str, left: float) -> None:
        with self._lock:
            now = self._clock()
            told = self._waiting or now - self._noted < _BETWEEN_NOTES
            if not told:
                self._waiting, self._noted = True, now
                self._note(why, left)
