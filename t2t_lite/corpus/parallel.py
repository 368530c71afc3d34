"""The two sides of a corpus: files whose line i translates line i."""

import functools
import itertools
import os
import pathlib
import re
from collections.abc import Callable, Iterator, Sequence

from t2t_lite.corpus.lines import (
    CORPUS,
    PACKED,
    REPLACED,
    Encoding,
    checked_lines,
    damaged,
    open_packed,
    read_lines,
)
from t2t_lite.errors import T2TLiteError, UsageError, in_words

Sides = tuple[pathlib.Path, pathlib.Path]

_COMPRESSED = "|".join(map(re.escape, PACKED))


def read_parallel(
    source_path: str | os.PathLike,
    target_path: str | os.PathLike,
    read: Callable[[str | os.PathLike], Iterator[str]] | None = None,
    encoding: Encoding = CORPUS,
) -> Iterator[tuple[str, str]]:
    r"""Yield the pairs of two files in which line i translates line i.

    Example: files `a\nb\n` and `x\ny\n` give `("a", "x")`, `("b", "y")`.

    Args:
      source_path: a file, compressed or not.
      target_path: another.
      read: gives the lines of a file; by default `read_lines`.
      encoding: of both files, see `read_lines`.

    Raises:
      T2TLiteError: one file has more lines, which is known at the end of the
        other; or `read_lines` raises it.
    """
    read = read or functools.partial(read_lines, encoding=encoding)
    sources, targets = read(source_path), read(target_path)
    for count, pair in enumerate(itertools.zip_longest(sources, targets)):
        if None in pair:
            both = (source_path, target_path)
            short, long = both if pair[0] is None else both[::-1]
            raise T2TLiteError(
                "Line i of the target must translate line i of the source; "
                f"{short} has {count} lines, and {long} has more."
            )
        yield pair


def find_sides(
    folder: str | os.PathLike,
    stems: Sequence[str],
    languages: tuple[str, str],
) -> list[Sides]:
    """Return the (source, target) files of a split, ordered by name.

    Where `train` is the stem and the languages are x and y, these are sides:

      train.x train.y                    one pair of files
      train.1.x train.1.y ...            parts, also `train-news.x`
      train-src.x.sgm train-ref.y.sgm    SGML, as the workshops publish tests

    each compressed or not. SGML for other languages may lie beside it.

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
            f"{in_words(error, place=False)}. Name "
            "the folder that holds it with --raw_dir."
        ) from error
    for stem in stems:
        plain = [
            _parts(names, rf"{re.escape(stem)}(?:[.-](.+))?\.{re.escape(x)}")
            for x in languages
        ]
        if any(plain):
            return _pair_up(folder, plain, stem, languages)
        source, target = (
            _parts(names, rf"{re.escape(stem)}(?:-(.+?))?-{role}\.{x}\.sgml?")
            for role, x in zip(("src", "ref"), languages, strict=True)
        )
        if found := sorted(source.keys() & target.keys()):
            return [(folder / source[p], folder / target[p]) for p in found]
    wanted = " or ".join(f"{x}.{y}" for x in stems for y in languages)
    raise T2TLiteError(
        f"{folder} holds no {wanted}. Put both sides there, in parts "
        f"({stems[0]}.1.{languages[0]} ...), compressed ({', '.join(PACKED)}) "
        "or as SGML, or name another folder with --raw_dir."
    )


def _parts(names, pattern):
    """Return the names that match, by their part of the split."""
    parts: dict[str, str] = {}
    for name in names:
        if match := re.fullmatch(f"{pattern}(?:{_COMPRESSED})?", name):
            if (other := parts.setdefault(match[1] or "", name)) != name:
                raise UsageError(
                    "A side of a corpus must be there once; got "
                    f"{other} and {name}."
                )
    return parts


def _pair_up(folder, sides, stem, languages):
    """Return the two files of the whole split, or of each of its parts."""
    sources, targets = sides
    for found in sides:
        if "" in found and len(found) > 1:
            raise UsageError(
                f"A split is one file a side or its parts; got "
                f"{' and '.join(found.values())} in {folder}. Remove the files "
                f"that are not {stem}."
            )
    for part in sorted(sources.keys() ^ targets.keys()):
        language = languages[part in sources]
        missing = ".".join(filter(None, (stem, part, language)))
        raise T2TLiteError(
            f"{folder} holds {sources.get(part) or targets.get(part)} and no "
            f"{missing}: both sides of a corpus are needed."
        )
    return [(folder / sources[p], folder / targets[p]) for p in sorted(sources)]


def read_sides(sides: Sequence[Sides]) -> Iterator[tuple[str, str]]:
    """Yield the pairs of texts of each (source, target)."""

    def read(path):
        is_segments = {"sgm", "sgml"} & {*path.name.split(".")}
        return read_segments(path) if is_segments else read_lines(path, CORPUS)

    for source, target in sides:
        yield from read_parallel(source, target, read)


def read_segments(path: str | os.PathLike) -> Iterator[str]:
    """Yield the text of each `<seg>` of an SGML file, entities resolved.

    Example: `<doc><seg id="1"> A &amp; B </seg></doc>` gives "A & B".

    Raises:
      T2TLiteError: the file is unreadable or damaged, has no segment, or has
        too much broken text.
    """
    from lxml import etree  # sacreBLEU's own, for the same files

    def texts(file):
        # SGML that is not XML, such as a bare "&", is read as HTML is.
        events = etree.iterparse(
            file, tag="seg", html=True, encoding="utf-8", recover=True
        )
        for _, segment in events:
            yield " ".join("".join(segment.itertext()).split("\n")).strip()
            segment.clear()

    text = None
    with open_packed(path) as file:
        try:
            for text in checked_lines(texts(file), path, CORPUS, REPLACED):
                yield text
        except etree.XMLSyntaxError as error:
            raise damaged(path, error) from error
    if text is None:
        raise T2TLiteError(f"{path} has no <seg>: is it a test set in SGML?")
