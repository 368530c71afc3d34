"""`Option`: a choice that a problem leaves to its user, and kinds of values."""

import contextlib
import dataclasses
import os
from collections.abc import Callable
from typing import Any

from t2t_lite.errors import UsageError


def text(value: Any) -> str:
    """Text that is not empty."""
    if not isinstance(value, str) or not value:
        raise ValueError("text")
    return value


def file_path(value: Any) -> str:
    """A path, made absolute."""
    name = os.fspath(value) if isinstance(value, os.PathLike) else value
    return os.path.abspath(os.path.expanduser(text(name)))


def true_or_false(value: Any) -> bool:
    """A bool, or the word for it."""
    if isinstance(value, bool):
        return value
    if str(value).lower() not in ("true", "false"):
        raise ValueError("true or false")
    return str(value).lower() == "true"


def number(
    kind: type, holds: Callable[[Any], bool], rule: str
) -> Callable[[Any], Any]:
    """Numbers of that kind, or their text, for which `holds` is true."""

    def read(value):
        if isinstance(value, (str, int, kind)) and not isinstance(value, bool):
            with contextlib.suppress(ValueError):
                if holds(number := kind(value)):
                    return number
        raise ValueError(rule)

    return read


def whole_number(smallest: int) -> Callable[[Any], int]:
    """Whole numbers from `smallest` on."""
    rule = f"a whole number, at least {smallest}"
    return number(int, lambda value: value >= smallest, rule)


@dataclasses.dataclass(frozen=True)
class Option:
    """A choice that a problem leaves to its user; see `Problem.known_options`.

    Attributes:
      name: its key, and the name of its flag.
      metavar: what its value is, such as "FILE".
      meaning: for people, in a few words.
      kind: makes of a value, or of its text on a command line, what is kept,
        fit for JSON; raises ValueError with the rule, such as "true or false".
      default: what holds without it; None if there is no single value.
      without: what holds without it, in words, where `default` does not say it.
      off_flag: the flag that turns it off, in place of one of its name.
    """

    name: str
    metavar: str
    meaning: str
    kind: Callable[[Any], Any] = text
    default: Any = None
    without: str = ""
    off_flag: str = ""

    @property
    def flag(self) -> str:
        """The flag that sets it, for commands that have flags for options."""
        return f"--{self.off_flag or self.name}"

    @property
    def default_text(self) -> str:
        """What holds without it, for people; empty if nothing does."""
        if self.without or self.default is None:
            return self.without
        return str(self.default)

    def read(self, value: Any) -> Any:
        """The value as it is kept.

        Raises:
          UsageError: it is not of the option's kind.
        """
        try:
            return self.kind(value)
        except ValueError as error:
            raise UsageError(
                f"{self.name} must be {error}; got {value!r}."
            ) from error
