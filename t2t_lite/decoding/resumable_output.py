"""A file of lines that survives a kill, and that the same command completes.

`FILE.partial` has the lines so far, `FILE.partial.json` the options that
produce them. Both are gone when FILE is complete.
"""

import contextlib
import fcntl
import json
import os
import pathlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from t2t_lite import files
from t2t_lite.errors import T2TLiteError, UsageError


def partial_paths(path: pathlib.Path) -> tuple[pathlib.Path, pathlib.Path]:
    """Return the paths of the partial file and of its options."""
    partial = path.with_name(f"{path.name}.partial")
    return partial, path.with_name(f"{path.name}.partial.json")


@contextlib.contextmanager
def open_resumable(
    path: pathlib.Path,
    options: Mapping[str, Any] | None,
    overwrite: bool = False,
    note: Callable[[str], None] = lambda text: None,
) -> Iterator[tuple[Callable[[str], None], int]]:
    """Open `FILE.partial`, which replaces `path` if the block succeeds.

    Args:
      path: the complete file.
      options: all that the lines depend on; a later call with equal options
        appends. None: the file always starts from nothing.
      overwrite: start from nothing in any case.
      note: told the number of lines that an exception leaves.

    Yields:
      A function that appends a line, which a kill cannot lose, and the number
      of lines that an earlier process left.

    Raises:
      UsageError: the partial file has other options.
      T2TLiteError: another process writes the file.
    """
    path = files.resolve_path(path)
    partial, record = partial_paths(path)
    # Unbuffered: a buffer would hold back what a full disk refused.
    with open(partial, "ab", buffering=0) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # The last owner may have just renamed the file.
            if not os.path.samestat(os.fstat(file.fileno()), partial.stat()):
                raise BlockingIOError
        except (BlockingIOError, FileNotFoundError) as error:
            raise T2TLiteError(f"Another process writes {partial}.") from error
        files.remove_unfinished(path.parent, path.name)
        given = {name: str(value) for name, value in (options or {}).items()}
        here = json.dumps(given, indent=0, sort_keys=True)
        kept = 0 if overwrite else _truncate_to_lines(file)
        if kept and record.exists():
            there = record.read_text("utf-8", "replace")
            if changes := {*there.splitlines()} ^ {*here.splitlines()}:
                raise UsageError(
                    f"{partial} has lines of other options, "
                    f"{' '.join(sorted(changes))}: start with `overwrite`."
                )
        else:
            kept = file.truncate(0)  # first: lines never have other options
            record.unlink(missing_ok=True)
            if options is not None:
                files.write_text(record, here)

        def write(line: str) -> None:
            content = f"{line}\n".encode()
            while content:
                content = content[file.write(content) :]

        try:
            yield write, kept
            files.atomic_replace(partial, path)
        except BaseException:  # keep the whole lines so far
            if count := _truncate_to_lines(file):
                note(f"{partial} has the first {count:,} lines.")
            else:
                partial.unlink()
                record.unlink(missing_ok=True)
            raise
        record.unlink(missing_ok=True)


def _truncate_to_lines(file):
    """Truncate after the last line end; return the number of lines."""
    with open(file.name, "rb") as lines:
        lengths = [len(line) for line in lines if line.endswith(b"\n")]
    file.truncate(sum(lengths))
    return len(lengths)
