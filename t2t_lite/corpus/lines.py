"""Read the lines of text files, compressed or not; reject broken text.

A line is broken if it has invalid bytes or NUL. A file with many broken lines
is most likely in another encoding. A U+FFFD in valid UTF-8 is text.
"""

import bz2
import codecs
import contextlib
import gzip
import io
import lzma
import os
import pathlib
import re
import zlib
from collections.abc import Iterable, Iterator
from typing import Any, BinaryIO, Literal, NamedTuple

from t2t_lite.errors import T2TLiteError, format_error


def _open_zstd(path: str | os.PathLike, mode: Literal["rb"]) -> Any:
    try:
        from backports import zstd  # Python's own from 3.14 on
    except ImportError as error:
        raise T2TLiteError(
            f"{path} requires backports.zstd: pip install 't2t-lite[zstd]'."
        ) from error
    return zstd.open(path, mode)


_OPENERS: dict[str, Any] = {
    ".gz": gzip.open,
    ".bz2": bz2.open,
    ".xz": lzma.open,
    ".zst": _open_zstd,
}
COMPRESSED_SUFFIXES = tuple(_OPENERS)  # name endings of compressed files
UTF_8 = "utf-8"
ENCODING = "an encoding of text, such as windows-1252 or utf-16"  # the rule
# Escapes tell invalid bytes of UTF-8 from a U+FFFD that the file contains.
_ESCAPED, _REPLACED = re.compile("[\udc80-\udcff]"), re.compile("\ufffd")
_CHECKED_LINES = 10_000  # a file with too many broken ones ends there
# UTF-32's mark for little-endian text begins with UTF-16's.
_OTHER_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE, codecs.BOM_UTF32_BE)


class Encoding(NamedTuple):
    """The encoding of a file, and how much of it may be broken.

    Attributes:
      name: Python's name of the encoding.
      max_invalid_ratio: the largest share of broken lines, 0-1.
    """

    name: str = UTF_8
    max_invalid_ratio: float = 1.0


LENIENT = Encoding()
CORPUS = Encoding(max_invalid_ratio=0.01)


def known_encoding(value: object) -> str:
    """Return Python's name of a text encoding: "UTF8" gives "utf-8".

    Raises:
      ValueError: the encoding is unknown; see `validators`.
    """
    name = str(value)
    try:
        "\n".encode(name)
        b"".decode(name)
    except (LookupError, ValueError) as error:
        raise ValueError(ENCODING) from error
    return codecs.lookup(name).name


def read_lines(
    path: str | os.PathLike, encoding: Encoding = LENIENT
) -> Iterator[str]:
    r"""Yield the lines of a text file without their ends.

    Only `\n` and `\r\n` end a line; U+2028, U+0085, a form feed or a lone
    carriage return belong to it. A byte order mark is skipped. Invalid bytes
    become U+FFFD.

    Raises:
      T2TLiteError: the file is missing, unreadable or damaged, or has too many
        broken lines, at its end or, if it is long, as soon as that is known.
    """
    errors, invalid = "replace", _REPLACED
    if encoding.name == UTF_8:
        errors, invalid = "surrogateescape", _ESCAPED
    count = broken = first = 0

    def check(least: int) -> None:
        if broken > encoding.max_invalid_ratio * max(count, least):
            raise T2TLiteError(
                f"{path} must be {encoding.name.upper()} text; {broken:,} of "
                f"{count:,} lines have invalid bytes or NUL, first line "
                f"{first:,}. Convert it, for example with iconv, or for your "
                "own text give its `encoding`, such as windows-1252 or utf-16. "
                "`max_invalid_ratio=1` accepts it."
            )

    with open_compressed(path) as file:
        text = io.TextIOWrapper(
            file, encoding.name, errors=errors, newline="\n"
        )
        try:
            for count, line in enumerate(text, 1):
                if "\0" in line or (
                    not line.isascii() and invalid.search(line)
                ):
                    broken, first = broken + 1, first or count
                    check(_CHECKED_LINES)
                    content = line.encode(UTF_8, "surrogateescape")
                    line = content.decode(UTF_8, "replace")
                if count == 1:
                    line = line.removeprefix("\ufeff")
                yield line.removesuffix("\n").removesuffix("\r")
        except UnicodeError as error:  # such as UTF-16 without a mark
            raise T2TLiteError(
                f"{path} is not {encoding.name.upper()} text: {error}. Give "
                "the encoding of the file with `encoding`."
            ) from error
    check(0)


def read_byte_lines(path: str | os.PathLike) -> Iterator[bytes]:
    r"""Yield the lines of a UTF-8 file as bytes, without `\n` or `\r\n`."""
    with open_compressed(path) as file:
        for line in lines_without_mark(file, str(path)):
            yield line.removesuffix(b"\n").removesuffix(b"\r")


def lines_without_mark(lines: Iterable[bytes], name: str) -> Iterator[bytes]:
    """Yield lines of UTF-8 text without a byte order mark.

    Raises:
      T2TLiteError: the text `name` has the mark of another encoding.
    """
    lines = iter(lines)
    for first in lines:
        if first.startswith(_OTHER_MARKS):
            raise T2TLiteError(
                f"{name} must be UTF-8 text; it has the byte order mark of "
                "UTF-16 or UTF-32. Convert it, for example with iconv."
            )
        yield first.removeprefix(codecs.BOM_UTF8)
        yield from lines


@contextlib.contextmanager
def open_compressed(path: str | os.PathLike) -> Iterator[BinaryIO]:
    """Open a file for reading; COMPRESSED_SUFFIXES of its name decompress it.

    Raises:
      T2TLiteError: the file is missing, unreadable or damaged; also if that
        shows while it is read.
    """
    try:
        opener = _OPENERS.get(pathlib.Path(path).suffix, open)
        with opener(path, "rb") as file:
            yield file
    except OSError as error:
        if error.errno:
            raise T2TLiteError(
                f"Cannot read {path}: {format_error(error, place=False)}."
            ) from error
        raise damaged(path, error) from error
    except (EOFError, zlib.error, lzma.LZMAError) as error:
        raise damaged(path, error) from error
    except Exception as error:
        if type(error).__name__ == "ZstdError":  # its module may be missing
            raise damaged(path, error) from error
        raise


def damaged(path: str | os.PathLike, reason: object) -> T2TLiteError:
    """Return the error for a file that cannot be read to its end."""
    return T2TLiteError(f"{path} is damaged: {reason}. Get the file again.")
