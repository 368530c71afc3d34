"""Stacks of all threads, once a stall, on stderr and in a file."""

import subprocess
import sys
import threading
import time

from support.tiny_run import TinyRun
from t2t_lite.training import trainer
from t2t_lite.training.faults.stall import StallWatch
from t2t_lite.training.options import TrainingOptions

MINUTES = 0.05 / 60


def wait_for(condition):
    """Waits until it holds; a minute is for a very busy machine."""
    for _ in range(6000):
        if condition():
            return
        time.sleep(0.01)
    raise AssertionError("it never came true")


def stalls(log):
    """How many of them a file tells of."""
    if not log.exists():
        return 0
    return log.read_text().count("no update and no evaluation has moved")


def test_a_stall_shows_every_thread_and_training_goes_on(tmp_path, capfd):
    run = TinyRun(tmp_path)
    log, limit = tmp_path / "stall.log", 1.0

    def hang_in_the_data(epoch, number):
        if number == 7:
            # Past the time at which a second one would be told of.
            wait_for(
                lambda: stalls(log) and "hang_in_the_data" in log.read_text()
            )
            threading.Event().wait(2 * limit)

    run.data.before_batch = hang_in_the_data
    # Longer than a busy machine pauses between a pass and the next batch.
    options = TrainingOptions(train_steps=4, stall_minutes=limit / 60)
    ended = threading.Event()
    for _ in range(150):  # the main one is told of among many
        threading.Thread(target=ended.wait, daemon=True).start()
    trainer.train(run, options, evaluate_text=lambda: {})
    ended.set()
    told = capfd.readouterr().err
    for text in (log.read_text(), told):
        stall = text.split("no update and no evaluation has moved")
        (hang,) = (part for part in stall if "hang_in_the_data" in part)
        assert f"are in {log}. Training goes on if it can." in hang
        assert "trainer.py" in hang


def test_each_stall_is_told_of_once(tmp_path):
    log = tmp_path / "stall.log"
    with StallWatch(MINUTES, log) as watch:
        wait_for(lambda: stalls(log) == 1)
        time.sleep(5 * MINUTES * 60)
        assert stalls(log) == 1
        watch.moved()
        wait_for(lambda: stalls(log) == 2)


# In a process of its own: faulthandler shows a hundred threads, and tests
# before this one may have left more.
KEEPS_THE_LOCK = """
import ctypes, pathlib, sys, time
from t2t_lite.training.faults.stall import StallWatch

log = pathlib.Path(sys.argv[1])

def keep():
    ctypes.PyDLL(None).usleep(4_000_000)  # a PyDLL's calls keep the lock
    return log.read_text()

with StallWatch(1 / 60, log) as watch:
    time.sleep(0.5)  # until it watches
    assert not log.exists()
    print(keep())
    watch.moved()
"""


def test_a_call_that_keeps_pythons_lock_is_shown_while_it_does(tmp_path):
    log = tmp_path / "stall.log"
    done = subprocess.run(
        [sys.executable, "-c", KEEPS_THE_LOCK, str(log)],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    at_its_end = done.stdout.strip()
    assert "A call has kept Python's lock" in at_its_end
    assert "in keep" in at_its_end
    assert at_its_end in log.read_text()
    assert at_its_end in done.stderr


def test_0_minutes_watch_nothing(tmp_path):
    before = threading.active_count()
    with StallWatch(0, tmp_path / "stall.log"):
        assert threading.active_count() == before


def test_the_watch_ends_with_training(tmp_path):
    before = threading.active_count()
    with StallWatch(30, tmp_path / "stall.log"):
        assert threading.active_count() == before + 1
    assert threading.active_count() == before
