"""A command: its flags, its work, and how it ends.

0 done, 1 failed, 2 wrong usage, 75 stopped by a signal after saving (the same
command resumes), 130 stopped by Ctrl-C with nothing to save.
"""

import argparse
import dataclasses
import io
import math
import os
import signal
import sys
import threading
import traceback
import warnings
from collections.abc import Callable, Sequence
from concurrent import futures
from typing import Self, TypeVar

from t2t_lite.bin import CTRL_C, end_now
from t2t_lite.bin.cli.flags import Parser, flags_of_options
from t2t_lite.errors import T2TLiteError, format_error
from t2t_lite.progress import log

FAILED = 1
T = TypeVar("T")
note = log  # to stderr, where it does not mix with results


@dataclasses.dataclass(frozen=True)
class Command:
    """A command; call it with its flags to run it."""

    program: str  # its name
    description: str | None  # for `--help`
    add_flags: Callable[[Parser], None]
    body: Callable[[argparse.Namespace], None]  # prints results to stdout

    def make_parser(self) -> Parser:
        """Return the parser of the flags."""
        parser = Parser(self.program, self.description)
        self.add_flags(parser)
        return parser

    def __call__(self, argv: Sequence[str] | None = None) -> int:
        """Run the command and return its exit code.

        If the flags are those of the command line, the process is ours, and
        Ctrl-C ends it immediately.
        """
        parser = self.make_parser()
        if "_ARGCOMPLETE" in os.environ:  # the shell's Tab
            import argcomplete

            argcomplete.autocomplete(parser, always_complete_options="long")
        verbose = False
        if sys.stderr is None:  # closed
            sys.stderr = open(os.devnull, "w")  # noqa: SIM115 (for good)
        if sys.stdout is None:
            self._say("stdout is closed, but results go there: open it.")
            return FAILED
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper):
                stream.reconfigure(encoding="utf-8")
        try:
            args = parser.parse_args(sys.argv[1:] if argv is None else argv)
            verbose = args.verbose
            if not verbose:
                warnings.simplefilter("ignore")  # they are for developers
            self._work(args)
            sys.stdout.flush()
            return 0
        except BrokenPipeError:
            # The reader (`| head`) has what it wanted. Python would complain
            # when it flushes stdout at exit, so stdout goes nowhere from here.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 0
        except KeyboardInterrupt as error:
            if sys.stderr.isatty():
                note("\x1b[?25h")  # show the cursor, which a bar hides
            self._say(f"stopped by {str(error) or 'Ctrl-C'}.")
            if argv is None and _has_waiting_thread():
                end_now()  # what is on disk is whole at any time
            return CTRL_C
        except T2TLiteError as error:
            self._say(str(error), verbose)
            return error.exit_code
        except Exception as error:
            is_known = isinstance(error, (OSError, MemoryError))
            where = "" if is_known else " (--verbose shows where it comes from)"
            self._say(f"{format_error(error)}{where}.", verbose)
            return FAILED

    def _work(self, args: argparse.Namespace) -> None:
        try:
            self.body(args)
        except SystemExit as error:  # of a user's code, with work left
            place = traceback.extract_tb(error.__traceback__)[-1]
            raise T2TLiteError(
                f"{place.filename}:{place.lineno}: sys.exit ends the command "
                "before its work is done: take it out."
            ) from error

    def _say(self, message: str, verbose: bool = False) -> None:
        if verbose:
            traceback.print_exc()
        message = flags_of_options(" ".join(message.splitlines()))
        note(f"{self.program}: {message}")


def interruptible(work: Callable[[], T], *numbers: signal.Signals) -> T:
    """Return the result of work that signals end, also inside TensorFlow.

    Python handles a signal between two steps of its main thread, and one call
    of TensorFlow may last for many seconds. So the work has a thread of its
    own, which is abandoned: its files must be whole at any time. Signals with
    a handler of their own are left alone.

    Raises:
      KeyboardInterrupt: a signal came.
    """

    def interrupt(number: int, frame: object) -> None:
        is_ctrl_c = number == signal.SIGINT
        name = "Ctrl-C" if is_ctrl_c else signal.Signals(number).name
        raise KeyboardInterrupt(name)

    usual = (signal.default_int_handler, signal.SIG_DFL)
    mine = [n for n in numbers if signal.getsignal(n) in usual]
    before = {number: signal.signal(number, interrupt) for number in mine}
    pool = futures.ThreadPoolExecutor(max_workers=1)
    try:
        return pool.submit(work).result()
    finally:
        pool.shutdown(wait=False)
        for number, handler in before.items():
            signal.signal(number, handler)


def _has_waiting_thread() -> bool:
    """Return whether Python would wait for a thread, such as a search."""
    others = set(threading.enumerate()) - {threading.current_thread()}
    return not all(thread.daemon for thread in others)


class LineNotes:
    """Remarks on lines: the first three, or `every` one, and how many more.

    Enter it, call it with a line's number and the remark.
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
