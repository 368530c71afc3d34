"""The stacks of all threads, after a hang, on stderr."""

import subprocess
import sys
import time

from support.places import TESTS
from t2t_lite.training.faults.stall import HangWatchdog

HANGS = """
import time
from support.tiny_run import TinyRun
from t2t_lite.training import trainer
from t2t_lite.training.options import TrainingOptions

def hang_in_the_data(epoch, number):
    if number == 7:
        time.sleep(3)

import sys
run = TinyRun(sys.argv[1])
run.data.before_batch = hang_in_the_data
options = TrainingOptions(train_steps=4, stall_minutes=1 / 60)
trainer.train(run, options, evaluate_text=lambda: {})
print("trained")
"""


def test_a_hang_shows_the_stacks_and_training_continues(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", HANGS, tmp_path],
        cwd=TESTS,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "trained\n"
    assert "hang_in_the_data" in done.stderr


def test_progress_keeps_the_watchdog_quiet(capfd):
    with HangWatchdog(0.5 / 60) as watchdog:
        for _ in range(10):
            time.sleep(0.1)
            watchdog.moved()
    time.sleep(0.6)
    assert capfd.readouterr().err == ""


def test_zero_minutes_turn_it_off(capfd):
    with HangWatchdog(0) as watchdog:
        watchdog.moved()
        time.sleep(0.2)
    assert capfd.readouterr().err == ""
