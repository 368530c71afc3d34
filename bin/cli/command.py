"""Runs a command's body: errors become one line and an exit code.

0 done, 1 failed, 2 wrong usage, 75 stopped by a signal after saving (the same
command goes on), 130 stopped by Ctrl-C with nothing to save.
"""

import argparse
import contextlib
import io
import math
import os
import signal
import sys
import threading
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import NoReturn, Self

from t2t_lite.bin import CTRL_C, end_now
from t2t_lite.bin.cli import completion
from t2t_lite.bin.cli.flags import Parser
from t2t_lite.errors import T2TLiteError, in_words

FAILED = 1
_NOTICED_SECONDS = 1.0


def run(
    parser: Parser,
    body: Callable[[argparse.Namespace], None],
    argv: Sequence[str] | None = None,
) -> int:
    """Parses the flags, calls `body(args)` and returns the exit code.

    Args:
      parser: the command's flags.
      body: does the work; prints results to stdout, all else to stderr.
      argv: the flags; None takes them from the command line. Then the process
        is ours, and Ctrl-C ends it at once.
    """
    if completion.is_asked():
        completion.answer(parser)
    verbose = False
    if sys.stderr is None:  # closed
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115 (for good)
    if sys.stdout is None:
        _say(parser.prog, "stdout is closed, but results go there: open it.")
        return FAILED
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8")
    try:
        args = parser.parse_args(sys.argv[1:] if argv is None else argv)
        verbose = args.verbose
        if not verbose:
            warnings.simplefilter("ignore")  # they are for developers
        _call(body, args)
        sys.stdout.flush()
        return 0
    except BrokenPipeError:
        # The reader (`| head`) has what it wanted. Python would complain when
        # it flushes stdout at exit, so stdout goes nowhere from here on.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt as error:
        _say(parser.prog, f"stopped by {str(error) or 'Ctrl-C'}.")
        if argv is None and _is_waited_for():
            end_now()  # what is on disk is whole at any time
        return CTRL_C
    except T2TLiteError as error:
        _say(parser.prog, str(error), verbose)
        return error.exit_code
    except Exception as error:
        is_known = isinstance(error, (OSError, MemoryError))
        where = "" if is_known else " (--verbose shows where it comes from)"
        _say(parser.prog, f"{in_words(error)}{where}.", verbose)
        return FAILED


@contextlib.contextmanager
def ended_at_once_by(program: str, *numbers: signal.Signals) -> Iterator[None]:
    """Signals end what is inside as Ctrl-C does, also in TensorFlow.

    Python notices a signal between two steps of its own, and one call of
    TensorFlow may last for many seconds: a batch, or a graph that is compiled.
    What is not noticed within a second ends the process, in which case nothing
    inside is told. So it is for work whose files are whole at any time.

    Args:
      program: the name of the command.
      numbers: those that do not what they do by default are left alone.
    """
    usual = (signal.default_int_handler, signal.SIG_DFL)
    mine = [n for n in numbers if signal.getsignal(n) in usual]
    noticed = threading.Event()

    def interrupt(number: int, frame: object) -> NoReturn:
        noticed.set()
        raise KeyboardInterrupt(_name_of(number))

    def watch() -> None:
        while came := os.read(reader, 1):  # closed at the end
            if came[0] in mine and not noticed.wait(_NOTICED_SECONDS):
                # Also shows the cursor, which a progress bar hides.
                cursor = "\x1b[?25h\n" if sys.stderr.isatty() else ""
                note(f"{cursor}{program}: stopped by {_name_of(came[0])}.")
                end_now()

    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    before = {number: signal.signal(number, interrupt) for number in mine}
    woken = signal.set_wakeup_fd(writer)
    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(woken)
        os.close(writer)
        watcher.join()
        os.close(reader)


def _name_of(number: int) -> str:
    return "Ctrl-C" if number == signal.SIGINT else signal.Signals(number).name


def _is_waited_for() -> bool:
    """Whether Python would wait for a thread, such as one that searches."""
    return any(
        thread is not threading.current_thread() and not thread.daemon
        for thread in threading.enumerate()
    )


def _call(
    body: Callable[[argparse.Namespace], None], args: argparse.Namespace
) -> None:
    """Calls `body`. What exits in there is a user's code, with work left."""
    try:
        body(args)
    except SystemExit as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        code = "" if error.code is None else error.code
        raise T2TLiteError(
            f"{place.filename}:{place.lineno}: sys.exit({code}) ends the "
            "command before its work is done: take it out."
        ) from error


def note(text: str) -> None:
    """Writes a remark to stderr, where it does not mix with results."""
    print(text, file=sys.stderr, flush=True)


class LineNotes:
    """Remarks on lines: the first three, and at the end how many more.

    Enter it, call it with a line's number and the remark.

    Args:
      every: write all of them.
    """

    def __init__(self, every: bool = False):
        self._most = math.inf if every else 3
        self._count = 0

    def __enter__(self) -> Self:
        return self

    def __call__(self, line: int, text: str) -> None:
        self._count += 1
        if self._count <= self._most:
            note(f"line {line}: {text}")

    def __exit__(self, *exception: object) -> None:
        if self._count > self._most:
            note(
                f"and {self._count - self._most:,} more lines like these "
                "(--verbose shows all)."
            )


def _say(program: str, message: str, verbose: bool = False) -> None:
    if verbose:
        traceback.print_exc()
    note(f"{program}: {' '.join(message.splitlines())}")
