"""The two sides of a corpus: two files of lines, or one file with both.

One file is TSV, JSON lines or TMX. Of two files line i translates line i, or
segment i of a test set in SGML.
"""

import contextlib
import html
import itertools
import json
import os
import pathlib
import re
import reprlib
from collections.abc import Iterator, Sequence
from typing import Any

from t2t_lite.corpus.lines import (
    COMPRESSED_SUFFIXES,
    CORPUS,
    Encoding,
    damaged,
    open_compressed,
    read_lines,
)
from t2t_lite.errors import T2TLiteError, UsageError, format_error

FilePair = tuple[pathlib.Path, pathlib.Path]
FORMATS = (".tsv", ".jsonl", ".tmx")

_COMPRESSED = "|".join(map(re.escape, COMPRESSED_SUFFIXES))
_SGML = r"\.sgml?"
_XML_LANG = "{http://www.w3.org/XML/1998/namespace}lang"
# Elements of TMX with the formatting of another program, not text.
_FORMATTING = ("{*}bpt", "{*}ept", "{*}it", "{*}ph", "{*}ut")


def read_parallel(
    source_path: str | os.PathLike,
    target_path: str | os.PathLike,
    encoding: Encoding = CORPUS,
) -> Iterator[tuple[str, str]]:
    r"""Yield the pairs of two files in which line i translates line i.

    Example: files `a\nb\n` and `x\ny\n` give `("a", "x")`, `("b", "y")`.

    Args:
      source_path: a file, compressed or not; of `.sgm`, its segments.
      target_path: another.
      encoding: of both files, see `read_lines`.

    Raises:
      T2TLiteError: one file has more lines, which is known at the end of the
        other; or `read_lines` raises it.
    """
    both = (source_path, target_path)
    is_sgml = re.compile(f"{_SGML}(?:{_COMPRESSED})?$").search
    sources, targets = (
        (_read_segments if is_sgml(str(path)) else read_lines)(path, encoding)
        for path in both
    )
    for count, pair in enumerate(itertools.zip_longest(sources, targets)):
        if None in pair:
            short, long = both if pair[0] is None else both[::-1]
            raise T2TLiteError(
                "Line i of the target must translate line i of the source; "
                f"{short} has {count} lines, and {long} has more."
            )
        yield pair


def find_parallel_files(
    folder: str | os.PathLike,
    stems: Sequence[str],
    languages: tuple[str, str],
) -> list[FilePair]:
    """Return the (source, target) files of a split, ordered by name.

    Where `train` is the stem and the languages are x and y, these are sides:

      train.x train.y                    one pair of files
      train.1.x train.1.y ...            parts, also `train-news.x`
      train-src.x.sgm train-ref.y.sgm    SGML, as the workshops publish tests

    each compressed or not. SGML for other languages may lie there, too.

    Args:
      folder: where to look; not in folders below it.
      stems: names of the split; the first one that has files is taken.
      languages: in the names of the source and target files.

    Raises:
      T2TLiteError: there are no files, or one side lacks the other; as
        UsageError, a file twice or a whole file and parts.
    """
    folder = pathlib.Path(folder)
    try:
        names = sorted(entry.name for entry in folder.iterdir())
    except OSError as error:
        raise T2TLiteError(
            f"Cannot look for a corpus in {folder}: "
            f"{format_error(error, place=False)}. Name "
            "the folder that holds it with `raw_dir`."
        ) from error
    for stem in stems:
        sources, targets = (
            _parts(names, rf"{re.escape(stem)}(?:[.-](.+))?\.{re.escape(x)}")
            for x in languages
        )
        for part in sorted(sources.keys() ^ targets.keys()):
            missing = stem, part, languages[part in sources]
            raise T2TLiteError(
                f"{folder} holds {sources.get(part) or targets.get(part)} and "
                f"no {'.'.join(filter(None, missing))}: both sides of a corpus "
                "are needed."
            )
        if not sources:
            sources, targets = (
                _parts(
                    names, rf"{re.escape(stem)}(?:-(.+?))?-{role}\.{x}{_SGML}"
                )
                for role, x in zip(("src", "ref"), languages, strict=True)
            )
        if parts := sorted(sources.keys() & targets.keys()):
            return [(folder / sources[p], folder / targets[p]) for p in parts]
    wanted = " or ".join(f"{x}.{y}" for x in stems for y in languages)
    raise T2TLiteError(
        f"{folder} holds no {wanted}. Put both sides there, in parts "
        f"({stems[0]}.1.{languages[0]} ...), compressed "
        f"({', '.join(COMPRESSED_SUFFIXES)}) or as SGML, or name another "
        "folder with `raw_dir`."
    )


def _parts(names, pattern):
    """Return the files of one side by their part of the split; "": whole."""
    pattern = re.compile(f"{pattern}(?:{_COMPRESSED})?")
    found = [match for name in names if (match := pattern.fullmatch(name))]
    parts = {match[1] or "": match[0] for match in found}
    if len(parts) < len(found) or ("" in parts and len(parts) > 1):
        raise UsageError(
            "A side of a split must be one file or its parts, each once; got "
            f"{' and '.join(match[0] for match in found)}. Remove the others."
        )
    return parts


def _read_segments(path, encoding):
    """Yield the text of each `<seg>` of an SGML file, as mteval reads it.

    A "<" within a segment is text. Example: `<seg id="1"> 1 <2 &amp; 3
    </seg>` gives "1 <2 & 3".
    """
    content = "\n".join(read_lines(path, encoding))
    _, *segments = re.split(r"<seg\b", content, flags=re.IGNORECASE)
    if not segments:
        raise T2TLiteError(f"{path} has no <seg>: is it a test set in SGML?")
    for segment in segments:
        _, _, text = segment.partition(">")
        text, *_ = re.split("</seg>", text, maxsplit=1, flags=re.IGNORECASE)
        yield html.unescape(" ".join(text.split()))


def format_of(path: str | os.PathLike) -> str:
    """Return one of FORMATS, by the name of a file.

    Raises:
      UsageError: the name ends in something else.
    """
    name = pathlib.Path(path)
    ending = (
        name.with_suffix("") if name.suffix in COMPRESSED_SUFFIXES else name
    ).suffix
    if ending not in FORMATS:
        raise UsageError(
            f"A file of pairs must end in {', '.join(FORMATS)}, or in one of "
            f"these and {', '.join(COMPRESSED_SUFFIXES)}; got {path}."
        )
    return ending


def read_tsv(
    path: str | os.PathLike, encoding: Encoding = CORPUS
) -> Iterator[tuple[str, str]]:
    r"""Yield the two texts of each line of a file, compressed or not.

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
    """Yield the texts under two keys of the JSON object on each line of a file.

    Example: `{"source": "a", "target": "A", "id": 7}` gives `("a", "A")`.
    Half a surrogate pair becomes U+FFFD.

    Raises:
      T2TLiteError: a line is not a JSON object with these strings; or
        `read_lines` does.
    """
    for number, line in enumerate(read_lines(path, encoding=encoding), 1):
        record: Any = "invalid JSON"
        with contextlib.suppress(ValueError, RecursionError):
            record = json.loads(line)
        texts: list[Any] = [None]
        if isinstance(record, dict):
            texts = [record.get(key) for key in (source_key, target_key)]
        if not all(isinstance(text, str) for text in texts):
            raise T2TLiteError(
                "Each line must be a JSON object with strings under "
                f"{source_key!r} and {target_key!r} (`source_key` and "
                f"`target_key` say which); got {reprlib.repr(record)} in "
                f"{path}, line {number}."
            )
        source, target = (
            text.encode("utf-8", "surrogatepass").decode("utf-8", "replace")
            for text in texts
        )
        yield source, target


def read_tmx(
    path: str | os.PathLike, source_language: str, target_language: str
) -> Iterator[tuple[str, str]]:
    """Yield the texts in two languages of each `<tu>` of a translation memory.

    Example: for "xx" and "yy" this unit gives `("a b", "A B")`:

      <tu><tuv xml:lang="xx-AA"><seg>a <ph>1</ph>b</seg></tuv>
          <tuv xml:lang="yy"><seg>A B</seg></tuv></tu>

    A language without a region means all of its regions. A unit that lacks a
    language has "" there; several texts in a language give a pair each. Line
    ends become spaces. One unit is in memory at a time.

    Raises:
      T2TLiteError: the file is missing or damaged, or no unit has a language.
    """

    def comparable(language):
        return language.replace("_", "-").lower()

    wanted = list(map(comparable, (source_language, target_language)))
    found: set[str] = set()
    for unit in _units(path):
        sides: tuple[list[str], list[str]] = ([], [])
        for variant in unit.iterchildren("{*}tuv"):
            language = variant.get(_XML_LANG) or variant.get("lang") or ""
            found.add(language := comparable(language))
            for side, name in zip(sides, wanted, strict=True):
                if language == name or language.startswith(f"{name}-"):
                    segments = variant.iterchildren("{*}seg")
                    side += [_text_of_segment(each, path) for each in segments]
        yield from itertools.product(*(side or [""] for side in sides))
    for name in wanted:
        if found and not any(f"{x}-".startswith(f"{name}-") for x in found):
            raise T2TLiteError(
                f"{path} has no text in {name!r}; it has "
                f"{', '.join(map(repr, sorted(found)))}."
            )


def _units(path):
    """Yield each `<tu>`, and free it when the next one is asked for."""
    from lxml import etree

    with open_compressed(path) as file:
        # Nothing but the file itself is read: no DTD, no entity.
        units = etree.iterparse(
            file,
            tag="{*}tu",
            resolve_entities=False,
            load_dtd=False,
            no_network=True,
        )
        try:
            for _, unit in units:
                yield unit
                unit.clear()
                while unit.getprevious() is not None:
                    del unit.getparent()[0]
        except etree.XMLSyntaxError as error:
            # The exception itself does not always have the line.
            first = next(iter(units.error_log), None)
            reason = f"line {first.line}: {first.message}" if first else error
            raise damaged(path, reason) from error


def _text_of_segment(segment, path):
    """Return the text of a segment, without formatting."""
    from lxml import etree

    etree.strip_elements(segment, *_FORMATTING, with_tail=False)
    for entity in segment.iter(etree.Entity):
        raise T2TLiteError(
            f"An entity of a DTD is not read; got {entity.text} in {path}, "
            f"line {entity.sourceline}. Put its text in its place."
        )
    return "".join(segment.itertext()).replace("\n", " ").strip()
