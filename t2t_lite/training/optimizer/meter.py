"""`Meter`: what the updates of a run did, in all and lately."""

import contextlib
import math
import time
from collections.abc import Iterator
from typing import Any

from t2t_lite.training.optimizer.updates import UpdateStats


class Meter:
    """Adds up what updates did, reading their stats from the device late.

    Args:
      seconds: that the updates of a run took before.
      skipped: how many of them were skipped.
      source_tokens: trained on before, real ones.
      target_tokens: likewise.

    Attributes:
      seconds: in all; added to by `timed`.
      skipped: in all, of the updates that were read.
      source_tokens, target_tokens: likewise.
      skipped_in_a_row: of the last ones read.
    """

    def __init__(
        self,
        seconds: float = 0.0,
        skipped: int = 0,
        source_tokens: float = 0.0,
        target_tokens: float = 0.0,
    ):
        self.seconds = seconds
        self.skipped = skipped
        self.source_tokens = source_tokens
        self.target_tokens = target_tokens
        self.skipped_in_a_row = 0
        self._unread: list[UpdateStats] = []
        self.start_interval()

    def totals(self) -> dict[str, Any]:
        """What another `Meter` goes on from: its arguments."""
        return {
            "seconds": self.seconds,
            "skipped": self.skipped,
            "source_tokens": self.source_tokens,
            "target_tokens": self.target_tokens,
        }

    def start_interval(self) -> None:
        """Forgets the updates that `loss` and the like tell of."""
        self._seconds_before = self.seconds
        self._interval: list[UpdateStats] = []

    @contextlib.contextmanager
    def timed(self) -> Iterator[None]:
        """Counts the time of updates; evaluating and saving is outside."""
        start = time.monotonic()
        yield
        self.seconds += time.monotonic() - start

    def add(self, stats: UpdateStats) -> None:
        """Notes an update, and reads the ones before it.

        They are done when this one has been handed to the device: to read
        them keeps nothing waiting.
        """
        self._read()
        self._unread.append(stats)

    def read(self) -> None:
        """Waits for the update under way."""
        with self.timed():
            self._read()

    @property
    def learning_rate(self) -> float:
        """Of the last update read."""
        return self._interval[-1].learning_rate

    @property
    def skipped_in_interval(self) -> int:
        """Updates skipped since the interval started."""
        return sum(bool(each.skipped) for each in self._interval)

    @property
    def loss(self) -> float:
        """Smoothed cross-entropy per real target token, in nats."""
        made = self._made()
        return _ratio(
            sum(each.loss_sum for each in made),
            sum(each.target_tokens for each in made),
        )

    @property
    def gradient_norm(self) -> float:
        """Mean over the updates that were not skipped."""
        made = self._made()
        return _ratio(sum(each.gradient_norm for each in made), len(made))

    @property
    def tokens_per_second(self) -> float:
        """Real tokens trained on, source and target together."""
        tokens = sum(
            each.source_tokens + each.target_tokens for each in self._interval
        )
        return _ratio(tokens, self.seconds - self._seconds_before)

    @property
    def padding(self) -> float:
        """The share of the positions trained on that held no token, 0-1."""
        tokens = sum(
            each.source_tokens + each.target_tokens for each in self._interval
        )
        positions = sum(each.positions for each in self._interval)
        return 1 - _ratio(tokens, positions)

    def _made(self) -> list[UpdateStats]:
        """The updates of the interval that were not skipped."""
        return [each for each in self._interval if not each.skipped]

    def _read(self) -> None:
        for stats in self._unread:
            read = stats.read()
            self._interval.append(read)
            self.source_tokens += read.source_tokens
            self.target_tokens += read.target_tokens
            self.skipped += int(read.skipped)
            self.skipped_in_a_row += 1
            if not read.skipped:
                self.skipped_in_a_row = 0
        self._unread.clear()


def _ratio(total: float, count: float) -> float:
    return total / count if count else math.nan
