"""What every thread is doing, when training has not moved for a while."""

import contextlib
import faulthandler
import os
import pathlib
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from typing import IO, Self

LOG = "stall.log"
_COPY_SECONDS = 5.0  # to end what copies
# Copies what it reads to stderr and to the end of a file, which is made when
# there is something to read. It ends with us, and not before: who signals all
# processes of a job means us.
_COPY = r"""
trap '' HUP INT TERM USR1
IFS= read -r first &&
  { printf '\n%s\n%s\n' "$1" "$first"; cat; } | tee -a "$0" >&2
"""


class StallWatch:
    """While entered, writes all Python stacks once nothing moves any more.

    They go to stderr and are appended to a file. Once a stall; what hangs is
    left alone, because it may go on by itself. While a call keeps Python's lock
    no thread of Python runs; then a thread of C writes what it can.

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
        with self._copied() as copy:
            while True:
                # This thread takes part in Python as long as it comes here.
                faulthandler.dump_traceback_later(limit, file=copy)
                if self._ended.wait(limit / 10):
                    break
                moved_at = self._moved_at
                if moved_at != told_of and time.monotonic() - moved_at >= limit:
                    told_of = moved_at
                    self._tell()

    @contextlib.contextmanager
    def _copied(self) -> Iterator[IO[bytes] | int]:
        """What goes to stderr and the log without Python's doing."""
        told = (
            f"A call has kept Python's lock for {self._minutes:g} minutes, so "
            "that nothing else runs. The stacks of all threads follow, and are "
            f"in {self._log}."
        )
        try:
            copier = subprocess.Popen(
                ["sh", "-c", _COPY, str(self._log), told],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                start_new_session=True,
            )
        except OSError:  # no shell
            copier = None
        try:
            yield copier.stdin if copier and copier.stdin else 2
        finally:
            faulthandler.cancel_dump_traceback_later()
            if copier and copier.stdin:
                copier.stdin.close()
                # A process that we forked may still hold the other end.
                with contextlib.suppress(subprocess.TimeoutExpired):
                    copier.wait(_COPY_SECONDS)

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
