"""How far work has come, told on stderr: live on a terminal, else in lines.

This is the only place that sets up rich, and it does so when work starts.
"""

import sys
import time
from typing import Self, TextIO

_SECONDS_BETWEEN_LINES = 30
_SECONDS_OF_SPEED = 1800  # the time left follows from the speed of the last


def say(text: str) -> None:
    """Writes a line to stderr; stdout is for results."""
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def duration(seconds: float) -> str:
    """Seconds in words: "0.4 s", "12 min 30 s", "2 h 5 min", "3 days 4 h"."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    rest = round(seconds)
    parts = []
    for name, size in (("day", 86400), ("h", 3600), ("min", 60), ("s", 1)):
        count, rest = divmod(rest, size)
        if name == "day" and count > 1:
            name = "days"
        parts.append((count, f"{count:,} {name}"))
    first = next(i for i, (count, _) in enumerate(parts) if count)
    return " ".join(text for count, text in parts[first : first + 2] if count)


class Line:
    """A line about some work. On a terminal it is live, with a bar.

    Enter it to show it. What is printed with `say` appears above it.

    Args:
      label: what is going on, such as "wmt_ende train".
      total: where the work ends; None where that is not known.
      done: where it starts.
      stream: where people look; None means stderr.
      shown: False shows nothing.
      stays: on the terminal, after the end.

    Attributes:
      is_live: whether the line is shown; if not, `update` only keeps count.
    """

    def __init__(
        self,
        label: str,
        total: float | None = None,
        done: int = 0,
        stream: TextIO | None = None,
        shown: bool = True,
        stays: bool = False,
    ):
        from rich import progress
        from rich.console import Console

        self._console = Console(
            file=stream or sys.stderr, highlight=False, soft_wrap=True
        )
        self.is_live = shown and self._console.is_terminal
        text = progress.TextColumn("{task.description}", markup=False)
        status = progress.TextColumn("{task.fields[status]}", markup=False)
        self._time_left = progress.TimeRemainingColumn()
        columns: list[progress.ProgressColumn | str]
        columns = [progress.SpinnerColumn(), text, status]
        if total is not None:
            bar = progress.BarColumn(bar_width=None)
            columns = [text, bar, status, "ETA", self._time_left]
        self._progress = progress.Progress(
            *columns,
            console=self._console,
            disable=not self.is_live,
            expand=total is not None,
            redirect_stdout=False,  # results are no part of the display
            get_time=time.monotonic,
            refresh_per_second=2,  # the cores are for the work
            speed_estimate_period=_SECONDS_OF_SPEED,
            transient=not stays,
        )
        self._task = self._progress.add_task(
            label, total=total, completed=done, status=""
        )

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._progress.stop()

    def update(
        self, status: str, done: float | None = None, label: str | None = None
    ) -> None:
        """Changes the line; None leaves a part as it is."""
        self._progress.update(
            self._task, status=status, completed=done, description=label
        )

    @property
    def time_left(self) -> str:
        """Until `total`, such as "1:23:20"; "-:--:--" if not yet known."""
        return str(self._time_left.render(self._progress.tasks[0]))

    def say(self, text: str) -> None:
        """Writes a line of its own."""
        self._console.print(text, markup=False)


class Counter(Line):
    """Counts: a live line on a terminal, elsewhere a line now and then.

    Args: as in `Line`, and
      unit: of what is counted, such as "pairs".
    """

    def __init__(
        self,
        label: str,
        unit: str,
        shown: bool = True,
        total: float | None = None,
    ):
        super().__init__(label, total, shown=shown)
        self._label, self._unit, self._shown = label, unit, shown
        self._total = total
        self._count = 0.0
        self._started = self._told = time.monotonic()

    def advance(self, count: float) -> None:
        """Adds to the count."""
        self._count += count
        now = time.monotonic()
        rate = self._count / max(now - self._started, 1e-3)
        digits = 0 if rate >= 10 else 1
        status = (
            f"{self._count:,.0f} {self._unit}  "
            f"{rate:,.{digits}f} {self._unit}/s"
        )
        self.update(status, self._count)
        if self.is_live or not self._shown:
            return
        if now - self._told > _SECONDS_BETWEEN_LINES:
            self._told = now
            left = f"  ETA {self.time_left}" if self._total else ""
            say(f"{self._label}: {status}{left}")
