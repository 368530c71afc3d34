"""The lines of text files, as they are or packed."""

import bz2
import contextlib
import gzip
import lzma
import os
import pathlib
import zlib
from collections.abc import Iterator
from typing import Any, BinaryIO

from backports import zstd  # Python's own from 3.14 on

from t2t_lite.errors import T2TLiteError

_OPENERS: dict[str, Any] = {
    ".gz": gzip.open,
    ".bz2": bz2.open,
    ".xz": lzma.open,
    ".zst": zstd.open,
}
PACKED = tuple(_OPENERS)  # what a file may be packed with, by its ending


def read_lines(path: str | os.PathLike, start: int = 0) -> Iterator[str]:
    """The lines of a text file, packed or not, without their ends.

    U+2028, U+0085, a form feed or a lone carriage return end no line, see
    `read_byte_lines`. Bytes that are not UTF-8 become U+FFFD here, as they
    enter, by the rule of `text.encoder.clean_utf8`. `start` bytes, up to where
    a line begins, are passed over.

    Raises:
      T2TLiteError: the file is missing, unreadable or damaged.
    """
    for line in read_byte_lines(path, start):
        yield line.decode("utf-8", errors="replace")


def read_byte_lines(path: str | os.PathLike, start: int = 0) -> Iterator[bytes]:
    r"""As `read_lines`, in bytes; a line ends with `\n` or `\r\n`."""
    with open_packed(path) as file:
        file.seek(start)
        for line in file:
            yield line.removesuffix(b"\n").removesuffix(b"\r")


@contextlib.contextmanager
def open_packed(path: str | os.PathLike) -> Iterator[BinaryIO]:
    """A file open for reading, unpacked if its name ends as one of PACKED.

    Raises:
      T2TLiteError: the file is missing, unreadable or damaged; also when that
        comes up while it is read.
    """
    try:
        opener = _OPENERS.get(pathlib.Path(path).suffix, open)
        with opener(path, "rb") as file:
            yield file
    except OSError as error:
        if error.errno:
            raise T2TLiteError(
                f"Cannot read {path}: {error.strerror}."
            ) from error
        raise damaged(path, error) from error
    except (EOFError, zlib.error, lzma.LZMAError, zstd.ZstdError) as error:
        raise damaged(path, error) from error


def damaged(path: str | os.PathLike, reason: object) -> T2TLiteError:
    """The error that a file cannot be read to its end."""
    return T2TLiteError(f"{path} is damaged: {reason}. Get the file again.")
