"""`Option`: a choice that a problem leaves to its user."""

import dataclasses
from collections.abc import Callable
from typing import Any

from t2t_lite.errors import UsageError
from t2t_lite.values import text


@dataclasses.dataclass(frozen=True)
class Option:
    """A choice that a problem leaves to its user; see `Problem.known_options`.

    Attributes:
      name: its key, and the name of its flag.
      metavar: what its value is, such as "FILE".
      meaning: for people, in a few words.
      kind: of the value, see the module `values`.
      default: what holds without it; None if there is no single value.
      without: what holds without it, in words, where `default` does not say it.
      example: a value, for people.
      off_flag: the flag that turns it off, in place of one of its name.
      flagless: no flag sets it; it is known of data that is there.
    """

    name: str
    metavar: str
    meaning: str
    kind: Callable[[Any], Any] = text
    default: Any = None
    without: str = ""
    example: str = ""
    off_flag: str = ""
    flagless: bool = False

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
