"""Requests: lines that say more than their text, read from JSON."""

import dataclasses
import json
import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Self

from t2t_lite.errors import UsageError, nearest
from t2t_lite.text.tags import known_tag, parted, tagged

_SHOWN_CHARACTERS = 60  # of a value that is refused
_LINE_END = re.compile("\r\n|\r|\n")


@dataclasses.dataclass(frozen=True)
class Request:
    """A text to translate, and what is asked of its translation.

    Attributes:
      text: one line; broken UTF-8 is cleaned by the encoder.
      id: comes back in the answer.
      prefix: how the translation must begin.
      constraints: what must appear in it.
      avoid: what must not appear in it.
      seed: of its samples.
      tag: what to put before the text, see `tagged`.
      error: why it cannot be answered; the answer is then this error.

    Raises:
      UsageError: what is asked for is not of its kind.
    """

    text: str | bytes
    id: str | int | None = None
    prefix: str = ""
    constraints: tuple[str, ...] = ()
    avoid: tuple[str, ...] = ()
    seed: int | None = None
    error: str | None = None
    tag: str = ""

    def __post_init__(self) -> None:
        for name in ("prefix", "constraints", "avoid", "seed", "tag"):
            value, kind = getattr(self, name), _OF_REQUESTS[name]
            if value != getattr(Request, name) and not kind.fits(value):
                raise UsageError(f"{name} must be {kind.rule}; got {value!r}.")

    @classmethod
    def parse(cls, line: str | bytes) -> Self:
        """The request that a line of JSON stands for; `error` if it is none.

        Example: `{"text": "Two dogs.", "id": 7}`.
        """
        found, error = _parse(line, _OF_REQUESTS, ("text",))
        return cls(**{"text": "", **found}, error=error)

    def tagged(self, tags: Sequence[str]) -> Self:
        """The request with its tag before its text, or with an error.

        A text that begins with one of `tags` already stays as it is.
        """
        try:
            text = _tagged(self.text, self.tag, tags)
        except UsageError as error:
            return dataclasses.replace(self, error=self.error or str(error))
        return dataclasses.replace(self, text=text, tag="")

    def asked(self) -> dict[str, Any]:
        """What is asked for besides the text, as `Translator` names it."""
        asked = {
            "prefix": self.prefix,
            "constraints": self.constraints,
            "avoid": self.avoid,
            "seed": self.seed,
        }
        return {k: v for k, v in asked.items() if v not in ("", (), None)}

    def broken_by(
        self, text: str, avoid: Iterable[str] = ()
    ) -> dict[str, list[str]]:
        """What a translation lacks or has although it was asked otherwise.

        Args:
          text: the translation.
          avoid: texts that must not appear, besides the request's.

        Returns: `missing`, the prefix and constraints that are not there, and
          `unavoided`, what appears as whole words; only those with a text.
        """
        text = _normal(text)
        missing = [x for x in self.constraints if _normal(x) not in text]
        if not text.startswith(_normal(self.prefix)):
            missing.insert(0, self.prefix)
        unavoided = [
            phrase
            for phrase in (*self.avoid, *avoid)
            if re.search(rf"(?<!\w){re.escape(_normal(phrase))}(?!\w)", text)
        ]
        broken = {"missing": missing, "unavoided": unavoided}
        return {name: texts for name, texts in broken.items() if texts}


class Pair(NamedTuple):
    """A text and a translation of it, to be scored; see `Request`."""

    source: str | bytes
    target: str | bytes
    id: str | int | None = None
    error: str | None = None
    tag: str = ""

    def tagged(self, tags: Sequence[str]) -> Self:
        """As of a `Request`."""
        try:
            source = _tagged(self.source, self.tag, tags)
        except UsageError as error:
            return self._replace(error=self.error or str(error))
        return self._replace(source=source, tag="")

    @classmethod
    def parse(cls, line: str | bytes) -> Self:
        """The pair that a line of JSON stands for; `error` if it is none.

        Example: `{"source": "Two dogs.", "target": "Zwei Hunde.", "id": 7}`.
        """
        found, error = _parse(line, _OF_PAIRS, ("source", "target"))
        return cls(**{"source": "", "target": "", **found}, error=error)


def _tagged(text, name, tags):
    """A text behind the tag of that name; as it is without a name."""
    if not name:
        return text
    tag = known_tag(name, tags)
    if isinstance(text, bytes):
        text = text.decode("utf-8", "replace")
    return text if parted(text, tags)[0] else tagged(tag, text)


def _normal(text: str) -> str:
    """As vocabularies see a text: normalized, its words one space apart."""
    return " ".join(unicodedata.normalize("NFKC", text).split())


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_number(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


class _Kind(NamedTuple):
    """What the value of a key may be."""

    rule: str
    fits: Callable[[Any], bool]
    made: Callable[[Any], Any] = lambda value: value


def _in_one_line(text: str) -> str:
    """As the answers of a translator are: line ends become spaces."""
    return _LINE_END.sub(" ", text)


_TEXT = _Kind("a string", _is_text, _in_one_line)
_TEXTS = _Kind(
    "a list of strings that are not empty",
    lambda value: (
        isinstance(value, list | tuple)
        and all(_is_text(text) and text.strip() for text in value)
    ),
    tuple,
)
_ID = _Kind(
    "a string or a whole number",
    lambda value: _is_text(value) or _is_number(value),
)
_SEED = _Kind(
    "a whole number from 0 to 2**63 - 1",
    lambda value: _is_number(value) and 0 <= value < 2**63,
)
_TAG = _Kind("a string", _is_text)
_OF_REQUESTS = {
    "text": _TEXT,
    "id": _ID,
    "prefix": _Kind("a string", _is_text),
    "constraints": _TEXTS,
    "avoid": _TEXTS,
    "seed": _SEED,
    "tag": _TAG,
}
_OF_PAIRS = {"source": _TEXT, "target": _TEXT, "id": _ID, "tag": _TAG}


def _parse(
    line: str | bytes, kinds: Mapping[str, _Kind], required: tuple[str, ...]
) -> tuple[dict[str, Any], str | None]:
    """The values of a line by key, null left out, and what is wrong with it.

    Of a wrong line only the id is left, if there is one.
    """
    if isinstance(line, bytes):
        line = line.decode("utf-8", "replace")
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        return {}, f"A line must be a JSON object; it is no JSON: {error}."
    if not isinstance(record, dict):
        return {}, f"A line must be a JSON object; got {_short(record)}."
    found = {}
    wrong = []
    for key, value in record.items():
        if key not in kinds:
            hint = nearest(key, kinds)
            known = ", ".join(kinds)
            wrong.append(f"The keys are {known}; got {_short(key)}.{hint}")
        elif value is not None:
            if kinds[key].fits(value):
                found[key] = kinds[key].made(value)
            else:
                rule = kinds[key].rule
                wrong.append(f"{key} must be {rule}; got {_short(value)}.")
    wrong += [
        f"{key} must be {kinds[key].rule}; it is missing."
        for key in required
        if record.get(key) is None
    ]
    if wrong:
        return {"id": found.get("id")}, wrong[0]
    return found, None


def _short(value: Any) -> str:
    if isinstance(value, list | dict):  # maybe too deep to be written
        return "a list" if isinstance(value, list) else "an object"
    text = json.dumps(value)
    if len(text) > _SHOWN_CHARACTERS:
        text = f"{text[:_SHOWN_CHARACTERS]}..."
    return text
