"""Several workers on this machine, to try what a cluster does."""

import contextlib
import ctypes
import math
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any, TextIO

from t2t_lite.errors import Interrupted, T2TLiteError, UsageError
from t2t_lite.progress import say

_PR_SET_PDEATHSIG = 1  # of <linux/prctl.h>
_CTRL_C = 130
# Done, saved, or stopped by a signal while there was nothing to save yet.
_GOOD = (0, Interrupted.exit_code, _CTRL_C, -signal.SIGINT, -signal.SIGTERM)
# Workers notice in this time that one of them is gone, unless they still wait
# for it to come.
_GRACE_SECONDS = 30.0
_WITH_THE_OTHERS = (0, Interrupted.exit_code)
_PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)


def run_local_workers(command: Sequence[str], count: int) -> None:
    """Runs a command as each worker of a cluster, and waits for them all.

    The chief has this process's terminal; what the others write to stderr
    comes with their number before it. Signals are passed on.

    Args:
      command: takes `--workers` and `--worker`.
      count: of workers.

    Raises:
      Interrupted: all stopped, by a signal or at a limit of time.
      KeyboardInterrupt: all stopped by Ctrl-C, with nothing to save yet.
      T2TLiteError: one failed.
    """
    addresses = ",".join(f"127.0.0.1:{port}" for port in free_ports(count))
    workers: list[subprocess.Popen[Any]] = []
    with _signals_passed_to(workers):
        for number in range(count):
            workers.append(
                subprocess.Popen(
                    [
                        *command,
                        f"--workers={addresses}",
                        f"--worker={number}",
                    ],
                    stderr=subprocess.PIPE if number else None,
                    text=True,
                    errors="replace",
                    # Ctrl-C reaches them through us, and so once.
                    start_new_session=True,
                    preexec_fn=_end_with_parent,
                )
            )
        readers = [
            threading.Thread(target=_tell, args=(number, worker.stderr))
            for number, worker in enumerate(workers)
            if worker.stderr
        ]
        for reader in readers:
            reader.start()
        codes = _wait_for(workers)
        for reader in readers:
            reader.join()
    _raise_for(codes)


def _wait_for(workers: Sequence["subprocess.Popen[Any]"]) -> list[int]:
    """Their exit codes. Where one fails, those that do not stop are ended."""
    deadline = math.inf
    while None in (codes := [worker.poll() for worker in workers]):
        if deadline == math.inf and set(codes) - {None, *_WITH_THE_OTHERS}:
            deadline = time.monotonic() + _GRACE_SECONDS
        if time.monotonic() > deadline:
            for worker in workers:
                worker.kill()
        time.sleep(0.1)
    return [worker.returncode for worker in workers]


def _end_with_parent() -> None:
    """Asks Linux for a SIGTERM when the process that started us is gone."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def _raise_for(codes: Sequence[int]) -> None:
    """What the exit codes of the workers mean for us."""
    bad = {n: code for n, code in enumerate(codes) if code not in _GOOD}
    if bad:
        told = ", ".join(f"worker {n} with {code}" for n, code in bad.items())
        failed = T2TLiteError(f"The workers have not finished: {told}.")
        if set(bad.values()) == {UsageError.exit_code}:
            raise UsageError(str(failed))
        raise failed
    if {_CTRL_C, -signal.SIGINT} & set(codes):
        raise KeyboardInterrupt
    if any(codes):
        raise Interrupted(
            "All workers have stopped. Run the same command to go on."
        )


def free_ports(count: int) -> list[int]:
    """Ports of this machine that nobody uses now."""
    with contextlib.ExitStack() as stack:
        sockets = [
            stack.enter_context(socket.create_server(("127.0.0.1", 0)))
            for _ in range(count)
        ]
        return [each.getsockname()[1] for each in sockets]


def _tell(number: int, stream: TextIO) -> None:
    for line in stream:
        say(f"[worker {number}] {line.rstrip()}")


@contextlib.contextmanager
def _signals_passed_to(
    workers: Sequence["subprocess.Popen[Any]"],
) -> Iterator[None]:
    def pass_on(number: int, frame: object) -> None:
        del frame
        for worker in workers:
            if worker.poll() is None:
                worker.send_signal(number)

    before = {number: signal.signal(number, pass_on) for number in _PASSED_ON}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
