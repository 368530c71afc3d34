"""Open the input and output of a command: files, or stdin and stdout."""

import contextlib
import pathlib
import sys
from collections.abc import Iterable, Iterator

from t2t_lite import files
from t2t_lite.bin.cli import command
from t2t_lite.corpus.lines import read_byte_lines, strip_bom
from t2t_lite.decoding import resumable_output
from t2t_lite.errors import T2TLiteError, UsageError


def check(source: str | None, target: str | None) -> None:
    """Refuse files that cannot be read or written, before any work."""
    if source and not pathlib.Path(source).exists():
        raise T2TLiteError(f"--decode_from_file: there is no file {source}.")
    if source and pathlib.Path(source).is_dir():
        raise T2TLiteError(f"--decode_from_file: {source} is a folder.")
    if not target:
        return
    path = pathlib.Path(target)
    if path.exists() and not path.is_file():
        raise UsageError(
            f"--decode_to_file must be a regular file; got {target}. For "
            "another one leave it out, and redirect stdout."
        )
    path = files.resolve_path(path)
    if not path.absolute().parent.is_dir():
        raise T2TLiteError(f"--decode_to_file: no folder of {target}.")
    for file in (path, *resumable_output.partial_paths(path)):
        if source and file.exists() and file.samefile(source):
            raise UsageError(
                f"--decode_from_file={source} is {file}, which "
                "--decode_to_file writes: choose another file."
            )


@contextlib.contextmanager
def lines_in(path: str | None) -> Iterator[Iterable[bytes]]:
    """Open the lines of a file, packed or not, or of stdin, without a mark."""
    if path:
        yield read_byte_lines(path)
        return
    if sys.stdin is None:
        raise T2TLiteError("stdin is closed, but lines are read from it.")
    if sys.stdin.isatty():
        command.note("Reading lines from the keyboard; Ctrl-D ends them.")
    # A file object of its own that is never closed: closing waits for the
    # thread that reads ahead, as Python would at exit for `sys.stdin`.
    file = open(sys.stdin.fileno(), "rb", closefd=False)  # noqa: SIM115
    yield strip_bom(file, "stdin")
