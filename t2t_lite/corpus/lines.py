"""Read the lines of text files, compressed or not; reject invalid text.

A line is invalid if it contains invalid bytes or NUL. A file with many invalid
lines probably has another encoding. U+FFFD in valid UTF-8 is valid text.
"""

import bz2
import codecs
import contextlib
import gzip
import io
import lzma
import pathlib
import re
import zlib
from collections.abc import Iterable, Iterator
from typing import Any, BinaryIO, Literal, NamedTuple

from t2t_lite.errors import T2TLiteError, format_error
from t2t_lite.files import PathLike


def _open_zstd(path: PathLike, mode: Literal["rb"]) -> Any:
    try:
        from backports import zstd  # part of Python from 3.14 on
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
COMPRESSED_SUFFIXES = tuple(_OPENERS)
UTF_8 = "utf-8"
ENCODING = "an encoding of text, such as windows-1252 or utf-16"  # the rule
# Surrogate escapes distinguish invalid UTF-8 from a U+FFFD in the file.
_ESCAPED, _REPLACED = re.compile("[\udc80-\udcff]"), re.compile("\ufffd")
_CHECK_AFTER_LINES = 10_000  # shorter files are checked only at their end
# The little-endian BOM of UTF-32 begins with the BOM of UTF-16.
_OTHER_BOMS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE, codecs.BOM_UTF32_BE)


class Encoding(NamedTuple):
    """The encoding of a file and the tolerance for invalid lines."""

    name: str = UTF_8  # Python's name
    max_invalid_ratio: float = 1.0  # largest fraction of invalid lines, 0-1


LENIENT = Encoding()
CORPUS = Encoding(max_invalid_ratio=0.01)


def normalize_encoding(value: object) -> str:
    """Return Python's name, "utf-8" for "UTF8"; raise ValueError if unknown."""
    name = str(value)
    try:
        "\n".encode(name)
        b"".decode(name)
    except (LookupError, ValueError) as error:
        raise ValueError(ENCODING) from error
    return codecs.lookup(name).name


def read_lines(path: PathLike, encoding: Encoding = LENIENT) -> Iterator[str]:
    r"""Yield the lines of a text file without their line ends.

    Only `\n` and `\r\n` end a line; U+2028, U+0085, a form feed or a single
    carriage return are part of the line. A BOM is skipped. Invalid bytes
    become U+FFFD.

    Raises:
      T2TLiteError: the file is missing, damaged or has too many invalid lines.
    """
    errors, invalid = "replace", _REPLACED
    if encoding.name == UTF_8:
        errors, invalid = "surrogateescape", _ESCAPED
    count = num_invalid = first = 0

    def check(min_count: int) -> None:
        if num_invalid > encoding.max_invalid_ratio * max(count, min_count):
            raise T2TLiteError(
                f"{path} must be {encoding.name.upper()} text; {num_invalid:,} "
                f"of {count:,} lines have invalid bytes or NUL, first line "
                f"{first:,}. Convert the file, or give its `encoding` "
                "(`problem=text` only), such as windows-1252 or utf-16. "
                "`max_invalid_ratio=1` disables this check."
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
                    num_invalid, first = num_invalid + 1, first or count
                    check(_CHECK_AFTER_LINES)
                    content = line.encode(UTF_8, "surrogateescape")
                    line = content.decode(UTF_8, "replace")
                if count == 1:
                    line = line.removeprefix("\ufeff")
                yield line.removesuffix("\n").removesuffix("\r")
        except UnicodeError as error:  # such as UTF-16 without a BOM
            raise T2TLiteError(
                f"{path} is not {encoding.name.upper()} text: {error}. Give "
                "the correct `encoding`."
            ) from error
    check(0)


def read_byte_lines(path: PathLike) -> Iterator[bytes]:
    r"""Yield the lines of a UTF-8 file as bytes without `\n` or `\r\n`."""
    with open_compressed(path) as file:
        for line in strip_bom(file, str(path)):
            yield line.removesuffix(b"\n").removesuffix(b"\r")


def strip_bom(lines: Iterable[bytes], name: str) -> Iterator[bytes]:
    """Yield lines without a BOM; raise T2TLiteError for the BOM of UTF-16."""
    lines = iter(lines)
    for first in lines:
        if first.startswith(_OTHER_BOMS):
            raise T2TLiteError(
                f"{name} must be UTF-8 text; it has the byte order mark of "
                "UTF-16 or UTF-32. Convert it, for example with iconv."
            )
        yield first.removeprefix(codecs.BOM_UTF8)
        yield from lines


@contextlib.contextmanager
def open_compressed(path: PathLike) -> Iterator[BinaryIO]:
    """Open a file for reading; decompress it if its suffix says so.

    Raises:
      T2TLiteError: the file is missing, unreadable or damaged, also if this
        occurs while it is read.
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
        # The class cannot be imported if backports.zstd is not installed.
        if type(error).__name__ == "ZstdError":
            raise damaged(path, error) from error
        raise


def damaged(path: PathLike, reason: object) -> T2TLiteError:
    """Return the error for a damaged file."""
    return T2TLiteError(f"{path} is damaged: {reason}. Get the file again.")
