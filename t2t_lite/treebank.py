"""The files of a treebank that are told apart by their numbers."""

import os
import pathlib
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from t2t_lite.errors import T2TLiteError, UsageError
from t2t_lite.raw_files import PACKED
from t2t_lite.tree_reader import read_trees
from t2t_lite.trees import Tree, strip_annotation

_RANGE = re.compile(r"(\d+)(?:-(\d+))?", re.ASCII)


class Numbers(NamedTuple):
    """The numbers of files, as ranges.

    Attributes:
      ranges: (first, last) of each, both included.
    """

    ranges: tuple[tuple[int, int], ...]

    @classmethod
    def parse(cls, text: str, name: str = "numbers") -> "Numbers":
        """The ranges of a text such as "200-2199" or "1-9+12".

        Args:
          text: ranges and single numbers, joined by "+".
          name: what they are, for the error.

        Raises:
          UsageError: it is not of that form, or a range is empty.
        """
        ranges = []
        for part in text.split("+"):
            found = _RANGE.fullmatch(part.strip())
            first, last = found.groups() if found else (None, None)
            if not found or int(last or first) < int(first):
                raise UsageError(
                    f"{name} must be numbers of files such as 200-2199 or "
                    f"1-9+12; got {text!r}."
                )
            ranges.append((int(first), int(last or first)))
        return cls(tuple(ranges))

    def __contains__(self, number):
        return any(first <= number <= last for first, last in self.ranges)

    def __str__(self):
        return "+".join(
            f"{first}-{last}" if last > first else f"{first}"
            for first, last in self.ranges
        )


def numbered_files(
    folder: str | os.PathLike, stem: str
) -> dict[int, pathlib.Path]:
    """The files of a treebank by number, in its order, however deep they lie.

    Example, for the stem "wsj_": `wsj/02/wsj_0201.mrg` has the number 201.

    Args:
      folder: with files STEM and digits and any suffix but `.prd`, `.pos` and
        `.tgd`, which hold the same sentences in other forms.
      stem: how their names begin.

    Raises:
      T2TLiteError: there are none, or a number has two files.
    """
    packed = "|".join(map(re.escape, PACKED))
    name = re.compile(
        rf"{re.escape(stem)}(\d+)(?:\.(?:mrg|mrgs|txt|trees?))?(?:{packed})?",
        re.ASCII | re.IGNORECASE,
    )
    files = {}
    for path in sorted(pathlib.Path(folder).rglob(f"{stem}*")):
        found = name.fullmatch(path.name)
        if not found or not path.is_file():
            continue
        number = int(found[1])
        if number in files:
            raise T2TLiteError(
                f"A treebank must have one file of each number; got {path} "
                f"and {files[number]}. Name the folder of one of them with "
                "--raw_dir."
            )
        files[number] = path
    if not files:
        raise T2TLiteError(
            f"{folder} must hold files {stem}NNNN.mrg, also in folders; got "
            "none. Name the folder of the treebank with --raw_dir."
        )
    return dict(sorted(files.items()))


def choose_files(
    files: Mapping[int, pathlib.Path], numbers: Numbers, name: str
) -> list[pathlib.Path]:
    """The files with these numbers.

    Raises:
      T2TLiteError: there are none.
    """
    chosen = [path for number, path in files.items() if number in numbers]
    if not chosen:
        raise T2TLiteError(
            f"The {name} split must have files; there is none with a number "
            f"in {numbers}, only {min(files)} to {max(files)}."
        )
    return chosen


def stripped_trees(
    paths: Sequence[str | os.PathLike],
) -> Iterator[Tree | None]:
    """The trees of files without annotation (`trees.strip_annotation`).

    Yields: None for a tree that has no words left.

    Raises:
      T2TLiteError: as `read_trees`.
    """
    for path in paths:
        yield from map(strip_annotation, read_trees(path))
