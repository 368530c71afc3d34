"""What every thread is doing, when training has not moved for a while."""

import contextlib
import os
import pathlib
import sys
import threading
import time
import traceback
from typing import Self

LOG = "stall.log"


class StallWatch:
    """While entered, writes all Python stacks once nothing moves any more.

    They go to stderr and are appended to a file. Once a stall; what hangs is
    left alone, because it may go on by itself.

    Args:
      minutes: without a call of `moved`; 0 watches nothing.
      log: the file, made when it is needed.
    """

    def __init__(self, minutes: float, log: pathlib.Path):
        self._minutes = minutes
        self._log = log
        self._moved_at = time.monotonic()
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        if self._minutes:
            self._moved_at = time.monotonic()
            self._thread = threading.Thread(
                target=self._watch, name="stall watch", daemon=True
            )
            self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._ended.set()
        if self._thread:
            self._thread.join()

    def moved(self) -> None:
        """Notes that something was done."""
        self._moved_at = time.monotonic()

    def _watch(self) -> None:
        limit = self._minutes * 60
        told_of = None
        while not self._ended.wait(limit / 10):
            moved_at = self._moved_at
            if moved_at != told_of and time.monotonic() - moved_at >= limit:
                told_of = moved_at
                self._tell()

    def _tell(self) -> None:
        since = time.strftime("%Y-%m-%d %H:%M:%S")
        header = (
            f"\n{since}: no update and no evaluation has moved for "
            f"{self._minutes:g} minutes. The stacks of all threads follow, and "
            f"are in {self._log}. Training goes on if it can.\n"
        )
        told = f"{header}{_stacks()}".encode()
        os.write(2, told)
        # A disk that is full or hangs is no reason to fail.
        with contextlib.suppress(OSError), open(self._log, "ab") as file:
            file.write(told)


def _stacks() -> str:
    """What every thread of Python does, the main one first."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    main = threading.main_thread().ident
    frames = sys._current_frames()
    return "\n".join(
        f"Thread {names.get(ident, ident)}:\n"
        f"{''.join(traceback.format_stack(frames[ident]))}"
        for ident in sorted(frames, key=lambda ident: ident != main)
    )
