"""The errors that users see: one line each, with an exit code."""

import difflib
import errno
import os
import re
from collections.abc import Iterable

# What to do about errors of the system.
_ADVICE = {
    errno.ENOSPC: "free some space, then run the same command again",
    errno.EDQUOT: "free some space, then run the same command again",
    errno.EACCES: "change its permissions, or choose another place",
    errno.EPERM: "change its permissions, or choose another place",
    errno.EROFS: "choose a place on a disk that can be written to",
    errno.ENAMETOOLONG: "choose a shorter name",
}
# The names of nodes in the messages of TensorFlow's graphs.
_OF_GRAPHS = re.compile(r"\{\{\w+ [^}]*\}\}|\[\[.*?\]\]|\[Op:.*?\]")


class T2TLiteError(Exception):
    """Something failed: the message says what, where and what to do."""

    exit_code = 1


class UsageError(T2TLiteError):
    """The request is wrong: an unknown name, key or flag, a bad value."""

    exit_code = 2


class Interrupted(T2TLiteError):
    """A signal stopped the work after saving: the same command resumes it."""

    exit_code = 75


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return a hint with the known names closest to `name`, at most three.

    Example: " Did you mean transformer_big?"; "" if none is close.
    """
    close = difflib.get_close_matches(name, list(known), n=3, cutoff=0.6)
    return f" Did you mean {', '.join(close)}?" if close else ""


def format_error(error: BaseException, place: bool = True) -> str:
    """Return an exception as one clause, with advice if there is any.

    Examples: "/data/x: No space left on device; free some space, then run the
    same command again", "ValueError: bad value".

    Args:
      error: of the system, Python, TensorFlow or this package.
      place: begin with the file that the error names.
    """
    if isinstance(error, T2TLiteError):
        return str(error).rstrip(".")
    text = _text_of(error)
    filename = getattr(error, "filename", None)
    where = f"{filename}: " if place and filename else ""
    name = "" if _is_of_tensorflow(error) else f"{type(error).__name__}: "
    for number, advice in _ADVICE.items():
        # TensorFlow keeps the system's words, but not its numbers.
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


def _is_of_tensorflow(error):
    """Return whether it is a `tf.errors.OpError`, without TensorFlow."""
    return hasattr(error, "error_code") and hasattr(error, "message")


def _text_of(error):
    """Return the line of the reason, without the names of graph nodes."""
    text = str(error.message if _is_of_tensorflow(error) else error)
    lines = [_OF_GRAPHS.sub("", line).strip() for line in text.splitlines()]
    lines = [line for line in lines if line] or [type(error).__name__]
    # An error inside a graph begins with a traceback and ends with the reason.
    traced = lines[0].startswith(("in user code", "Graph execution error"))
    line = lines[-1 if traced else 0]
    return line.rstrip(".")
