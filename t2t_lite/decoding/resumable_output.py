"""Resumable output: the same command resumes a partial file.

`FILE.partial` holds the lines so far, `FILE.partial.json` their options.
"""

import contextlib
import fcntl
import json
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from t2t_lite import files
from t2t_lite.errors import T2TLiteError, UsageError


def partial_paths(path: Path) -> tuple[Path, Path]:
    """Return the paths of the partial file and of its options file."""
    partial = path.with_name(f"{path.name}.partial")
    return partial, path.with_name(f"{path.name}.partial.json")


@contextlib.contextmanager
def open_resumable(
    path: Path,
    options: Mapping[str, Any] | None,
    overwrite: bool = False,
    note: Callable[[str], None] = lambda text: None,
) -> Iterator[tuple[Callable[[str], None], int]]:
    """Open `FILE.partial`, which replaces `path` if the block succeeds.

    Args:
      path: the complete file.
      options: everything that the lines depend on; a later call with equal
        options appends. None: the file always starts empty, as with overwrite.
      overwrite: start with an empty file.
      note: called with a message about the lines kept after an exception.

    Yields:
      A function that writes a line, and the number of lines already written.

    Raises:
      UsageError: the partial file was written with different options.
      T2TLiteError: another process is writing the file.
    """
    path = files.resolve_path(path)
    partial, record = partial_paths(path)
    # Unbuffered, so that a full disk raises an error at the failing line.
    with open(partial, "ab", buffering=0) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # The last owner may have renamed the file in the meantime.
            if not os.path.samestat(os.fstat(file.fileno()), partial.stat()):
                raise BlockingIOError
        except (BlockingIOError, FileNotFoundError) as error:
            raise T2TLiteError(
                f"Another process is writing {partial}."
            ) from error
        files.remove_unfinished(path.parent, path.name)
        values = {name: str(value) for name, value in (options or {}).items()}
        current = json.dumps(values, indent=0, sort_keys=True)
        num_kept = 0 if overwrite else _truncate_to_lines(file)
        if num_kept and record.exists():
            previous = record.read_text("utf-8", "replace")
            if changes := {*previous.splitlines()} ^ {*current.splitlines()}:
                raise UsageError(
                    f"{partial} was written with different options, "
                    f"{' '.join(sorted(changes))}: start with `overwrite`."
                )
        else:
            num_kept = file.truncate(0)  # returns the new size, 0
            record.unlink(missing_ok=True)
            if options is not None:
                files.write_text(record, current)

        def write(line: str) -> None:
            content = f"{line}\n".encode()
            while content:
                content = content[file.write(content) :]

        try:
            yield write, num_kept
            files.atomic_replace(partial, path)
        except BaseException:  # keep the complete lines so far
            if count := _truncate_to_lines(file):
                note(f"{partial} contains the first {count:,} lines.")
            else:
                partial.unlink()
                record.unlink(missing_ok=True)
            raise
        record.unlink(missing_ok=True)


def _truncate_to_lines(file):
    """Truncate the file after its last line end; return its line count."""
    with open(file.name, "rb") as lines:
        lengths = [len(line) for line in lines if line.endswith(b"\n")]
    file.truncate(sum(lengths))
    return len(lengths)
