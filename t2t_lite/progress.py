"""Progress on stderr: live on a terminal, elsewhere a line now and then.

This is the only module that sets up rich, and it does so when work starts.
"""

import sys
import time
from typing import Self, TextIO

_SECONDS_BETWEEN_LINES = 30
_SECONDS_OF_SPEED = 1800  # the window of the speed from which the ETA follows


def log(text: str) -> None:
    """Write a line to stderr; stdout is for results."""
    print(text, file=sys.stderr, flush=True)


def duration(seconds: float) -> str:
    """Return "0.4 s", "12 min 30 s", "2 h 5 min" or "3 days 4 h"."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    units = {"days" if days > 1 else "day": days, "h": hours, "min": minutes}
    parts = [(count, name) for name, count in (units | {"s": seconds}).items()]
    while not parts[0][0]:
        del parts[0]
    return " ".join(f"{count:,} {name}" for count, name in parts[:2] if count)


def gib(count: int) -> str:
    """Return a number of bytes in GiB, with its unit."""
    return f"{count / 2**30:,.2f} GiB"


class Counter:
    """A count of some work: live with a bar on a terminal, else now and then.

    Enter it to show it, unless `shown` is false. The `label` names the work,
    such as "wmt_ende train", the `unit` is the plural of the things that
    `advance` counts, from `done` to `total` if that is known. Text from `log`
    appears above it. The stream is stderr by default. A line that `stays`
    remains on the terminal after the end.

    Attributes:
      is_live: whether the line is on a terminal; if not, `update` only counts.
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
        self.is_live = shown and self._console.is_terminal
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
            redirect_stdout=False,  # results do not belong to the display
            get_time=time.monotonic,
            refresh_per_second=2,  # the cores are for the work
            speed_estimate_period=_SECONDS_OF_SPEED,
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
        """Change the parts of the line that are not None."""
        self._progress.update(
            self._task, status=status, completed=done, description=label
        )

    @property
    def time_left(self) -> str:
        """The time until `total`, such as "1:23:20"; "-:--:--" if unknown."""
        return str(self._time_left.render(self._progress.tasks[0]))

    def log(self, text: str) -> None:
        """Write a line of its own."""
        self._console.print(text, markup=False)

    def advance(self, count: float) -> None:
        """Add to the count; without a terminal report it every half minute."""
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
