"""How the text of a file is encoded, and how much of it may be broken.

A line is broken if some of its bytes are no text in the encoding of the file,
or if it has a NUL. A corpus with many such lines is most likely in another
encoding: it is refused, and the error says in which.
"""

import codecs
import os
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from t2t_lite.errors import T2TLiteError

UTF_8 = "utf-8"
# A file is first judged after so many lines, then with each broken line.
JUDGED_LINES = 10_000
# The longer ones first: UTF-32's begins with that of UTF-16.
_MARKS = {
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}


class Encoding(NamedTuple):
    """How a file is encoded, and how much of it may be broken.

    Attributes:
      name: as Python knows it.
      broken_share: the largest share of broken lines, 0-1.
    """

    name: str = UTF_8
    broken_share: float = 1.0


LENIENT = Encoding()
CORPUS = Encoding(broken_share=0.01)


def known_encoding(value: object) -> str:
    """Python's name of an encoding of text: "UTF8" is "utf-8".

    Raises:
      ValueError: there is none; the message is a rule, as in `values`.
    """
    name = str(value)
    try:
        "\n".encode(name)
        b"".decode(name)
    except (LookupError, ValueError) as error:
        rule = "an encoding of text, such as windows-1252 or utf-16"
        raise ValueError(rule) from error
    return codecs.lookup(name).name


def without_mark(first: bytes, name: str) -> bytes:
    """The first line of UTF-8 text without a byte order mark.

    Args:
      first: with which a file starts.
      name: of the file, for the error.

    Raises:
      T2TLiteError: it begins with the mark of another encoding.
    """
    for mark, encoding in _MARKS.items():
        if first.startswith(mark):
            raise T2TLiteError(
                f"{name} must be UTF-8 text; it is {encoding.upper()}, as its "
                f"byte order mark says. {_fix(encoding)}"
            )
    return first.removeprefix(codecs.BOM_UTF8)


def lines_without_mark(lines: Iterable[bytes], name: str) -> Iterator[bytes]:
    """All lines of UTF-8 text, the first one as `without_mark` gives it."""
    lines = iter(lines)
    for first in lines:
        yield without_mark(first, name)
        yield from lines


class BrokenLines:
    """Counts the broken lines of a file, and refuses a file with too many.

    Args:
      path: of the file.
      encoding: what is expected of it.
      start: the byte after which lines are counted.

    Attributes:
      lines: that were read; `look_at` counts those that it is given.
    """

    def __init__(
        self, path: str | os.PathLike, encoding: Encoding, start: int = 0
    ):
        self.lines = 0
        self._path = path
        self._encoding = encoding
        self._start = start
        self._count = 0
        self._first: tuple[int, str | bytes] = (0, b"")

    def look_at(self, lines: Sequence[str] | Sequence[bytes]) -> None:
        """Counts lines as read, and as broken if they are.

        Args:
          lines: bytes that should be UTF-8, or text in which U+FFFD stands
            for bytes that are none.

        Raises:
          T2TLiteError: too many are broken.
        """
        for line in lines:
            self.lines += 1
            if not _is_broken(line):
                continue
            self._count += 1
            if self._count == 1:
                self._first = self.lines, line
            if self.lines >= JUDGED_LINES:
                self.judge()

    def judge(self) -> None:
        """Raises T2TLiteError if too many of the lines so far are broken."""
        if self._count <= self._encoding.broken_share * self.lines or (
            self._start and self.lines < JUDGED_LINES  # of a large file
        ):
            return
        number, line = self._first
        after = f" after byte {self._start:,}" if self._start else ""
        what, likely = _diagnosis(line, self._encoding.name)
        fix = _fix(likely) if likely else "Get or make a clean copy of it."
        raise T2TLiteError(
            f"{self._path} must be {self._encoding.name.upper()} text; got "
            f"{what} in {self._count:,} of {self.lines:,} lines, first in line "
            f"{number:,}{after}. {fix} --broken_share=1 takes it as it is."
        )


def _is_broken(line):
    if isinstance(line, str):
        return "\ufffd" in line or "\0" in line
    return b"\0" in line or not _is_text(line, UTF_8)


def _diagnosis(line, name):
    """What is wrong with a broken line, and its likely encoding, if any."""
    if isinstance(line, str):  # in another encoding than UTF-8, or in SGML
        likely = "" if name == UTF_8 else UTF_8
        return f"NUL or bytes that are not {name.upper()}", likely
    nuls = line.count(b"\0")
    if nuls > len(line) / 4:
        likely = "utf-16-be" if line.startswith(b"\0") else "utf-16-le"
        return "NUL bytes, which look like UTF-16 without its mark,", likely
    if not _is_text(line, UTF_8):
        high = sum(byte > 127 for byte in line)
        if high <= len(line) / 3 and _is_text(line, "windows-1252"):
            return "what looks like Latin-1 or Windows-1252", "windows-1252"
        return "bytes that are not UTF-8", ""
    return "NUL bytes", ""


def _is_text(line, name):
    try:
        line.decode(name)
    except UnicodeDecodeError:
        return False
    return True


def _fix(encoding):
    return (
        "Convert it, for example with iconv; for your own text there is "
        f"--encoding={encoding}."
    )
