"""Requests: texts with request options, parsed from lines of JSON."""

import dataclasses
import json
import re
import textwrap
import unicodedata
from collections.abc import Iterable
from typing import Annotated, Any, ClassVar, Self

from t2t_lite import validators
from t2t_lite.errors import UsageError, did_you_mean
from t2t_lite.tokenizers.tags import is_blank
from t2t_lite.validators import Validator, condition, integer

_LINE_END = re.compile("\r\n|\r|\n")
_MAX_ERROR = 180  # characters


def _parse_line(value: Any) -> str:
    """Return a line without its line end, with U+FFFD for invalid UTF-8."""
    if isinstance(value, str):
        value = value.encode("utf-8", "surrogatepass")
    if not isinstance(value, bytes):
        raise ValueError
    text = value.decode("utf-8", "replace")
    return text.removesuffix("\n").removesuffix("\r")


def _parse_phrases(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list | tuple) or not all(
        isinstance(text, str) and not is_blank(text) for text in value
    ):
        raise ValueError
    return tuple(map(_parse_line, value))


def _is_id(value: Any) -> bool:
    return isinstance(value, str | int) and not isinstance(value, bool)


# Accepts str or bytes; stores str.
_Text = Annotated[Any, Validator("a string", _parse_line)]
_String = Annotated[str, condition("a string", lambda x: isinstance(x, str))]
_Phrases = Annotated[
    tuple[str, ...], Validator("a list of non-empty strings", _parse_phrases)
]
_Id = Annotated[str | int, condition("a string or a whole number", _is_id)]
_Seed = Annotated[int, integer(0, 2**63 - 1)]


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Line:
    """Base class of a validated record, which may come from a line of JSON."""

    SIDES: ClassVar[tuple[str, ...]]  # names of the text fields, source first
    id: _Id | None = None  # copied to the result
    error: _String | None = None  # why the record is invalid; also the result
    tag: _String = ""  # to put before the source text; see `tokenizers.tags`

    def __post_init__(self) -> None:
        validators.validate(self)

    def options(self) -> dict[str, Any]:
        """Return the request options that are set; see `REQUEST_OPTIONS`."""
        names = ("prefix", "constraints", "bad_phrases", "seed")
        options = {name: getattr(self, name, None) for name in names}
        return {k: v for k, v in options.items() if v not in ("", (), None)}

    @classmethod
    def parse(cls, line: str | bytes) -> Self:
        """Parse a line of JSON, such as `{"text": "Two dogs.", "id": 7}`.

        An invalid line becomes a record with its id, if any, and an `error`.
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
                raise UsageError(f"A line must be an object (got {record!r}).")
            given = {k: v for k, v in record.items() if v is not None}
            for key in given.keys() - keys:
                raise UsageError(
                    f"Unknown key {key!r}; the keys are {', '.join(keys)}."
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
            message = f"A line must be a JSON object; not JSON: {error}."
        message = textwrap.shorten(message, _MAX_ERROR, placeholder="...")
        id = given.get("id") if _is_id(given.get("id")) else None
        return make(**dict.fromkeys(cls.SIDES, ""), id=id, error=message)


@dataclasses.dataclass(frozen=True)
class Request(_Line):
    """A text to translate, with request options.

    Attributes:
      text: one line, str or bytes; the line end is removed, and U+FFFD replaces
        invalid UTF-8.
      prefix: text that the translation must begin with.
      constraints: texts that the translation must contain.
      bad_phrases: texts that the translation must not contain.
      seed: random seed for sampling, 0 to 2**63 - 1.

    Raises:
      UsageError: a value is invalid.
    """

    SIDES = ("text",)

    text: _Text
    prefix: _Text = ""
    constraints: _Phrases = ()
    bad_phrases: _Phrases = ()
    seed: _Seed | None = None

    def violations(
        self, text: str, bad_phrases: Iterable[str] = ()
    ) -> dict[str, list[str]]:
        """Find the texts of the request, or bad phrases, that `text` violates.

        Returns:
          Only if not empty, `missing`, the prefix and constraints that do not
          appear, and `forbidden`, the bad phrases that appear as whole words.
        """
        text = _normalize(text)
        missing = [x for x in self.constraints if _normalize(x) not in text]
        if not text.startswith(_normalize(self.prefix)):
            missing.insert(0, self.prefix)
        forbidden = [
            x
            for x in (*self.bad_phrases, *bad_phrases)
            if re.search(rf"(?<!\w){re.escape(_normalize(x))}(?!\w)", text)
        ]
        found = {"missing": missing, "forbidden": forbidden}
        return {name: texts for name, texts in found.items() if texts}


@dataclasses.dataclass(frozen=True)
class Pair(_Line):
    """A source and a target text to score; see `Request` for the fields."""

    SIDES = ("source", "target")

    source: _Text
    target: _Text

    @classmethod
    def split(cls, line: bytes) -> Self:
        r"""Parse `b"one\teins\n"`; exactly one tab is required."""
        sides = line.split(b"\t")
        if len(sides) == 2:
            return cls(*sides)
        message = f"A pair must be source<TAB>target (got {len(sides)} parts)."
        return cls("", "", error=message)


def _normalize(text: str) -> str:
    """Normalize text as tokenizers do: NFKC, one space between words."""
    return " ".join(unicodedata.normalize("NFKC", text).split())
