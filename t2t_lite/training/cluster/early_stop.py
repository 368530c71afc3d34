"""Signals that come before training begins, when there is nothing to save."""

import contextlib
import signal
import threading
from collections.abc import Iterator

from t2t_lite.errors import Interrupted


@contextlib.contextmanager
def sigterm_as_ctrl_c() -> Iterator[None]:
    """Lets SIGTERM end the work inside as Ctrl-C does, so that others know.

    By default it ends a process without a word, but not the first one of a
    container, which does not notice it.

    Raises:
      Interrupted: SIGTERM came; it is raised inside as KeyboardInterrupt.
    """
    # Python delivers signals to the main thread alone.
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, frame: object) -> None:
        del frame
        raise KeyboardInterrupt(signal.Signals(number).name)

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    except KeyboardInterrupt as stopped:
        if not str(stopped):
            raise  # Ctrl-C
        raise Interrupted(
            f"Stopped by {stopped}. Run the same command to go on."
        ) from None
    finally:
        signal.signal(signal.SIGTERM, before)


def keep_sigterm() -> None:
    """Takes SIGTERM back from TensorFlow, which takes it when workers join.

    Its own handler notes that this process is to be preempted, and no more.
    """
    handler = signal.getsignal(signal.SIGTERM)
    if threading.current_thread() is threading.main_thread() and handler:
        signal.signal(signal.SIGTERM, handler)


def cause(stopped: KeyboardInterrupt) -> str:
    """What stopped a process: "SIGTERM" or "Ctrl-C"."""
    return str(stopped) or "Ctrl-C"


def stopped_early(worker: str, stopped: KeyboardInterrupt) -> str:
    """What the other workers say when one was stopped before training began.

    Args:
      worker: its name.
      stopped: what ended it.
    """
    return (
        f"{worker} was stopped by {cause(stopped)} before training began. Run "
        "the same command on all workers to go on."
    )
