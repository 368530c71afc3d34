"""Requests: lines with options of their own, also as JSON."""

import dataclasses
import json
import re
import textwrap
import unicodedata
from collections.abc import Iterable
from typing import Annotated, Any, ClassVar, Self

from t2t_lite import validators
from t2t_lite.errors import UsageError, did_you_mean
from t2t_lite.validators import Validator, condition, integer

_LINE_END = re.compile("\r\n|\r|\n")
_MAX_ERROR = 180  # characters


def _parse_line(value: Any) -> str:
    """Return a line without its end, U+FFFD for invalid UTF-8."""
    if isinstance(value, str):
        value = value.encode("utf-8", "surrogatepass")
    if not isinstance(value, bytes):
        raise ValueError
    text = value.decode("utf-8", "replace")
    return text.removesuffix("\n").removesuffix("\r")


def _parse_phrases(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list | tuple) or not all(
        isinstance(text, str) and text.strip() for text in value
    ):
        raise ValueError
    return tuple(value)


def _is_id(value: Any) -> bool:
    return isinstance(value, str | int) and not isinstance(value, bool)


# A text is given as str or bytes and kept as str.
_Text = Annotated[Any, Validator("a string", _parse_line)]
_String = Annotated[
    str, condition("a string", lambda value: isinstance(value, str))
]
_Phrases = Annotated[
    tuple[str, ...],
    Validator("a list of strings that are not empty", _parse_phrases),
]
_Id = Annotated[str | int, condition("a string or a whole number", _is_id)]
_Seed = Annotated[int, integer(0, 2**63 - 1)]


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Line:
    """A record that checks its values, and that a line of JSON may hold.

    Attributes:
      SIDES: the names of its texts, the source first.
      id: returned with the result.
      error: the reason why it cannot be answered, which is its result then.
      tag: the tag to put before the source text, see `text.tags`.
    """

    SIDES: ClassVar[tuple[str, ...]]

    id: _Id | None = None
    error: _String | None = None
    tag: _String = ""

    def __post_init__(self) -> None:
        validators.validate(self)

    @classmethod
    def parse(cls, line: str | bytes) -> Self:
        """Return the record of a line, with an `error` if it is wrong.

        Example: `{"text": "Two dogs.", "id": 7}`. A wrong one keeps its id.
        """
        make: Any = cls
        if isinstance(line, bytes):
            line = line.decode("utf-8", "replace")
        fields = dataclasses.fields(cls)
        keys = [field.name for field in fields if field.name != "error"]
        given: dict[str, Any] = {}
        try:
            record = json.loads(line)
            if not isinstance(record, dict):
                raise UsageError(f"A line must be an object; got {record!r}.")
            given = {k: v for k, v in record.items() if v is not None}
            for key in given.keys() - keys:
                raise UsageError(
                    f"The keys are {', '.join(keys)}; got {key!r}."
                    f"{did_you_mean(key, keys)}"
                )
            texts = {side: given.get(side) for side in cls.SIDES}
            for side, text in texts.items():
                if isinstance(text, str):
                    texts[side] = _LINE_END.sub(" ", text)
            return make(**{**given, **texts})
        except UsageError as error:
            message = str(error)
        except (ValueError, RecursionError) as error:
            message = f"A line must be a JSON object; it is not JSON: {error}."
        message = textwrap.shorten(message, _MAX_ERROR, placeholder="...")
        id = given.get("id") if _is_id(given.get("id")) else None
        return make(**dict.fromkeys(cls.SIDES, ""), id=id, error=message)


@dataclasses.dataclass(frozen=True)
class Request(_Line):
    """A text to translate, with options for its translation.

    Attributes:
      text: one line; its end is removed, U+FFFD replaces invalid UTF-8.
      prefix: the text that the translation must begin with.
      constraints: texts that must appear in it.
      bad_phrases: texts that must not appear in it.
      seed: of its samples.

    Raises:
      UsageError: a value breaks its rule.
    """

    SIDES = ("text",)

    text: _Text
    prefix: _String = ""
    constraints: _Phrases = ()
    bad_phrases: _Phrases = ()
    seed: _Seed | None = None

    def asked(self) -> dict[str, Any]:
        """Return the options that are set, by name, of `REQUEST_OPTIONS`."""
        names = ("prefix", "constraints", "bad_phrases", "seed")
        asked = {name: getattr(self, name) for name in names}
        return {k: v for k, v in asked.items() if v not in ("", (), None)}

    def violations(
        self, text: str, bad_phrases: Iterable[str] = ()
    ) -> dict[str, list[str]]:
        """Return the texts of the request that a translation violates.

        They are `missing`, the prefix and constraints that do not appear, and
        `unavoided`, the bad phrases, also those given, that appear as whole
        words.
        """
        text = _normalize(text)
        missing = [x for x in self.constraints if _normalize(x) not in text]
        if not text.startswith(_normalize(self.prefix)):
            missing.insert(0, self.prefix)
        unavoided = [
            x
            for x in (*self.bad_phrases, *bad_phrases)
            if re.search(rf"(?<!\w){re.escape(_normalize(x))}(?!\w)", text)
        ]
        found = {"missing": missing, "unavoided": unavoided}
        return {name: texts for name, texts in found.items() if texts}


@dataclasses.dataclass(frozen=True)
class Pair(_Line):
    """A text and a translation of it, to be scored; see `Request`."""

    SIDES = ("source", "target")

    source: _Text
    target: _Text

    @classmethod
    def split(cls, line: bytes) -> Self:
        r"""Return the pair of `b"one\teins\n"`; without one tab an error."""
        sides = line.split(b"\t")
        if len(sides) == 2:
            return cls(*sides)
        message = f"A pair is source<TAB>target; got {len(sides) - 1} tabs."
        return cls("", "", error=message)


def _normalize(text: str) -> str:
    """Return text as vocabularies see it: NFKC, one space between words."""
    return " ".join(unicodedata.normalize("NFKC", text).split())
