"""The lines of text files, as they are or packed."""

import bz2
import codecs
import contextlib
import gzip
import io
import itertools
import lzma
import os
import pathlib
import zlib
from collections.abc import Iterable, Iterator
from typing import Any, BinaryIO

from backports import zstd  # Python's own from 3.14 on

from t2t_lite.corpus.encoding import (
    JUDGED_LINES,
    LENIENT,
    UTF_8,
    BrokenLines,
    Encoding,
    lines_without_mark,
    without_mark,
)
from t2t_lite.errors import T2TLiteError, in_words

_OPENERS: dict[str, Any] = {
    ".gz": gzip.open,
    ".bz2": bz2.open,
    ".xz": lzma.open,
    ".zst": zstd.open,
}
_BATCH_BYTES = 1 << 16
PACKED = tuple(_OPENERS)  # what a file may be packed with, by its ending


def read_lines(
    path: str | os.PathLike,
    start: int = 0,
    encoding: Encoding = LENIENT,
    most: int | None = None,
) -> Iterator[str]:
    """The lines of a text file, packed or not, without their ends.

    U+2028, U+0085, a form feed or a lone carriage return end no line, see
    `read_byte_lines`. A byte order mark is passed over. Bytes that are not
    text become U+FFFD here, as they enter, by the rule of
    `text.encoder.clean_utf8`.

    Args:
      path: of the file.
      start: bytes to pass over, up to where a line begins; only in UTF-8.
      encoding: what is expected of the file.
      most: lines to read; None means all.

    Raises:
      T2TLiteError: the file is missing, unreadable or damaged, in another
        encoding by its mark, or has more broken lines than may be.
    """
    broken = BrokenLines(path, encoding, start)
    if encoding.name == UTF_8:
        return _read_utf_8(path, start, broken, most)
    return _read_encoded(path, encoding.name, broken, most)


def _read_utf_8(path, start, broken, most):
    """As `read_lines`; many lines at a time, for speed."""
    with open_packed(path) as file:
        if start:
            file.seek(start)
        while lines := file.readlines(_BATCH_BYTES):
            if not (start or broken.lines):
                lines[0] = without_mark(lines[0], str(path))
            if most is not None:
                lines = lines[: most - broken.lines]
            if not lines:
                break
            try:
                texts = [
                    line.removesuffix(b"\n").removesuffix(b"\r").decode()
                    for line in lines
                ]
                is_clean = b"\0" not in b"".join(lines)
            except UnicodeDecodeError:
                texts = [
                    line.removesuffix(b"\n")
                    .removesuffix(b"\r")
                    .decode(errors="replace")
                    for line in lines
                ]
                is_clean = False
            if is_clean:
                broken.lines += len(lines)
            else:
                broken.look_at(lines)
            yield from texts
    broken.judge()


def _read_encoded(path, name, broken, most):
    """As `read_lines`, of a file in another encoding."""
    with open_packed(path) as file:
        lines = io.TextIOWrapper(file, name, errors="replace", newline="\n")
        try:
            for line in itertools.islice(lines, most):
                if not broken.lines:
                    line = line.removeprefix("\ufeff")
                    if line[:3].encode(name, "ignore") == codecs.BOM_UTF8:
                        raise T2TLiteError(
                            f"{path} is UTF-8, as its byte order mark says; "
                            f"got --encoding={name}. All files must be in one "
                            "encoding: convert some, or leave it out."
                        )
                broken.look_at([line])
                yield line.removesuffix("\n").removesuffix("\r")
        except UnicodeError as error:  # such as UTF-16 without its mark
            raise T2TLiteError(
                f"{path} is not {name.upper()} text: {error}. Name its "
                "encoding with --encoding."
            ) from error
    broken.judge()


def read_byte_lines(path: str | os.PathLike) -> Iterator[bytes]:
    r"""As `read_lines`, in bytes; a line ends with `\n` or `\r\n`."""
    with open_packed(path) as file:
        for line in lines_without_mark(file, str(path)):
            yield line.removesuffix(b"\n").removesuffix(b"\r")


def require_text(
    paths: Iterable[str | os.PathLike], encoding: Encoding
) -> None:
    """Looks at the beginnings of files, before hours go by without a look.

    Raises:
      T2TLiteError: as `read_lines`, of their first JUDGED_LINES lines.
    """
    for path in paths:
        for _ in read_lines(path, encoding=encoding, most=JUDGED_LINES):
            pass


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
                f"Cannot read {path}: {in_words(error, place=False)}."
            ) from error
        raise damaged(path, error) from error
    except (EOFError, zlib.error, lzma.LZMAError, zstd.ZstdError) as error:
        raise damaged(path, error) from error


def damaged(path: str | os.PathLike, reason: object) -> T2TLiteError:
    """The error that a file cannot be read to its end."""
    return T2TLiteError(f"{path} is damaged: {reason}. Get the file again.")
