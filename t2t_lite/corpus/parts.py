"""Parts of two files of lines, so that several readers share a corpus.

Line i of one file translates line i of the other, wherever these begin; so a
part says where its first line is in either.
"""

import itertools
import os
import pathlib
from collections.abc import Iterator
from typing import NamedTuple

from t2t_lite.corpus.raw_files import PACKED, read_lines, read_parallel

PART_LINES = 250_000  # of each side
_CHUNK_BYTES = 1 << 20
_LINE_END = ord("\n")


class LinePart(NamedTuple):
    """Some lines of a source file and of its target file.

    Attributes:
      source, target: the files.
      source_start, target_start: bytes before the first line.
      lines: of each side.
    """

    source: str
    target: str
    source_start: int
    target_start: int
    lines: int


def cut_lines(
    source: str | os.PathLike, target: str | os.PathLike
) -> list[LinePart]:
    """The parts of two files of lines, in order; none if they have to be whole.

    That is: if one is packed, or if their numbers of lines differ, which
    `read_parallel` reports. Goes over both files once, at the speed of a disk.
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


def read_part(part: LinePart) -> Iterator[tuple[str, str]]:
    """The pairs of a part.

    Raises:
      T2TLiteError: as of `read_parallel`.
    """
    starts = {
        part.source: part.source_start,
        part.target: part.target_start,
    }

    def lines(path):
        return itertools.islice(read_lines(path, starts[path]), part.lines)

    return read_parallel(part.source, part.target, lines)


def _line_starts(path):
    """Where every PART_LINES-th line begins, in bytes; and how many lines."""
    import numpy as np

    starts, lines, position, last = [], 0, 0, b"\n"
    with open(path, "rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            # A line begins behind a line end, and where the file begins.
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
