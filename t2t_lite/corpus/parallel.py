"""Read the two sides of a corpus from two files, or from one file with both.

Line i of one file translates line i of the other; in SGML test sets, segment i
of the other. A file with both sides is TSV, JSON lines, TMX, Parquet or ZIP.
"""

import codecs
import html
import itertools
import json
import pathlib
import re
import reprlib
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from t2t_lite.corpus import lines
from t2t_lite.corpus.lines import (
    CORPUS,
    UTF_8,
    Encoding,
    Readable,
    damaged_error,
)
from t2t_lite.errors import (
    INVALID_JSON,
    T2TLiteError,
    UsageError,
    explain,
    format_error,
    requires_extra,
)
from t2t_lite.files import PathLike

FilePair = tuple[pathlib.Path, pathlib.Path]
FORMATS = (".tsv", ".jsonl", ".tmx", ".parquet", ".zip")
_CODE = r"([a-z]{2,3}(?:_\w+)?)"
LANGUAGE_PAIR = re.compile(rf"(?<![^./:]){_CODE}-{_CODE}$")  # ends a name
match_dataset = re.compile(r"(hf|tfds):(?=.)").match

_COMPRESSED = f"(?i:{'|'.join(map(re.escape, lines.COMPRESSED_SUFFIXES))})"
_SGML = r"\.sgml?"

_KEYS = ("source", "target")  # the default keys of a record
_HUB_KEY = "translation"  # of texts by language on the Hugging Face Hub
_ROWS = 4096  # of a Parquet file, in memory at a time
_XML_LANG = "{http://www.w3.org/XML/1998/namespace}lang"
_XML_STARTS = {
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
    b"<\0": "utf-16-le",
    b"\0<": "utf-16-be",
}
# Elements of TMX that contain formatting codes, not text.
_FORMATTING = ("{*}bpt", "{*}ept", "{*}it", "{*}ph", "{*}ut")


def read_parallel(
    source_path: Readable, target_path: Readable, encoding: Encoding = CORPUS
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
        (_read_sgml if is_sgml(str(path)) else lines.read_lines)(path, encoding)
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
    fix = "Give the folder of the corpus with `raw_dir`."
    with explain(f"Cannot find a corpus in {folder}", OSError, fix=fix):
        names = sorted(entry.name for entry in folder.iterdir())
    for stem in stems:
        start = re.escape(stem)
        sources, targets = (
            _find_files(names, rf"{start}(?:[.-](.+))?\.{re.escape(x)}")
            for x in languages
        )
        for part in sorted(sources.keys() ^ targets.keys()):
            missing = stem, part, languages[1 if part in sources else 0]
            raise T2TLiteError(
                f"{folder} holds {sources.get(part) or targets.get(part)}, but "
                f"{'.'.join(filter(None, missing))} is missing. A corpus "
                "requires both sides."
            )
        if not sources:
            sources, targets = (
                _find_files(names, rf"{start}(?:-(.+?))?-{role}\.{x}{_SGML}")
                for role, x in zip(("src", "ref"), languages, strict=True)
            )
        if parts := sorted(sources.keys() & targets.keys()):
            return [(folder / sources[p], folder / targets[p]) for p in parts]
    names = [f"{stem}.{x}" for stem in stems for x in languages]
    raise T2TLiteError(
        f"{folder} holds no {' or '.join(names)}. Put both sides into it, or "
        "give another folder with `raw_dir`. Parts "
        f"({stems[0]}.1.{languages[0]} ...), compressed files "
        f"({', '.join(lines.COMPRESSED_SUFFIXES)}) and SGML are supported."
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
    content = "".join(lines.read_markup(path, encoding))
    _, *segments = re.split(r"<seg(?=[\s>])", content, flags=re.IGNORECASE)
    if not segments:
        raise T2TLiteError(f"{path} is not an SGML test set: it has no <seg>.")
    for segment in segments:
        _, _, text = segment.partition(">")
        text, *_ = re.split("</seg>", text, maxsplit=1, flags=re.IGNORECASE)
        yield html.unescape(" ".join(text.split()))


def format_of(path: PathLike) -> str:
    """Return the format by its name, or "hf:", "tfds:"; or raise UsageError."""
    if match := match_dataset(str(path)):
        return match[0]
    name = pathlib.Path(path)
    if name.suffix.lower() in lines.COMPRESSED_SUFFIXES:
        name = name.with_suffix("")
    suffix = name.suffix.lower()
    if suffix not in FORMATS:
        lines.refuse_pipe(path)
        raise UsageError(
            f"A file of pairs must end in {', '.join(FORMATS)}, optionally "
            f"followed by {', '.join(lines.COMPRESSED_SUFFIXES)}, or a dataset "
            f"begin with hf: or tfds: (got {path})."
        )
    return suffix


def _numbered_lines(path, encoding):
    """Yield (number, line) from 1, without blank lines at the end."""
    blank = []
    for number, line in enumerate(lines.read_lines(path, encoding), 1):
        if not line.strip(" "):
            blank.append((number, line))
            continue
        yield from blank
        blank.clear()
        yield number, line


def read_tsv(
    path: PathLike, encoding: Encoding = CORPUS
) -> Iterator[tuple[str, str]]:
    r"""Yield the two texts of each line of a TSV file, compressed or not.

    Example: `a b\tA B\n` gives `("a b", "A B")`. TSV has no quotes or escapes.
    Blank lines at the end are ignored.

    Raises:
      T2TLiteError: a line does not have one TAB, or the file is invalid.
    """
    for number, line in _numbered_lines(path, encoding):
        texts = line.split("\t")
        if len(texts) != 2:
            raise T2TLiteError(
                "A line must have one TAB between source and target; got "
                f"{len(texts) - 1} in {path}, line {number}."
            )
        yield texts[0], texts[1]


def read_json_lines(
    path: PathLike,
    source_key: str = _KEYS[0],
    target_key: str = _KEYS[1],
    encoding: Encoding = CORPUS,
    languages: Sequence[str] = ("", ""),
) -> Iterator[tuple[str, str]]:
    """Yield the texts under two keys of the JSON object on each line of a file.

    Example: `{"source": "a", "target": "A", "id": 7}` gives `("a", "A")`. The
    keys "t.xx" and "t.yy", or the default keys and the `languages` "xx" and
    "yy" for the name "translation", select the texts of
    `{"translation": {"xx": "a", "yy": "A"}}`, as on the Hugging Face Hub.
    U+FFFD replaces lone surrogates and control characters. Blank lines at the
    end are ignored.

    Raises:
      T2TLiteError: a line has no such object, or the file is invalid.
    """
    keys = source_key, target_key
    for number, line in _numbered_lines(path, encoding):
        try:
            yield _texts(json.loads(line), keys, languages)
        except INVALID_JSON as error:
            place = f"{path}, line {number}"
            raise _record_error(place, line, keys) from error


def read_parquet(
    path: PathLike,
    source_key: str = _KEYS[0],
    target_key: str = _KEYS[1],
    languages: Sequence[str] = ("", ""),
) -> Iterator[tuple[str, str]]:
    """Yield the texts of each row of a Parquet file, as `read_json_lines`."""
    with requires_extra("parquet", path):
        from pyarrow import ArrowException, parquet
    keys = source_key, target_key
    columns = [*keys, *(x.split(".")[0] for x in keys), _HUB_KEY, *languages]
    try:
        with lines.open_compressed(path) as file:
            table = parquet.ParquetFile(file)
            batches = table.iter_batches(_ROWS, columns=columns)
            rows = (row for batch in batches for row in batch.to_pylist())
            names = table.schema_arrow.names
            yield from read_rows(rows, path, keys, languages, names)
    except (ArrowException, ValueError) as error:
        raise damaged_error(path, format_error(error, place=False)) from error


def read_rows(
    rows: Iterable[Mapping[str, Any]],
    name: PathLike,
    keys: tuple[str, str] = _KEYS,
    languages: Sequence[str] = ("", ""),
    columns: Sequence[str] | None = None,
) -> Iterator[tuple[str, str]]:
    """Yield the texts of each row, as `read_json_lines`.

    Errors contain `name` and `columns`, by default the keys of the row.
    """
    for number, row in enumerate(rows, 1):
        try:
            yield _texts(row, keys, languages)
        except INVALID_JSON as error:
            place = f"{name}, row {number}"
            raise _record_error(place, columns or list(row), keys) from error


def read_zip(
    path: PathLike,
    languages: tuple[str, str] = ("", ""),
    encoding: Encoding = CORPUS,
) -> Iterator[tuple[str, str]]:
    """Yield the pairs of the files `x.aa-bb.aa` and `x.aa-bb.bb` of an archive.

    OPUS publishes such archives. The languages ("bb", "aa") swap both sides.
    Other files are ignored.

    Raises:
      T2TLiteError: the archive is damaged or does not have one pair of files.
    """
    try:
        with (
            lines.open_compressed(path) as file,
            zipfile.ZipFile(file) as archive,
        ):
            names = archive.namelist()
            stems = {name.rpartition(".")[0] for name in names}
            pairs = [
                [f"{stem}.{x}" for x in languages_of(stem, languages)]
                for stem in filter(LANGUAGE_PAIR.search, stems)
            ]
            pairs = [pair for pair in pairs if set(pair) <= set(names)]
            if len(pairs) != 1:
                raise T2TLiteError(
                    "A ZIP archive must have one pair of files, such as "
                    "corpus.xx-yy.xx and corpus.xx-yy.yy, in "
                    "`source_language` and `target_language` if they are "
                    f"given; {path} has {', '.join(names) or 'no file'}."
                )
            source, target = (zipfile.Path(archive, x) for x in pairs[0])
            yield from read_parallel(source, target, encoding)
    except RuntimeError as error:  # encryption, or an unknown compression
        raise damaged_error(path, error) from error


def languages_of(name: str, languages: tuple[str, str]) -> tuple[str, str]:
    """Return the languages in a name such as "x.aa-bb".

    `languages` other than "" have priority: ("bb", "") gives ("bb", "aa").
    """
    source, target = languages
    if match := LANGUAGE_PAIR.search(name):
        pair = match.groups()
        if source == pair[1] or target == pair[0]:
            pair = pair[::-1]
        source, target = source or pair[0], target or pair[1]
    return source, target


def _texts(record, keys, languages):
    """Return the two texts of a record; raise INVALID_JSON without them."""
    if keys == _KEYS and not record.keys() & keys:
        prefix = f"{_HUB_KEY}." if _HUB_KEY in record else ""
        keys = [f"{prefix}{language}" for language in languages]
    texts = []
    for key in keys:
        value = record
        for name in [key] if key in record else key.split("."):
            value = value[name]
        text = value.encode("utf-8", "surrogatepass").decode("utf-8", "replace")
        texts.append(lines.replace_invalid(text))
    return tuple(texts)


def _record_error(place, content, keys):
    return T2TLiteError(
        f"A record must have texts under the keys {keys[0]!r} (`source_key`) "
        f"and {keys[1]!r} (`target_key`), such as {_HUB_KEY}.en, or under "
        f"{_HUB_KEY!r} and both languages (`source_language`, "
        f"`target_language`); got {reprlib.repr(content)} in {place}."
    )


def read_tmx(
    path: PathLike,
    source_language: str,
    target_language: str,
    encoding: Encoding = CORPUS,
) -> Iterator[tuple[str, str]]:
    """Yield the texts in two languages of each `<tu>` of a TMX file.

    Example: for "xx" and "yy" this unit gives `("a b", "A B")`:

      <tu><tuv xml:lang="xx-AA"><seg>a <ph>1</ph>b</seg></tuv>
          <tuv xml:lang="yy"><seg>A B</seg></tuv></tu>

    A language without a region matches all of its regions. A missing language
    gives ""; several texts in a language give several pairs. Line ends become
    spaces. Only one unit is in memory at a time. Only the limit of invalid text
    of `encoding` counts, because the file declares its encoding.

    Raises:
      T2TLiteError: the file is damaged or has no text in one of the languages.
    """

    def normalize(language):
        return language.replace("_", "-").lower()

    languages = list(map(normalize, (source_language, target_language)))
    found: set[str] = set()
    has_segment = False
    for unit in _units(path, encoding.max_invalid_ratio):
        sides: tuple[list[str], list[str]] = ([], [])
        for variant in unit.iterchildren("{*}tuv"):
            language = variant.get(_XML_LANG) or variant.get("lang") or ""
            found.add(language := normalize(language))
            for side, name in zip(sides, languages, strict=True):
                if language == name or language.startswith(f"{name}-"):
                    segments = variant.iterchildren("{*}seg")
                    side += [_segment_text(each, path) for each in segments]
        has_segment = has_segment or any(sides)
        yield from itertools.product(*(side or [""] for side in sides))
    if not found:
        raise T2TLiteError(f"{path} has no <tu> with a <tuv>: it has no text.")
    for name in languages:
        if not any(f"{x}-".startswith(f"{name}-") for x in found):
            raise T2TLiteError(
                f"{path} has no text in {name!r}; it has "
                f"{', '.join(map(repr, sorted(found)))}."
            )
    if not has_segment:
        raise T2TLiteError(f"{path} has no <seg> in a <tuv>: it has no text.")


def _units(path, max_invalid_ratio):
    """Yield each `<tu>`; free it when the next one is read."""
    from lxml import etree

    # For security, no DTD or external entity is loaded.
    safe = {"resolve_entities": False, "load_dtd": False, "no_network": True}
    parser = etree.XMLPullParser(("end",), tag="{*}tu", encoding=UTF_8, **safe)
    encoding = Encoding(_xml_encoding(path), max_invalid_ratio)
    try:
        for piece in lines.read_markup(path, encoding):
            parser.feed(piece.encode())
            for _, unit in parser.read_events():
                yield unit
                unit.clear()
                while unit.getprevious() is not None:
                    del unit.getparent()[0]
            # After some errors the parser would begin a new document.
            for error in parser.feed_error_log.filter_from_fatals():
                raise damaged_error(path, f"line {error.line}: {error.message}")
        parser.close()
    except etree.XMLSyntaxError as error:
        raise damaged_error(
            path, f"line {error.lineno}: {error.msg}"
        ) from error


def _xml_encoding(path):
    """Return the encoding of an XML file by its BOM, NULs or declaration."""
    with lines.open_compressed(path) as file:
        start = file.read(200)
    for first, name in _XML_STARTS.items():
        if start.startswith(first):
            return name
    match = re.match(rb"[^>]*\sencoding\s*=\s*[\"']([\w.:-]+)", start)
    name = match[1].decode() if match else UTF_8
    try:
        name = lines.normalize_encoding(name)
    except ValueError as error:
        raise damaged_error(path, f"unknown encoding {name!r}") from error
    return UTF_8 if b"\0" in "a".encode(name) else name  # a wrong declaration


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
