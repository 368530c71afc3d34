"""Signals that come before training begins, when there is nothing to save."""

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator

from t2t_lite.errors import Interrupted

_STOP = (signal.SIGINT, signal.SIGTERM)


@contextlib.contextmanager
def stopping_early() -> Iterator[Callable[[], None]]:
    """Lets Ctrl-C and SIGTERM end the work inside, so that others know.

    By default SIGTERM ends a process without a word, but not the first one of a
    container, which does not notice it.

    Yields:
      a function that raises again what came, if it did. What a library raises
      it in, when it is imported, may have taken it for an error of its own.

    Raises:
      Interrupted: SIGTERM came; it is raised inside as KeyboardInterrupt.
    """
    came: list[str] = []

    def stop(number: int, frame: object) -> None:
        del frame
        is_ctrl_c = number == signal.SIGINT
        came.append("" if is_ctrl_c else signal.Signals(number).name)
        again()

    def again() -> None:
        if came:
            raise KeyboardInterrupt(*filter(None, came[:1]))

    # Python delivers signals to the main thread alone.
    if threading.current_thread() is not threading.main_thread():
        yield again
        return
    before = {number: signal.getsignal(number) for number in _STOP}
    if before[signal.SIGINT] is not signal.default_int_handler:
        del before[signal.SIGINT]  # ignored, say, or its owner's
    for number in before:
        signal.signal(number, stop)
    try:
        yield again
    except KeyboardInterrupt as stopped:
        if not str(stopped):
            raise  # Ctrl-C
        raise Interrupted(
            f"Stopped by {stopped}. Run the same command to go on."
        ) from None
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


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
