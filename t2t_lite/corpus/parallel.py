"""Read the two sides of a corpus from two files, or from one file with both.

Line i of one file translates line i of the other; in SGML test sets, segment i
of the other. A file with both sides is TSV, JSON lines or TMX.
"""

import html
import itertools
import json
import pathlib
import re
import reprlib
from collections.abc import Iterator, Sequence

from t2t_lite.corpus.lines import (
    COMPRESSED_SUFFIXES,
    CORPUS,
    Encoding,
    damaged,
    open_compressed,
    read_lines,
)
from t2t_lite.errors import T2TLiteError, UsageError, format_error
from t2t_lite.files import PathLike

FilePair = tuple[pathlib.Path, pathlib.Path]
FORMATS = (".tsv", ".jsonl", ".tmx")

_COMPRESSED = "|".join(map(re.escape, COMPRESSED_SUFFIXES))
_SGML = r"\.sgml?"
# Errors raised while reading invalid or unexpected JSON.
_INVALID_RECORD = (
    *(ValueError, RecursionError, KeyError),
    *(TypeError, AttributeError),
)
_XML_LANG = "{http://www.w3.org/XML/1998/namespace}lang"
# Elements of TMX that contain formatting codes, not text.
_FORMATTING = ("{*}bpt", "{*}ept", "{*}it", "{*}ph", "{*}ut")


def read_parallel(
    source_path: PathLike, target_path: PathLike, encoding: Encoding = CORPUS
) -> Iterator[tuple[str, str]]:
    r"""Yield the pairs of two files in which line i translates line i.

    Example: files `a\nb\n` and `x\ny\n` give `("a", "x")`, `("b", "y")`. The
    files may be compressed; `.sgm` is SGML.

    Raises:
      T2TLiteError: one file has more lines than the other (raised at the end of
        the shorter file), or a file is invalid, see `read_lines`.
    """
    paths = (source_path, target_path)
    is_sgml = re.compile(f"{_SGML}(?:{_COMPRESSED})?$").search
    sources, targets = (
        (_read_sgml if is_sgml(str(path)) else read_lines)(path, encoding)
        for path in paths
    )
    for count, pair in enumerate(itertools.zip_longest(sources, targets)):
        if None in pair:
            short, long = paths if pair[0] is None else paths[::-1]
            raise T2TLiteError(
                "Line i of the target must translate line i of the source; "
                f"{short} has {count} lines, and {long} has more."
            )
        yield pair


def find_parallel_files(
    folder: PathLike, stems: Sequence[str], languages: tuple[str, str]
) -> list[FilePair]:
    """Return the (source, target) files of a split, ordered by name.

    With the stem `train` and the languages x and y, the files may be

      train.x train.y                    one pair of files
      train.1.x train.1.y ...            parts, also `train-news.x`
      train-src.x.sgm train-ref.y.sgm    SGML test sets, as WMT publishes them

    each compressed or not. The first stem with files is used. SGML files in
    other languages are ignored.

    Raises:
      T2TLiteError: there are no files, or one side is missing.
      UsageError: a file exists twice, or a whole file and its parts exist.
    """
    folder = pathlib.Path(folder)
    try:
        names = sorted(entry.name for entry in folder.iterdir())
    except OSError as error:
        raise T2TLiteError(
            f"Cannot find a corpus in {folder}: "
            f"{format_error(error, place=False)}. Give the folder of the "
            "corpus with `raw_dir`."
        ) from error
    for stem in stems:
        sources, targets = (
            _find_files(
                names, rf"{re.escape(stem)}(?:[.-](.+))?\.{re.escape(x)}"
            )
            for x in languages
        )
        for part in sorted(sources.keys() ^ targets.keys()):
            missing = stem, part, languages[part in sources]
            raise T2TLiteError(
                f"{folder} holds {sources.get(part) or targets.get(part)}, but "
                f"{'.'.join(filter(None, missing))} is missing. A corpus "
                "requires both sides."
            )
        if not sources:
            sources, targets = (
                _find_files(
                    names, rf"{re.escape(stem)}(?:-(.+?))?-{role}\.{x}{_SGML}"
                )
                for role, x in zip(("src", "ref"), languages, strict=True)
            )
        if parts := sorted(sources.keys() & targets.keys()):
            return [(folder / sources[p], folder / targets[p]) for p in parts]
    names = [f"{stem}.{x}" for stem in stems for x in languages]
    raise T2TLiteError(
        f"{folder} holds no {' or '.join(names)}. Put both sides into it, or "
        "give another folder with `raw_dir`. Parts "
        f"({stems[0]}.1.{languages[0]} ...), compressed files "
        f"({', '.join(COMPRESSED_SUFFIXES)}) and SGML are supported."
    )


def _find_files(names, pattern):
    """Return the files of one side by part; "" is the part of a whole file."""
    pattern = re.compile(f"{pattern}(?:{_COMPRESSED})?")
    found = [match for name in names if (match := pattern.fullmatch(name))]
    parts = {match[1] or "": match[0] for match in found}
    if len(parts) < len(found) or ("" in parts and len(parts) > 1):
        raise UsageError(
            "A side of a split must be either one file or parts, each once "
            f"(got {' and '.join(match[0] for match in found)}). Remove the "
            "extra files."
        )
    return parts


def _read_sgml(path, encoding):
    """Yield the text of each `<seg>` of an SGML file like mteval.

    "<" within a segment is text. Example: `<seg id="1"> 1 <2 &amp; 3 </seg>`
    gives "1 <2 & 3".
    """
    content = "\n".join(read_lines(path, encoding))
    _, *segments = re.split(r"<seg\b", content, flags=re.IGNORECASE)
    if not segments:
        raise T2TLiteError(f"{path} is not an SGML test set: it has no <seg>.")
    for segment in segments:
        _, _, text = segment.partition(">")
        text, *_ = re.split("</seg>", text, maxsplit=1, flags=re.IGNORECASE)
        yield html.unescape(" ".join(text.split()))


def format_of(path: PathLike) -> str:
    """Return a file's format by its name; raise UsageError for another one."""
    name = pathlib.Path(path)
    suffix = (
        name.with_suffix("") if name.suffix in COMPRESSED_SUFFIXES else name
    ).suffix
    if suffix not in FORMATS:
        raise UsageError(
            f"A file of pairs must end in {', '.join(FORMATS)}, optionally "
            f"followed by {', '.join(COMPRESSED_SUFFIXES)} (got {path})."
        )
    return suffix


def read_tsv(
    path: PathLike, encoding: Encoding = CORPUS
) -> Iterator[tuple[str, str]]:
    r"""Yield the two texts of each line of a TSV file, compressed or not.

    Example: `a b\tA B\n` gives `("a b", "A B")`. TSV has no quotes or escapes.

    Raises:
      T2TLiteError: a line does not have one TAB, or the file is invalid.
    """
    for number, line in enumerate(read_lines(path, encoding=encoding), 1):
        texts = line.split("\t")
        if len(texts) != 2:
            raise T2TLiteError(
                "A line must have one TAB between source and target; got "
                f"{len(texts) - 1} in {path}, line {number}."
            )
        yield texts[0], texts[1]


def read_json_lines(
    path: PathLike,
    source_key: str = "source",
    target_key: str = "target",
    encoding: Encoding = CORPUS,
) -> Iterator[tuple[str, str]]:
    """Yield the texts under two keys of the JSON object on each line of a file.

    Example: `{"source": "a", "target": "A", "id": 7}` gives `("a", "A")`.
    A lone surrogate becomes U+FFFD.

    Raises:
      T2TLiteError: a line has no such object, or the file is invalid.
    """
    for number, line in enumerate(read_lines(path, encoding=encoding), 1):
        try:
            record = json.loads(line)
            source, target = (
                record[key].encode("utf-8", "surrogatepass")
                for key in (source_key, target_key)
            )
        except _INVALID_RECORD as error:
            raise T2TLiteError(
                "Each line must be a JSON object with strings under "
                f"{source_key!r} (`source_key`) and {target_key!r} "
                f"(`target_key`); got {reprlib.repr(line)} in {path}, line "
                f"{number}."
            ) from error
        yield (
            source.decode("utf-8", "replace"),
            target.decode("utf-8", "replace"),
        )


def read_tmx(
    path: PathLike, source_language: str, target_language: str
) -> Iterator[tuple[str, str]]:
    """Yield the texts in two languages of each `<tu>` of a TMX file.

    Example: for "xx" and "yy" this unit gives `("a b", "A B")`:

      <tu><tuv xml:lang="xx-AA"><seg>a <ph>1</ph>b</seg></tuv>
          <tuv xml:lang="yy"><seg>A B</seg></tuv></tu>

    A language without a region matches all of its regions. A missing language
    gives ""; several texts in a language give several pairs. Line ends become
    spaces. Only one unit is in memory at a time.

    Raises:
      T2TLiteError: the file is damaged or has no text in one of the languages.
    """

    def normalize(language):
        return language.replace("_", "-").lower()

    languages = list(map(normalize, (source_language, target_language)))
    found: set[str] = set()
    for unit in _units(path):
        sides: tuple[list[str], list[str]] = ([], [])
        for variant in unit.iterchildren("{*}tuv"):
            language = variant.get(_XML_LANG) or variant.get("lang") or ""
            found.add(language := normalize(language))
            for side, name in zip(sides, languages, strict=True):
                if language == name or language.startswith(f"{name}-"):
                    segments = variant.iterchildren("{*}seg")
                    side += [_segment_text(each, path) for each in segments]
        yield from itertools.product(*(side or [""] for side in sides))
    for name in languages:
        if found and not any(f"{x}-".startswith(f"{name}-") for x in found):
            raise T2TLiteError(
                f"{path} has no text in {name!r}; it has "
                f"{', '.join(map(repr, sorted(found)))}."
            )


def _units(path):
    """Yield each `<tu>`; free it when the next one is read."""
    from lxml import etree

    with open_compressed(path) as file:
        # For security, no DTD or external entity is loaded.
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
            # The exception does not always contain the line number.
            first = next(iter(units.error_log), None)
            reason = f"line {first.line}: {first.message}" if first else error
            raise damaged(path, reason) from error


def _segment_text(segment, path):
    """Return the text of a segment, without formatting."""
    from lxml import etree

    etree.strip_elements(segment, *_FORMATTING, with_tail=False)
    for entity in segment.iter(etree.Entity):
        raise T2TLiteError(
            f"Entities of a DTD are not supported; got {entity.text} in "
            f"{path}, line {entity.sourceline}. Replace it with its text."
        )
    return "".join(segment.itertext()).replace("\n", " ").strip()
