"""Devices and fixtures of the tests of training."""

import time
from types import SimpleNamespace

import pytest

from t2t_lite.training.distribute import choose_strategy

# Create the devices of the replicas before TensorFlow initializes.
choose_strategy(replicas=3)


@pytest.fixture
def clock(monkeypatch):
    """Replace time.monotonic by a clock that tests set."""
    clock = SimpleNamespace(seconds=0.0)
    monkeypatch.setattr(time, "monotonic", lambda: clock.seconds)
    return clock
