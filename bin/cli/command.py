"""A command: its flags, its function, and its exit code.

Exit codes: 0 success, 1 failure, 2 wrong usage, 75 stopped by a signal after
saving (the same command resumes), 130 stopped by a signal without saving.
"""

import argparse
import contextlib
import dataclasses
import io
import math
import os
import signal
import sys
import threading
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent import futures
from typing import TypeVar

from t2t_lite.bin import CTRL_C, exit_now
from t2t_lite.bin.cli.flags import Parser, options_to_flags
from t2t_lite.errors import Interrupted, T2TLiteError, format_error
from t2t_lite.progress import log

FAILED = 1
T = TypeVar("T")
note = log  # writes to stderr, because stdout is for results


@dataclasses.dataclass(frozen=True)
class Command:
    """A command, which runs when it is called with its flags."""

    program: str  # name of the command
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

        Args:
          argv: the flags; None reads `sys.argv`, and Ctrl-C then exits
            immediately, without waiting for threads.
        """
        parser = self.make_parser()
        if "_ARGCOMPLETE" in os.environ:  # shell completion
            import argcomplete

            argcomplete.autocomplete(parser, always_complete_options="long")
        verbose = False
        if sys.stderr is None:  # closed
            sys.stderr = open(os.devnull, "w")  # noqa: SIM115 (for good)
        if sys.stdout is None:
            self._print_error("stdout must be open, because it gets results.")
            return FAILED
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper):
                # Names of files may not be UTF-8.
                stream.reconfigure(encoding="utf-8", errors="backslashreplace")
        try:
            args = parser.parse_args(sys.argv[1:] if argv is None else argv)
            verbose = args.verbose
            if not verbose:
                warnings.simplefilter("ignore")  # for developers only
            self._run_body(args)
            sys.stdout.flush()
            return 0
        except BrokenPipeError:
            _flush_stdout()  # the reader, such as `head`, closed the pipe
            return 0
        except KeyboardInterrupt as error:
            if sys.stderr.isatty():
                note("\x1b[?25h")  # show the cursor that a progress bar hides
            is_saved = isinstance(error, ResumableInterrupt)
            hint = "; the same command resumes" if is_saved else ""
            self._print_error(f"stopped by {str(error) or 'Ctrl-C'}{hint}.")
            code = Interrupted.exit_code if is_saved else CTRL_C
            others = set(threading.enumerate()) - {threading.current_thread()}
            waits = not all(thread.daemon for thread in others)
            if argv is None and waits:  # Python would wait for a thread
                exit_now(code)  # all files are written atomically
            return code
        except T2TLiteError as error:
            self._print_error(str(error), verbose)
            _flush_stdout()
            return error.exit_code
        except Exception as error:
            is_known = isinstance(error, (OSError, MemoryError))
            hint = "" if is_known else " (--verbose shows the traceback)"
            self._print_error(f"{format_error(error)}{hint}.", verbose)
            _flush_stdout()
            return FAILED

    def _run_body(self, args: argparse.Namespace) -> None:
        try:
            self.body(args)
        except SystemExit as error:  # raised by a user's code
            frame = traceback.extract_tb(error.__traceback__)[-1]
            raise T2TLiteError(
                f"{frame.filename}:{frame.lineno}: sys.exit is not supported "
                "in this code: remove it."
            ) from error

    def _print_error(self, message: str, verbose: bool = False) -> None:
        if verbose:
            traceback.print_exc()
        message = options_to_flags(" ".join(message.splitlines()))
        note(f"{self.program}: {message}")


class ResumableInterrupt(KeyboardInterrupt):
    """A signal interrupted work that the same command resumes."""


def _flush_stdout() -> None:
    """Flush stdout; if that fails, discard the rest, as Python flushes too."""
    try:
        sys.stdout.flush()
    except OSError:  # a closed pipe or a full disk
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def interruptible(work: Callable[[], T], *numbers: signal.Signals) -> T:
    """Return the result of `work`, which signals interrupt immediately.

    Python handles signals between two bytecodes of the main thread, but a call
    of TensorFlow can take many seconds. So the work runs in another thread,
    which a signal abandons; the work must write files atomically. Signals with
    a custom handler keep it.

    Raises:
      KeyboardInterrupt: a signal arrived.
    """

    def interrupt(number: int, frame: object) -> None:
        is_ctrl_c = number == signal.SIGINT
        name = "Ctrl-C" if is_ctrl_c else signal.Signals(number).name
        raise KeyboardInterrupt(name)

    defaults = (signal.default_int_handler, signal.SIG_DFL)
    caught = [n for n in numbers if signal.getsignal(n) in defaults]
    previous = {number: signal.signal(number, interrupt) for number in caught}
    pool = futures.ThreadPoolExecutor(max_workers=1)
    try:
        return pool.submit(work).result()
    finally:
        pool.shutdown(wait=False)
        for number, handler in previous.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def line_notes(show_all: bool = False) -> Iterator[Callable[[int, str], None]]:
    """Yield a function that logs a warning about a line: the first 3, or all.

    At the end, the number of other warnings is logged.
    """
    limit, count = math.inf if show_all else 3, 0

    def note_line(line: int, text: str) -> None:
        nonlocal count
        count += 1
        if count <= limit:
            note(f"line {line}: {text}")

    try:
        yield note_line
    finally:
        if count > limit:
            note(
                f"{count - limit:,} more lines have warnings (--verbose shows "
                "all)."
            )
