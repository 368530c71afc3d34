"""How far something of unknown length has come, told on stderr."""

import sys
import time

_SECONDS_BETWEEN_LINES = 30


def say(text: str) -> None:
    """Writes a line to stderr; stdout is for results."""
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


class Counter:
    """Counts: a live line on a terminal, elsewhere a line now and then.

    Args:
      label: what is going on, such as "wmt_ende train".
      unit: of what is counted, such as "pairs".
      shown: False counts silently.
    """

    def __init__(self, label: str, unit: str, shown: bool = True):
        self._label = label
        self._unit = unit
        self._shown = shown
        self._count = 0
        self._bar = None

    def __enter__(self):
        self._started = self._told = time.monotonic()
        if self._shown and sys.stderr.isatty():
            self._bar = _bar(self._unit)
            self._task = self._bar.add_task(self._label, total=None, rate=0)
            self._bar.start()
        return self

    def __exit__(self, *_):
        if self._bar is not None:
            self._bar.stop()

    def advance(self, count: int) -> None:
        """Adds to the count."""
        self._count += count
        now = time.monotonic()
        if self._bar is not None:
            rate = self._count / max(now - self._started, 1e-3)
            self._bar.update(self._task, completed=self._count, rate=rate)
        elif self._shown and now - self._told > _SECONDS_BETWEEN_LINES:
            self._told = now
            say(f"{self._label}: {self._count:,} {self._unit}")


def _bar(unit):
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn

    return Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        TextColumn(f"{{task.completed:,}} {unit}"),
        TextColumn(f"{{task.fields[rate]:,.0f}} {unit}/s"),
        console=Console(stderr=True),
        transient=True,
    )
