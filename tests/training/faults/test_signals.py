"""Signals that come where Python does not get to see them."""

import gc
import os
import signal
import subprocess
import sys
import time

import pytest

from t2t_lite.training.faults.signals import StopRequested, StopSignals

_COMPUTES = """
import hashlib
from t2t_lite.training.faults.signals import StopSignals
with StopSignals():
    print("ready", flush=True)
    hashlib.pbkdf2_hmac("sha256", b"a", b"b", 1 << 30)  # minutes, one call
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_one_that_insists_ends_a_process_within_a_call(number):
    process = subprocess.Popen(
        [sys.executable, "-c", _COMPUTES],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout.readline() == "ready\n"
    for _ in range(2):
        time.sleep(0.3)
        process.send_signal(number)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 128 + number
    assert f"{number.name} again: stopping." in err


@pytest.mark.own_process
def test_a_stop_that_python_swallows_comes_again():
    def ask(phase, info):
        del info
        gc.callbacks.remove(ask)
        os.kill(os.getpid(), signal.SIGTERM)

    with StopSignals() as signals, pytest.raises(StopRequested, match="SIGT"):
        with signals.interruptible():
            gc.callbacks.append(ask)
            gc.collect()  # swallows what `ask` raises
            time.sleep(30)
    assert signal.getitimer(signal.ITIMER_REAL) == (0, 0)


@pytest.mark.own_process
def test_a_limit_that_python_swallows_comes_again():
    def wait(phase, info):
        del phase, info
        gc.callbacks.remove(wait)
        time.sleep(0.5)

    with StopSignals() as signals, pytest.raises(StopRequested, match="time"):
        with signals.interruptible(0.2, "time"):
            gc.callbacks.append(wait)
            gc.collect()
            time.sleep(30)
