"""The two sides of a corpus among the files of a folder, as published."""

import os
import pathlib
import re
from collections.abc import Iterator, Sequence

from t2t_lite.corpus.lines import (
    CORPUS,
    PACKED,
    BrokenLines,
    damaged,
    open_packed,
    read_lines,
)
from t2t_lite.corpus.parallel_lines import read_parallel
from t2t_lite.errors import T2TLiteError, UsageError, in_words

Sides = tuple[pathlib.Path, pathlib.Path]


def find_sides(
    folder: str | os.PathLike,
    stems: Sequence[str],
    languages: tuple[str, str],
) -> list[Sides]:
    """The (source, target) files of a split, in the order of their names.

    Where `train` is the stem and the languages are x and y, these are sides:

      train.x train.y                    one pair of files
      train.1.x train.1.y ...            parts, also `train-news.x`
      train-src.x.sgm train-ref.y.sgm    SGML, as the workshops publish tests

    each as it is or packed (.gz .bz2 .xz .zst). SGML for other languages may
    lie beside it.

    Args:
      folder: where to look; not in folders below it.
      stems: names of the split; the first one that has files is taken.
      languages: what the source and the target file are called.

    Raises:
      T2TLiteError: no files, or one side without the other.
      UsageError: the same file twice, packed in two ways; or a whole file and
        parts, which may be the same text in another form.
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
        plain = _by_part(folder, names, stem, languages, _PLAIN)
        if any(plain):
            return _paired(folder, plain, stem, languages)
        segments = _by_part(folder, names, stem, languages, _SGML)
        whole = segments[0].keys() & segments[1].keys()
        if whole:
            return [(segments[0][p], segments[1][p]) for p in sorted(whole)]
    wanted = " or ".join(
        " and ".join(f"{stem}.{language}" for language in languages)
        for stem in stems
    )
    raise T2TLiteError(
        f"{folder} holds no {wanted}. Put them there, in parts "
        f"({stems[0]}.1.{languages[0]} ...), packed ({', '.join(PACKED)}) or "
        "as SGML, or name another folder with --raw_dir."
    )


_PACKED = "|".join(map(re.escape, PACKED))
# A file's name, with its stem and language put in: part, then role of SGML.
_PLAIN = rf"{{stem}}(?:[.-](.+))?()\.{{language}}(?:{_PACKED})?"
_SGML = rf"{{stem}}(?:-(.+?))?-(src|ref)\.{{language}}\.sgml?(?:{_PACKED})?"


def _by_part(folder, names, stem, languages, pattern):
    """For each language, the file of every part of the split."""
    sides = []
    for language, usual_role in zip(languages, ("src", "ref"), strict=True):
        expression = re.compile(
            pattern.format(stem=re.escape(stem), language=re.escape(language))
        )
        found: dict[str, pathlib.Path] = {}
        for name in names:
            match = expression.fullmatch(name)
            if not match:
                continue
            part, role = match[1] or "", match[2]
            # The texts of a language as source and as reference are the same.
            if part in found and not role:
                raise UsageError(
                    f"A side of a corpus must be there once; got "
                    f"{found[part].name} and {name} in {folder}."
                )
            if part not in found or role == usual_role:
                found[part] = folder / name
        sides.append(found)
    return sides


def _paired(folder, sides, stem, languages):
    """The two files of the whole split, or of every part of it."""
    for found in sides:
        if "" in found and len(found) > 1:
            part = next(file for part, file in found.items() if part)
            raise UsageError(
                f"A split is one file a side or its parts; got "
                f"{found[''].name} and {part.name} in {folder}. Take out what "
                f"does not belong to {stem}."
            )
    sources, targets = sides
    for part in sorted(sources.keys() ^ targets.keys()):
        there, missing = languages if part in sources else languages[::-1]
        file = (sources.get(part) or targets.get(part)).name
        name = f"{stem}.{part}" if part else stem
        raise T2TLiteError(
            f"{folder} holds {file}, which is in {there}, and no {name}."
            f"{missing} beside it: both sides of a corpus are needed."
        )
    return [(sources[part], targets[part]) for part in sorted(sources)]


def read_sides(sides: Sequence[Sides]) -> Iterator[tuple[str, str]]:
    """The pairs of texts of each (source, target), as `read_parallel`."""
    for source, target in sides:
        yield from read_parallel(source, target, _texts)


def is_segments(path: pathlib.Path) -> bool:
    """Whether a file is SGML, packed or not, by its name."""
    return bool({"sgm", "sgml"} & {*path.name.split(".")})


def _texts(path):
    if is_segments(path):
        return read_segments(path)
    return read_lines(path, encoding=CORPUS)


def read_segments(path: str | os.PathLike) -> Iterator[str]:
    """The text of each `<seg>` of an SGML file, entities read.

    Example: `<doc><seg id="1"> A &amp; B </seg></doc>` gives "A & B".

    Raises:
      T2TLiteError: the file is unreadable or damaged, has no segment, or has
        too much broken text, as in a file of lines.
    """
    from lxml import etree  # sacreBLEU's own, for the same files

    broken = BrokenLines(path, CORPUS)
    with open_packed(path) as file:
        # SGML that is not XML, such as a bare "&", is read as HTML is.
        events = etree.iterparse(
            file, tag="seg", html=True, encoding="utf-8", recover=True
        )
        try:
            for _, segment in events:
                text = " ".join("".join(segment.itertext()).split("\n"))
                broken.add("\ufffd" in text or "\0" in text)
                yield text.strip()
                segment.clear()
        except etree.XMLSyntaxError as error:
            raise damaged(path, error) from error
    broken.check()
    if not broken.lines:
        raise T2TLiteError(f"{path} has no <seg>: is it a test set in SGML?")
