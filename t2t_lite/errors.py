"""Errors for users: one line each, with an exit code."""

import contextlib
import difflib
import errno
import os
import re
from collections.abc import Iterable, Iterator
from typing import Any

# Fixes for errors of the operating system.
_ADVICE = {
    errno.ENOSPC: "free some space, then run the same command again",
    errno.EDQUOT: "free some space, then run the same command again",
    errno.EACCES: "change its permissions, or choose another path",
    errno.EPERM: "change its permissions, or choose another path",
    errno.EROFS: "choose a path on a disk that can be written to",
    errno.ENAMETOOLONG: "choose a shorter name",
}
# The errors of code that reads invalid or unexpected JSON.
INVALID_JSON = (ValueError, RecursionError, KeyError, TypeError, AttributeError)
_MAX_LINE = 5000  # characters
# Names of graph nodes in the messages of TensorFlow.
_GRAPH_NODES = re.compile(r"\{\{\w+ [^}]*\}\}|\[\[.*?\]\]|\[Op:.*?\]")


class T2TLiteError(Exception):
    """A failure; the message states the problem, its location and the fix."""

    exit_code = 1


class UsageError(T2TLiteError):
    """Wrong usage: an unknown name, key or flag, or a bad value."""

    exit_code = 2


class Interrupted(T2TLiteError):
    """A signal stopped the work after saving; the same command resumes it."""

    exit_code = 75


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return a hint with at most three known names similar to `name`.

    Example: " Did you mean transformer_big?"; "" without similar names.
    """
    close = difflib.get_close_matches(name, list(known), n=3, cutoff=0.6)
    return f" Did you mean {', '.join(close)}?" if close else ""


@contextlib.contextmanager
def requires_extra(name: str, subject: Any = "") -> Iterator[None]:
    """Give the command that installs an extra if an import in it fails."""
    try:
        yield
    except ImportError as error:
        place, reason = f"{subject}: " if subject else "", format_error(error)
        if isinstance(error, ModuleNotFoundError):
            reason = f"{error.name} is not installed"
        raise T2TLiteError(
            f"{place}{reason}: pip install 't2t-lite[{name}]'."
        ) from error


def format_error(error: BaseException, place: bool = True) -> str:
    """Return a one-line description of an exception, with a fix if known.

    Examples: "/data/x: No space left on device; free some space, then run the
    same command again", "ValueError: bad value". `place` adds the path of the
    file, if the error names one.
    """
    if isinstance(error, T2TLiteError):
        return str(error).rstrip(".")
    text = _text_of(error)
    filename = getattr(error, "filename", None)
    where = f"{filename}: " if place and filename else ""
    name = "" if _is_tensorflow_error(error) else f"{type(error).__name__}: "
    for number, advice in _ADVICE.items():
        # TensorFlow forwards the message of the system without its number.
        if getattr(error, "errno", None) == number or (
            not name and os.strerror(number) in text
        ):
            return f"{where}{os.strerror(number)}; {advice}"
    if isinstance(error, OSError) and error.strerror:
        return f"{where}{error.strerror}"
    if isinstance(error, MemoryError) or "OOM when" in text:
        return (
            "out of memory: in training, lower batch_tokens or raise "
            "gradient_accumulation_steps; in decoding, lower `batch_size` or "
            "`beam_size`"
        )
    return f"{name}{text}"


@contextlib.contextmanager
def explain(
    problem: str, *causes: type[Exception], fix: str = ""
) -> Iterator[None]:
    """Raise T2TLiteError "PROBLEM: REASON. FIX" from the errors `causes`."""
    try:
        yield
    except causes as error:
        place = str(getattr(error, "filename", None)) not in problem
        reason = format_error(error, place)
        raise T2TLiteError(f"{problem}: {reason}. {fix}".rstrip()) from error


def _is_tensorflow_error(error):
    """Return whether `error` is a `tf.errors.OpError`, without importing it."""
    return hasattr(error, "error_code") and hasattr(error, "message")


def _text_of(error):
    """Return the line with the reason, without names of graph nodes."""
    text = str(error.message if _is_tensorflow_error(error) else error)
    lines = [
        _GRAPH_NODES.sub("", line[:_MAX_LINE]).strip()
        for line in text.splitlines()
    ]
    lines = [line for line in lines if line] or [type(error).__name__]
    # An error inside a graph has a traceback first and the reason last.
    traced = lines[0].startswith(("in user code", "Graph execution error"))
    line = lines[-1 if traced else 0]
    return line.rstrip(".")
