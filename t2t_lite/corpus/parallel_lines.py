"""Two files in which line i translates line i: as a whole, or in parts.

Several readers share a corpus by its parts. A part says where its first line is
in either file, because line i may begin at different bytes.
"""

import functools
import itertools
import os
import pathlib
from collections.abc import Callable, Iterator
from typing import NamedTuple

from t2t_lite.corpus.lines import CORPUS, PACKED, Encoding, read_lines
from t2t_lite.errors import T2TLiteError

PART_LINES = 250_000  # of each side
_CHUNK_BYTES = 1 << 20
_LINE_END = ord("\n")


def read_parallel(
    source_path: str | os.PathLike,
    target_path: str | os.PathLike,
    read: Callable[[str | os.PathLike], Iterator[str]] | None = None,
    encoding: Encoding = CORPUS,
) -> Iterator[tuple[str, str]]:
    r"""The pairs of two files in which line i translates line i.

    Example: files `a\nb\n` and `x\ny\n` give `("a", "x")`, `("b", "y")`.

    Args:
      source_path: a file, packed or not.
      target_path: another.
      read: gives the lines of a file; by default `read_lines`.
      encoding: what is expected of both, see `read_lines`.

    Raises:
      T2TLiteError: one file has more lines, known only at the end of the
        other; or `read_lines` does.
    """
    read = read or functools.partial(read_lines, encoding=encoding)
    sources, targets = read(source_path), read(target_path)
    for count, pair in enumerate(itertools.zip_longest(sources, targets)):
        if None in pair:
            in_source, in_target = (
                count + sum(1 for _ in rest) + (text is not None)
                for text, rest in zip(pair, (sources, targets), strict=True)
            )
            raise T2TLiteError(
                "Line i of the target must translate line i of the source; "
                f"got {in_source} lines in {source_path} and {in_target} in "
                f"{target_path}."
            )
        yield pair


class LinePart(NamedTuple):
    """Some lines of a source file and of its target file."""

    source: str
    target: str
    source_start: int  # bytes before the first line
    target_start: int
    lines: int  # of each side


def cut_lines(
    source: str | os.PathLike, target: str | os.PathLike
) -> list[LinePart]:
    """The parts of two files of lines, in order; [] if they must stay whole.

    They must if one is packed, or if their numbers of lines differ, which
    `read_parallel` reports. Reads both files once, at the speed of the disk.
    """
    paths = os.fspath(source), os.fspath(target)
    if any(pathlib.Path(path).suffix in PACKED for path in paths):
        return []
    (source_starts, lines), (target_starts, others) = map(_line_starts, paths)
    if lines != others:
        return []
    return [
        LinePart(*paths, *starts, min(PART_LINES, lines - number * PART_LINES))
        for number, starts in enumerate(
            zip(source_starts, target_starts, strict=True)
        )
    ]


def read_part(
    part: LinePart, encoding: Encoding = CORPUS
) -> Iterator[tuple[str, str]]:
    """The pairs of a part of UTF-8 text, as `read_parallel` gives them."""
    starts = {part.source: part.source_start, part.target: part.target_start}

    def lines(path):
        return read_lines(path, starts[path], encoding, part.lines)

    return read_parallel(part.source, part.target, lines)


def _line_starts(path):
    """Where every PART_LINES-th line begins, in bytes; and how many lines."""
    import numpy as np

    starts, lines, position, last = [], 0, 0, b"\n"
    with open(path, "rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            # A line begins after a line end, and where the file begins.
            ends = np.flatnonzero(np.frombuffer(chunk, np.uint8) == _LINE_END)
            begins = ends[ends < len(chunk) - 1] + 1
            if last == b"\n":
                begins = np.append(0, begins)
            first = -lines % PART_LINES  # of these that begins a part
            starts += (begins[first::PART_LINES] + position).tolist()
            lines += len(begins)
            position += len(chunk)
            last = chunk[-1:]
    return starts, lines
