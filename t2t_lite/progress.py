"""Progress on stderr: a live bar on a terminal, else a line every 30 seconds.

This is the only module that uses rich, which it imports when work starts.
"""

import contextlib
import sys
import time
from typing import IO, Self, TextIO

_SECONDS_BETWEEN_LINES = 30
_SPEED_WINDOW_SECONDS = 1800  # window of the mean speed for the ETA


def log(text: str, stream: IO[str] | None = None) -> None:
    """Write a line to stderr, even if its reader, such as `tee`, has ended."""
    with contextlib.suppress(OSError):
        print(text, file=stream or sys.stderr, flush=True)


def duration(seconds: float) -> str:
    """Return "0.4 s", "12 min 30 s", "2 h 5 min" or "3 days 4 h"."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    units = {"days" if days > 1 else "day": days, "h": hours, "min": minutes}
    counts = [(count, name) for name, count in (units | {"s": seconds}).items()]
    while not counts[0][0]:
        del counts[0]
    return " ".join(f"{count:,} {name}" for count, name in counts[:2] if count)


def gib(count: int) -> str:
    """Return a number of bytes as text in GiB."""
    return f"{count / 2**30:,.2f} GiB"


class Counter:
    """A progress counter, shown inside the context manager.

    The `label` names the work, such as "wmt_ende train". `advance` counts
    things, with the plural `unit`, from `done` to `total`. The default stream
    is stderr, and `is_live` is true for a bar on a terminal, which remains
    there if `stays` is true.
    """

    def __init__(
        self,
        label: str,
        unit: str = "",
        shown: bool = True,
        total: float | None = None,
        *,
        done: int = 0,
        stream: TextIO | None = None,
        stays: bool = False,
    ):
        from rich import progress
        from rich.console import Console

        self._label, self._unit, self._shown = label, unit, shown
        self._console = Console(
            file=stream or sys.stderr, highlight=False, soft_wrap=True
        )
        # Not for TERM=dumb, nor for FORCE_COLOR with a file.
        is_tty = self._console.is_interactive and self._console.file.isatty()
        self.is_live = shown and is_tty
        self._time_left = progress.TimeRemainingColumn()
        self._progress = progress.Progress(
            progress.TextColumn("{task.description}", markup=False),
            progress.BarColumn(bar_width=None),  # pulses without a total
            progress.TextColumn("{task.fields[status]}", markup=False),
            "ETA",
            self._time_left,
            console=self._console,
            disable=not self.is_live,
            expand=True,
            redirect_stdout=False,  # stdout is for results
            get_time=time.monotonic,
            refresh_per_second=2,  # a low rate saves CPU time
            speed_estimate_period=_SPEED_WINDOW_SECONDS,
            transient=not stays,
        )
        self._task = self._progress.add_task(
            label, total=total, completed=done, status=""
        )
        self._count = 0.0
        self._started = self._written = time.monotonic()

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._progress.stop()

    def update(
        self, status: str, done: float | None = None, label: str | None = None
    ) -> None:
        """Change the status, and the count and the label if they are given."""
        self._progress.update(
            self._task, status=status, completed=done, description=label
        )

    @property
    def time_left(self) -> str:
        """The estimated time left, such as "1:23:20"; "-:--:--" if unknown."""
        return str(self._time_left.render(self._progress.tasks[0]))

    def log(self, text: str) -> None:
        """Write a line above the bar."""
        if self.is_live:
            self._console.print(text, markup=False, emoji=False)
        else:
            log(text, self._console.file)

    def advance(self, count: float) -> None:
        """Add to the count; without a terminal log it every 30 seconds."""
        self._count += count
        now = time.monotonic()
        rate = self._count / max(now - self._started, 1e-3)
        digits = 0 if rate >= 10 else 1
        speed = f"{rate:,.{digits}f} {self._unit}/s"
        status = f"{self._count:,.0f} {self._unit}  {speed}"
        self.update(status, self._count)
        late = now - self._written > _SECONDS_BETWEEN_LINES
        if late and self._shown and not self.is_live:
            self._written = now
            is_known = self._progress.tasks[0].total is not None
            left = f"  ETA {self.time_left}" if is_known else ""
            log(f"{self._label}: {status}{left}")
