"""The errors that users see: one line each, with an exit code."""

import difflib
from collections.abc import Iterable


class T2TLiteError(Exception):
    """Something failed: the message says what, where and what to do."""

    exit_code = 1


class UsageError(T2TLiteError):
    """The request is wrong: an unknown name, key or flag, a bad value."""

    exit_code = 2


class Interrupted(T2TLiteError):
    """A signal stopped the work after saving: the same command resumes it."""

    exit_code = 75


def nearest(name: str, known: Iterable[str]) -> str:
    """A hint naming the known names closest to `name`.

    Args:
      name: what the user wrote.
      known: the names that exist.

    Returns:
      `" Did you mean transformer_big?"`, with up to three names, or `""`.
    """
    close = difflib.get_close_matches(name, list(known), n=3, cutoff=0.6)
    return f" Did you mean {', '.join(close)}?" if close else ""
