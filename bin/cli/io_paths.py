"""The input and output files of a command."""

import sys
from collections.abc import Iterable
from pathlib import Path

from t2t_lite import files
from t2t_lite.bin.cli import command
from t2t_lite.corpus.lines import STDIN, read_byte_lines, read_lines
from t2t_lite.decoding import resumable_output
from t2t_lite.errors import T2TLiteError, UsageError


def check_paths(source: str | None, target: str | None) -> None:
    """Check that the input exists and the output can be written."""
    if "" in (source, target):
        name = "decode_from_file" if source == "" else "decode_to_file"
        raise UsageError(f"--{name} must not be empty.")
    source = None if source == STDIN else source
    if source and not Path(source).exists():
        raise T2TLiteError(f"--decode_from_file: there is no file {source}.")
    if source and Path(source).is_dir():
        raise T2TLiteError(f"--decode_from_file: {source} is a folder.")
    if not target:
        return
    path = Path(target)
    if path.exists() and not path.is_file():
        raise UsageError(
            f"--decode_to_file must be a regular file; got {target}. Redirect "
            "stdout instead."
        )
    path = files.resolve_path(path)
    if not path.absolute().parent.is_dir():
        raise T2TLiteError(f"--decode_to_file: {path.parent} is not a folder.")
    for file in (path, *resumable_output.partial_paths(path)):
        if source and file.exists() and file.samefile(source):
            raise UsageError(
                f"--decode_from_file={source} is {file}, which "
                "--decode_to_file overwrites: choose another output file."
            )


def check_stdin(*paths: str | None) -> None:
    """Raise UsageError if several inputs are stdin."""
    if paths.count(STDIN) > 1:
        raise UsageError(
            "stdin (-) can be only one input: give a file for the others."
        )


def open_lines(path: str | None) -> Iterable[bytes]:
    """Open the lines of a file or of stdin, compressed or not, without BOM."""
    path = path or STDIN
    if path == STDIN and sys.stdin is not None and sys.stdin.isatty():
        command.note("Reading lines from the keyboard; Ctrl-D ends the input.")
    return read_byte_lines(path)


def read_aligned(path: str, count: int, other: str) -> list[str]:
    """Return the lines of a file; raise T2TLiteError if not `count` lines."""
    lines = list(read_lines(path))
    if len(lines) != count:
        raise T2TLiteError(
            f"{path} and {other} must have the same number of lines; {path} "
            f"has {len(lines)}, {other} has {count}."
        )
    return lines
