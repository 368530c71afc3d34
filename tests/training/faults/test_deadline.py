"""Leaving before a queue's limit: what is left of the time, and for what."""

import math
import os
import signal
import subprocess
import sys
import time

import pytest

from t2t_lite.training.faults import deadline as module
from t2t_lite.training.faults.deadline import Deadline, process_seconds
from t2t_lite.training.faults.decisions import Decisions
from t2t_lite.training.faults.signals import StopRequested, StopSignals


@pytest.fixture
def clock(monkeypatch):
    """A clock to set, of a process that has run for 100 s at its start."""
    now = [0.0]
    monkeypatch.setattr(module, "process_seconds", lambda: now[0] + 100)
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    return now


def test_the_time_of_a_process_counts_from_its_start():
    code = (
        "import time; time.sleep(0.5)\n"
        "from t2t_lite.training.faults.deadline import process_seconds\n"
        "print(process_seconds())"
    )
    out = subprocess.check_output([sys.executable, "-c", code], text=True)
    assert float(out) >= 0.5
    assert process_seconds() > 0


def test_room_for_a_save_and_for_an_update_is_kept(clock):
    # 300 s in all, 100 s of which are gone; 5 s end the process.
    deadline = Deadline(minutes=5, save_seconds=20)
    assert deadline.seconds_left == 200 - 1.5 * 20 - 5
    deadline.saved(40)
    assert deadline.seconds_left == 200 - 1.5 * 40 - 5
    deadline.updated(30)
    deadline.updated(10)
    clock[0] = 200 - 65 - 31
    assert not deadline.leaves_no_update
    clock[0] += 1
    assert deadline.leaves_no_update
    # An update that was long once, the one that makes graphs, is forgotten.
    for _ in range(100):
        deadline.updated(10)
    assert not deadline.leaves_no_update


def test_without_a_limit_nothing_ends():
    deadline = Deadline(None)
    deadline.updated(1e9)
    assert deadline.seconds_left == math.inf
    assert not deadline.leaves_no_update


def test_a_decision_says_what_to_do_and_why(clock):
    signals = StopSignals()
    deadline = Deadline(minutes=5)
    decisions = Decisions(signals, deadline, save_steps=3, save_minutes=10)
    assert decisions.decide(1) == (False, None)
    assert decisions.decide(3) == (True, None)
    clock[0] = 199.5
    assert decisions.decide(4) == (False, "--max_minutes=5")
    with pytest.raises(StopRequested, match="--max_minutes=5"):
        decisions.check()
    with pytest.raises(StopRequested, match="--max_minutes=5"):
        with decisions.interruptible():
            pass
    signals.requested = "SIGTERM"
    assert decisions.decide(4) == (False, "SIGTERM")


def test_workers_decide_together_when_one_of_them_wants_it(clock):
    def exchange(own):
        return [own, (True, None), (False, "SIGTERM")]

    deadline = Deadline(minutes=5)
    decisions = Decisions(StopSignals(), deadline, 3, 10, exchange)
    assert [decisions.is_wanted(step) for step in (1, 2, 3)] == [0, 0, 1]
    assert decisions.decide(3, is_wanted=False) == (False, None)
    assert decisions.decide(1, is_wanted=True) == (True, "SIGTERM")
    clock[0] = 199.5
    assert decisions.is_wanted(1)


def test_minutes_between_saves_count_from_the_last_one(clock):
    decisions = Decisions(
        StopSignals(), Deadline(None), save_steps=None, save_minutes=1
    )
    clock[0] = 59.0
    assert not decisions.decide(1).save
    clock[0] = 60.0
    assert decisions.decide(2).save
    with decisions.saving():
        clock[0] = 70.0
    clock[0] = 129.0
    assert not decisions.decide(3).save


@pytest.mark.own_process
def test_work_that_takes_too_long_is_broken_off():
    with StopSignals() as signals:
        with pytest.raises(StopRequested, match="the end"):
            with signals.interruptible(seconds=0.01, why="the end"):
                time.sleep(10)
        # Nothing rings later, and signals are noted as before.
        with signals.interruptible(seconds=1000, why="the end"):
            pass
        assert signal.getitimer(signal.ITIMER_REAL)[0] == 0
        os.kill(os.getpid(), signal.SIGTERM)
        assert signals.requested == "SIGTERM"


@pytest.mark.own_process
def test_sigusr1_asks_for_one_save():
    before = signal.getsignal(signal.SIGUSR1)
    with StopSignals() as signals:
        assert not signals.take_save_request()
        for _ in range(2):
            os.kill(os.getpid(), signal.SIGUSR1)
        assert signals.take_save_request()
        assert not signals.take_save_request()
        assert signals.requested is None
    assert signal.getsignal(signal.SIGUSR1) is before
