"""Progress: a live line on a terminal, otherwise a line every 30 seconds."""

import io
import sys
import time
from types import SimpleNamespace

import pytest

from t2t_lite.progress import Counter, duration, log


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (9.4, "9.4 s"),
        (59.7, "1 min"),
        (750, "12 min 30 s"),
        (7205, "2 h"),
        (90_000, "1 day 1 h"),
        (3_000_000, "34 days 17 h"),
    ],
)
def test_a_duration_has_its_two_largest_units(seconds, text):
    assert duration(seconds) == text


@pytest.fixture
def clock(monkeypatch):
    """Replace time.monotonic by a clock that tests set."""
    clock = SimpleNamespace(seconds=0.0)
    monkeypatch.setattr(time, "monotonic", lambda: clock.seconds)
    return clock


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_counter_without_a_terminal_writes_a_line_every_30_s(capsys, clock):
    with Counter("toy", "pairs", total=30_000) as counter:
        for clock.seconds in range(0, 75, 5):
            counter.advance(1000)
    assert capsys.readouterr().err.splitlines() == [
        "toy: 8,000 pairs  229 pairs/s  ETA 0:01:50",
        "toy: 15,000 pairs  214 pairs/s  ETA 0:01:15",
    ]


def test_counter_on_a_terminal_is_live(monkeypatch, clock):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stderr", Terminal())
    with Counter("file.gz", "MB", total=40) as counter:
        for clock.seconds in (1, 2):
            counter.advance(10)
    shown = sys.stderr.getvalue()
    for part in ("file.gz", "20 MB  10 MB/s", "ETA", "0:00:02"):
        assert part in shown


@pytest.mark.parametrize(
    ("name", "value", "stream"),
    [("TERM", "dumb", Terminal()), ("FORCE_COLOR", "1", io.StringIO())],
)
def test_a_stream_that_cannot_show_a_bar_gets_lines(
    monkeypatch, name, value, stream
):
    monkeypatch.setenv(name, value)
    with Counter("toy", stream=stream) as counter:
        counter.log("1:100:2 [b]")
    assert not counter.is_live
    assert stream.getvalue() == "1:100:2 [b]\n"


def test_work_continues_without_a_reader_of_its_messages(monkeypatch):
    lost = []

    class Closed(io.StringIO):
        def write(self, text):
            lost.append(text)
            raise BrokenPipeError

    monkeypatch.setattr(sys, "stderr", Closed())
    log("one")
    with Counter("toy") as counter:
        counter.log("two")
    assert lost == ["one", "two"]


def test_hidden_counter_writes_nothing(monkeypatch, clock):
    monkeypatch.setattr(sys, "stderr", Terminal())
    with Counter("toy train", "pairs", shown=False) as counter:
        clock.seconds = 99
        counter.advance(1)
    assert not sys.stderr.getvalue()


def test_time_left_uses_the_speed_after_the_first_update(clock):
    line = Counter("", total=1100, done=90, stream=io.StringIO())
    assert line.time_left == "-:--:--"
    for clock.seconds, done in ((50, 91), (55, 96), (59, 100)):
        line.update("", done)
    # The first update does not count: it may trace graphs.
    assert line.time_left == "0:16:40"
    line.update("", 1100)
    assert line.time_left == "0:00:00"
