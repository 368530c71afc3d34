"""Both sides of a corpus in one file: TSV, JSON lines or TMX."""

import json
import os
import pathlib
import reprlib
from collections.abc import Iterator

from t2t_lite.corpus.lines import CORPUS, PACKED, Encoding, read_lines
from t2t_lite.errors import T2TLiteError, UsageError

FORMATS = (".tsv", ".jsonl", ".tmx")


def format_of(path: str | os.PathLike) -> str:
    """One of FORMATS, by the name of a file that may be packed.

    Raises:
      UsageError: the name ends in something else.
    """
    name = pathlib.Path(path)
    ending = (name.with_suffix("") if name.suffix in PACKED else name).suffix
    if ending not in FORMATS:
        raise UsageError(
            f"A file of pairs must end in {', '.join(FORMATS)}, or in one of "
            f"these and {', '.join(PACKED)}; got {path}."
        )
    return ending


def read_tsv(
    path: str | os.PathLike, encoding: Encoding = CORPUS
) -> Iterator[tuple[str, str]]:
    r"""The two texts of each line of a file, packed or not.

    Example: `a b\tA B\n` gives `("a b", "A B")`. Nothing is quoted or escaped.

    Raises:
      T2TLiteError: a line without a TAB, or with two; or `read_lines` does.
    """
    for number, line in enumerate(read_lines(path, encoding=encoding), 1):
        texts = line.split("\t")
        if len(texts) != 2:
            raise T2TLiteError(
                "A line must have one TAB, between source and target; got "
                f"{len(texts) - 1} in {path}, line {number}."
            )
        yield texts[0], texts[1]


def read_json_lines(
    path: str | os.PathLike,
    source_key: str = "source",
    target_key: str = "target",
    encoding: Encoding = CORPUS,
) -> Iterator[tuple[str, str]]:
    """The texts under two keys of the JSON object on each line of a file.

    Example: `{"source": "a", "target": "A", "id": 7}` gives `("a", "A")`.
    Half a surrogate pair becomes U+FFFD.

    Raises:
      T2TLiteError: a line is not a JSON object, or has no string under a key;
        or `read_lines` does.
    """
    for number, line in enumerate(read_lines(path, encoding=encoding), 1):
        place = f"{path}, line {number}"
        record = _object(line, place)
        yield _text(record, source_key, place), _text(record, target_key, place)


def _object(line, place):
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        reason = getattr(error, "msg", "nested too deep")
        raise T2TLiteError(
            f"Each line must be a JSON object; got invalid JSON in {place}: "
            f"{reason}."
        ) from error
    if not isinstance(record, dict):
        raise T2TLiteError(
            f"Each line must be a JSON object; got "
            f"{reprlib.repr(record)} in {place}."
        )
    return record


def _text(record, key, place):
    if key not in record:
        raise T2TLiteError(
            f"Each line must have the key {key!r}; got "
            f"{', '.join(map(repr, record)) or 'no key'} in {place}. "
            "--source_key and --target_key name the keys."
        )
    text = record[key]
    if not isinstance(text, str):
        raise T2TLiteError(
            f"The value of {key!r} must be a string; got "
            f"{reprlib.repr(text)} in {place}."
        )
    if text.isascii():
        return text
    return text.encode("utf-8", "surrogatepass").decode("utf-8", "replace")
