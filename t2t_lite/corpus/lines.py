"""Read the lines of text files, compressed or not; reject invalid text.

U+FFFD replaces invalid bytes and control characters. A file with many invalid
lines probably has another encoding. U+FFFD in valid UTF-8 is valid text.
"""

import bz2
import codecs
import contextlib
import functools
import gzip
import io
import lzma
import os
import re
import sys
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from t2t_lite.errors import T2TLiteError, format_error, requires_extra
from t2t_lite.files import PathLike
from t2t_lite.progress import log


def _open_zstd(file: BinaryIO) -> Any:
    with requires_extra("zstd", file.name):
        from backports import zstd  # part of Python from 3.14 on
    return zstd.open(file)


# The first bytes of compressed data, and the function that opens it.
_OPENERS: dict[str, tuple[bytes, Any]] = {
    ".gz": (rb"\x1f\x8b", gzip.open),
    ".bz2": (rb"BZh[1-9](1AY&SY|\x17rE8P\x90)", bz2.open),
    ".xz": (rb"\xfd7zXZ\0", lzma.open),
    ".zst": (rb"\x28\xb5\x2f\xfd|[\x50-\x5f]\x2a\x4d\x18", _open_zstd),
}
COMPRESSED_SUFFIXES = tuple(_OPENERS)
Readable = PathLike | zipfile.Path
STDIN = "-"  # instead of a path
UTF_8 = "utf-8"
ENCODING = "an encoding of text, such as windows-1252 or utf-16"  # the rule
# NUL, and surrogate escapes, which distinguish invalid UTF-8 from a U+FFFD in
# the file.
_BROKEN = "\0\ud800-\udfff"
# With these, the characters that XML forbids.
CONTROL = "\1-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff"
_INVALID = re.compile(f"[{_BROKEN}{CONTROL}]")
_REFERENCE = re.compile("&#(?:x([0-9a-f]+)|([0-9]+));?", re.IGNORECASE)
_CHECK_AFTER_LINES = 10_000  # shorter files are checked only at their end
_FEW_LINES = 10  # with control characters: no error, even in a short file
_PIECE = 1 << 16  # characters of a line of markup
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


def read_lines(path: Readable, encoding: Encoding = LENIENT) -> Iterator[str]:
    r"""Yield the lines of a text file, or of STDIN, without their line ends.

    Only `\n` and `\r\n` end a line; U+2028, U+0085 or a single carriage return
    are part of the line. A BOM is skipped. U+FFFD replaces invalid bytes and
    control characters; the number of their lines is logged.

    Raises:
      T2TLiteError: the file is missing or damaged, has too many invalid lines,
        or has lines that end with `\r` only.
    """
    for line in _decode(path, encoding, "\n"):
        yield line.removesuffix("\n").removesuffix("\r")


def read_markup(path: PathLike, encoding: Encoding = CORPUS) -> Iterator[str]:
    """Yield the text of an SGML or XML file in pieces, with any line ends.

    In addition to `read_lines`, U+FFFD replaces references to invalid
    characters, such as `&#11;`.
    """
    return _decode(path, encoding, None)


def replace_invalid(text: str) -> str:
    """Replace control characters by U+FFFD, as in `read_lines`."""
    return text if text.isprintable() else _INVALID.sub("\ufffd", text)


def _decode(path, encoding, newline):
    """Yield lines, or pieces of markup if `newline` is None."""
    is_utf_8 = encoding.name == UTF_8
    errors = "surrogateescape" if is_utf_8 else "replace"
    broken = re.compile(f"[{_BROKEN}]" if is_utf_8 else f"[{_BROKEN}\ufffd]")
    count = num_broken = num_control = first = 0

    def check(min_count: int) -> None:
        limit = encoding.max_invalid_ratio * max(count, min_count)
        few = _FEW_LINES if limit else 0
        if num_broken > limit or num_control > max(limit, few):
            raise T2TLiteError(
                f"{_name(path)} must be {encoding.name.upper()} text; "
                f"{_summary(num_broken + num_control, count, first)}. Convert "
                "the file, or give its `encoding` (`problem=text` only), such "
                "as windows-1252 or utf-16. `max_invalid_ratio=1` disables "
                "this check."
            )

    with open_compressed(path) as file:
        text = io.TextIOWrapper(file, encoding.name, errors, newline)
        try:
            for count, line in enumerate(text if newline else _pieces(text), 1):
                if count == 1:
                    _check_start(line.encode(UTF_8, "surrogateescape"), path)
                # `isprintable` is cheaper and sufficient for most lines.
                is_plain = line.rstrip("\r\n").isprintable()
                is_suspect = not (is_utf_8 and is_plain)
                is_broken = is_suspect and bool(broken.search(line))
                if is_broken or (is_suspect and _INVALID.search(line)):
                    num_broken += is_broken
                    num_control += not is_broken
                    first = first or count
                    check(_CHECK_AFTER_LINES)
                    if is_utf_8:
                        content = line.encode(UTF_8, "surrogateescape")
                        line = content.decode(UTF_8, "replace")
                    line = _INVALID.sub("\ufffd", line)
                yield line.removeprefix("\ufeff") if count == 1 else line
        except UnicodeError as error:  # such as UTF-16 without a BOM
            raise T2TLiteError(
                f"{_name(path)} is not {encoding.name.upper()} text: {error}. "
                "Give the correct `encoding`."
            ) from error
    check(0)
    _log_invalid(path, num_broken + num_control, count, first)


def _pieces(text):
    """Yield text in pieces that contain references to valid characters only."""
    rest = ""
    while piece := text.readline(_PIECE):
        piece, rest = rest + piece, ""
        if not piece.endswith("\n") and (start := piece.rfind("&", -20)) >= 0:
            piece, rest = piece[:start], piece[start:]  # may be incomplete
        yield _REFERENCE.sub(_check_reference, piece)
    yield _REFERENCE.sub(_check_reference, rest)


def _check_reference(match):
    """Return a valid reference, or a control character for an invalid one."""
    digits = (match[1] or match[2]).lstrip("0")[:8]  # enough for any character
    code = int(digits or "0", 16 if match[1] else 10)
    is_valid = code <= sys.maxunicode and not _INVALID.match(chr(code))
    return match[0] if is_valid else "\1"


def read_byte_lines(path: PathLike) -> Iterator[bytes]:
    """Yield the lines of a UTF-8 file or STDIN; see `check_byte_lines`."""
    with open_compressed(path) as file:
        yield from check_byte_lines(file, path)


def check_byte_lines(lines: Iterable[bytes], path: PathLike) -> Iterator[bytes]:
    r"""Yield lines without a BOM and without `\n` or `\r\n`.

    The number of lines with invalid bytes or NUL is logged.

    Raises:
      T2TLiteError: a BOM of another encoding, or lines that end with `\r` only.
    """
    count = num_invalid = first = 0
    for count, line in enumerate(lines, 1):
        if count == 1:
            _check_start(line, path)
            line = line.removeprefix(codecs.BOM_UTF8)
        try:
            is_valid = "\0" not in line.decode()
        except UnicodeDecodeError:
            is_valid = False
        if not is_valid:
            num_invalid, first = num_invalid + 1, first or count
        yield line.removesuffix(b"\n").removesuffix(b"\r")
    _log_invalid(path, num_invalid, count, first)


def _name(path):
    return "stdin" if path == STDIN else path


def _check_start(line, path):
    """Raise T2TLiteError for the first line of another type of file."""
    if line.startswith(_OTHER_BOMS):
        raise T2TLiteError(
            f"{_name(path)} must be UTF-8 text; it has the byte order mark of "
            "UTF-16 or UTF-32. Convert it, for example with iconv, or give its "
            "`encoding` (`problem=text` only)."
        )
    if b"\r" in line[:-1] and b"\n" not in line:
        raise T2TLiteError(
            f"{_name(path)} must end its lines with LF or CR LF; it has CR "
            "only. Convert it, for example with tr '\\r' '\\n'."
        )


def _summary(number, count, first):
    return (
        f"{number:,} of {count:,} lines have invalid bytes or control "
        f"characters, first line {first:,}"
    )


def _log_invalid(path, number, count, first):
    if number:
        summary = _summary(number, count, first)
        _log_once(f"{_name(path)}: {summary}. U+FFFD replaces them.")


_log_once = functools.lru_cache(log)  # a corpus is read several times


@contextlib.contextmanager
def open_compressed(path: Readable) -> Iterator[BinaryIO]:
    """Open a file, or STDIN, for reading; decompress compressed data.

    Raises:
      T2TLiteError: the file is missing, unreadable or damaged, also if this
        occurs while it is read.
    """
    try:
        with contextlib.ExitStack() as stack:
            file: Any
            if path == STDIN:
                if sys.stdin is None:
                    raise T2TLiteError("stdin is closed: give an input file.")
                # Not closed, because closing waits for a thread that reads it.
                file = open(sys.stdin.fileno(), "rb", closefd=False)  # noqa: SIM115
            elif isinstance(path, zipfile.Path):
                file = stack.enter_context(path.open("rb"))
            else:
                file = stack.enter_context(open(path, "rb"))
            start = file.peek(10)
            for magic, opener in _OPENERS.values():
                if re.match(magic, start):
                    file = opener(file)
                    break
            else:
                suffix = Path(str(path)).suffix.lower()
                if start and suffix in _OPENERS:
                    raise damaged_error(path, "it is not compressed data")
            yield file
    except OSError as error:
        if error.errno:
            raise T2TLiteError(
                f"Cannot read {path}: {format_error(error, place=False)}."
            ) from error
        raise damaged_error(path, error) from error
    except (EOFError, zlib.error, lzma.LZMAError, zipfile.BadZipFile) as error:
        raise damaged_error(path, error) from error
    except Exception as error:
        # The class cannot be imported if backports.zstd is not installed.
        if type(error).__name__ == "ZstdError":
            raise damaged_error(path, error) from error
        raise


def require_files(paths: Iterable[str]) -> None:
    """Raise T2TLiteError if a path is missing, a pipe or another non-file."""
    missing = [path for path in paths if not os.path.isfile(path)]
    for path in missing:
        refuse_pipe(path)
    if missing:
        raise T2TLiteError(f"Missing or not a file: {', '.join(missing)}.")


def refuse_pipe(path: PathLike) -> None:
    """Raise T2TLiteError for a pipe or STDIN, which is readable only once."""
    is_stdin = os.path.basename(path) == STDIN
    if is_stdin or Path(path).is_fifo():
        raise T2TLiteError(
            f"{STDIN if is_stdin else path} is a pipe, but a corpus is read "
            "several times: write the data to a file, compressed or not, and "
            "give its name."
        )


def damaged_error(path: Readable, reason: object) -> T2TLiteError:
    """Return the error for a damaged file."""
    name = _name(path)
    return T2TLiteError(f"{name} is damaged: {reason}. Get the file again.")
