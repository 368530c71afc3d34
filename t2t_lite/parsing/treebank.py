"""Treebanks: files that are known by their numbers, and mixed trees."""

import itertools
import os
import pathlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from t2t_lite.corpus.lines import PACKED
from t2t_lite.errors import T2TLiteError, UsageError
from t2t_lite.parsing.trees import OPEN, Tree, walk, words

_RANGE = re.compile(r"(\d+)(?:-(\d+))?", re.ASCII)


def parse_numbers(text: str, name: str = "numbers") -> list[range]:
    """The numbers of files that a text such as "200-2199" or "1-9+12" says.

    Another form, or an empty range, is a UsageError about `name`.
    """
    ranges = []
    for part in text.split("+"):
        found = _RANGE.fullmatch(part.strip())
        numbers = found and range(int(found[1]), int(found[2] or found[1]) + 1)
        if not numbers:
            raise UsageError(
                f"{name} must be numbers of files such as 200-2199 or "
                f"1-9+12; got {text!r}."
            )
        ranges.append(numbers)
    return ranges


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
    files: Mapping[int, pathlib.Path], numbers: str
) -> list[pathlib.Path]:
    """The files whose numbers the text says, see `parse_numbers`."""
    ranges = parse_numbers(numbers)
    return [
        path
        for number, path in files.items()
        if any(number in each for each in ranges)
    ]


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
