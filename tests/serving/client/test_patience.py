"""Asking again: how long, how often, and when no more."""

import pytest

from t2t_lite.serving.client.lines import Asking, ask_lines
from t2t_lite.serving.client.patience import Busy, Late, Patience, Refused


class Time:
    """A clock that only moves when somebody sleeps."""

    def __init__(self):
        self.now = 100.0
        self.slept = []

    def sleep(self, seconds):
        self.slept.append(seconds)
        self.now += seconds

    def patience(self, seconds, note=lambda *_: None):
        return Patience(seconds, note, self.sleep, lambda: self.now)


def busy(times, wait=0.0):
    """A call that is busy so often, then gives the seconds left."""
    left = [times]

    def ask(seconds):
        left[0] -= 1
        if left[0] >= 0:
            raise Busy("full", wait)
        return seconds

    return ask


def test_a_busy_server_is_asked_again_later_and_later():
    time = Time()
    left = time.patience(60)(busy(times=4))
    assert len(time.slept) == 4
    assert time.slept == sorted(time.slept)
    assert left == pytest.approx(60 - sum(time.slept))


def test_a_server_may_say_how_long_to_wait():
    time = Time()
    time.patience(60)(busy(times=1, wait=7))
    assert time.slept == [7]


def test_it_is_over_when_the_time_is():
    time = Time()
    with pytest.raises(Refused, match=r"^full \(asked \d+ times\)$"):
        time.patience(5)(busy(times=100))
    assert time.now <= 105


def test_after_a_wait_in_vain_there_is_one_try_until_one_succeeds():
    time = Time()
    patience = time.patience(5)
    with pytest.raises(Refused):
        patience(busy(times=100))
    time.slept.clear()
    with pytest.raises(Refused, match="asked once"):
        patience(busy(times=100))
    assert time.slept == []
    assert patience(busy(times=0)) == 5
    patience(busy(times=1))
    assert len(time.slept) == 1


def test_a_wait_is_told_at_once_and_once_until_there_is_an_answer():
    time = Time()
    told = []

    def note(why, seconds):
        told.append((why, time.now, seconds))

    patience = time.patience(60, note)
    patience(busy(times=1))
    assert told == []  # 0.2 seconds are not worth a word
    started = time.now
    patience(busy(times=6))
    assert [why for why, *_ in told] == ["full"]
    assert told[0][1] - started <= 0.2
    assert told[0][1] + told[0][2] == pytest.approx(started + 60)
    patience(busy(times=4))
    assert len(told) == 1  # not every few seconds
    time.now += 30
    patience(busy(times=6))
    assert len(told) == 2


def test_a_server_that_asks_to_wait_long_is_told_of_at_once():
    time = Time()
    told = []
    start = time.now
    time.patience(60, lambda *_: told.append(time.now))(busy(1, wait=7))
    assert told == [start]


def test_a_refusal_is_not_asked_again():
    time = Time()

    def refuse(seconds):
        raise Refused("no")

    with pytest.raises(Refused, match="^no$"):
        time.patience(60)(refuse)
    assert time.slept == []


class Slow:
    """A model that never answers texts that say so."""

    def __init__(self):
        self.asked = []

    def predict(self, signature, texts, seconds):
        self.asked.append(list(texts))
        if any("slow" in text for text in texts):
            raise Late("no answer")
        return {"outputs": [text.upper() for text in texts]}


def test_a_slow_text_costs_no_other_its_answer():
    asking = Asking(batch_size=4, at_once=1)
    lines = ask_lines(Slow(), [b"slow", b"a", b"b", b"c"], asking)
    found = [line.answer for line in lines]
    assert [answer.error for answer in found] == ["no answer", *[None] * 3]


def test_a_server_that_hangs_is_not_asked_for_each_of_many_texts():
    model = Slow()
    asking = Asking(batch_size=4, at_once=1)
    lines = list(ask_lines(model, [b"slow"] * 400, asking))
    assert len(lines) == 400 and all(line.answer.error for line in lines)
    # The first batch in all its parts, then every batch once.
    assert len(model.asked) == 7 + 99
