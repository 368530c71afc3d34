"""Treebanks: files that are known by their numbers, and mixed trees."""

import itertools
import os
import pathlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from t2t_lite.corpus.lines import PACKED
from t2t_lite.errors import T2TLiteError, UsageError
from t2t_lite.parsing.tree_reader import read_trees
from t2t_lite.parsing.trees import OPEN, Tree, strip_annotation, walk, words

_RANGE = re.compile(r"(\d+)(?:-(\d+))?", re.ASCII)


class Numbers(NamedTuple):
    """The numbers of files, as ranges."""

    ranges: tuple[tuple[int, int], ...]  # (first, last), both included

    @classmethod
    def parse(cls, text: str, name: str = "numbers") -> "Numbers":
        """The ranges of a text such as "200-2199" or "1-9+12".

        Another form, or an empty range, is a UsageError about `name`.
        """
        ranges = []
        for part in text.split("+"):
            found = _RANGE.fullmatch(part.strip())
            first = int(found[1]) if found else 0
            last = int(found[2] or first) if found else -1
            if last < first:
                raise UsageError(
                    f"{name} must be numbers of files such as 200-2199 or "
                    f"1-9+12; got {text!r}."
                )
            ranges.append((first, last))
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
    files: dict[int, pathlib.Path] = {}
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
    """The files with these numbers; none of them is a T2TLiteError."""
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
    """The trees of files as `strip_annotation` and `read_trees` give them."""
    for path in paths:
        yield from map(strip_annotation, read_trees(path))


def with_subtrees(
    found: Iterable[Tree | None], most: int
) -> Iterator[Tree | None]:
    """Each tree, and after it its constituents of 2 to `most` words.

    Example, with a `most` of 2: after `(S (NP (X a) (X b)) (VP (X c)))` comes
    `(NP (X a) (X b))`.
    """
    for tree in found:
        yield tree
        inside = itertools.islice(walk(tree), 1, None) if tree else ()
        for event, part in inside:
            if event is OPEN and 2 <= len(words(part)) <= most:
                yield part


def mix(
    treebank: Sequence[Any], additional: Iterable[Any], share: float
) -> Iterator[Any]:
    """Both, so that the treebank has its share at every point.

    Example: [a, b], [1, 2, 3, 4, 5, 6], a share of a third:
    1, 2, a, 3, 4, b, 5, 6, a.

    The additional items are streamed, each once; the treebank, of at least one
    item, is repeated, and each of its items comes at least once. `share` is
    above 0 and below 1.
    """
    due, given = 0.0, 0
    for item in additional:
        yield item
        due += share / (1 - share)
        # Sums of shares are inexact: a third and two make one.
        while due > 1 - 1e-9:
            yield treebank[given % len(treebank)]
            due, given = due - 1, given + 1
    yield from treebank[given:]
