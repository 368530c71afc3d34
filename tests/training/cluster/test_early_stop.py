"""Ctrl-C and SIGTERM before training begins."""

import os
import signal

import pytest

from t2t_lite.errors import Interrupted
from t2t_lite.training.cluster.early_stop import stopping_early


@pytest.mark.own_process
@pytest.mark.parametrize(
    "number, error",
    [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, Interrupted)],
)
def test_a_signal_that_somebody_swallowed_is_raised_again(number, error):
    before = signal.getsignal(number)
    with pytest.raises(error) as caught, stopping_early() as stop_if_asked:
        stop_if_asked()  # nothing came yet
        with pytest.raises(KeyboardInterrupt):  # as a bare `except` does
            os.kill(os.getpid(), number)
        stop_if_asked()
    name = "" if number == signal.SIGINT else number.name
    assert name in str(caught.value)
    assert signal.getsignal(number) is before
