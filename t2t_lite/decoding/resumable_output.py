"""A file of lines that survives a kill, and that the same command completes.

```
FILE.partial       the lines so far
FILE.partial.json  the options that produce them
FILE               the complete file; then the others are gone
```
"""

import contextlib
import fcntl
import io
import json
import os
import pathlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from t2t_lite import files
from t2t_lite.errors import T2TLiteError, UsageError


def partial_paths(path: pathlib.Path) -> tuple[pathlib.Path, pathlib.Path]:
    """Return the paths of the partial file and of its options."""
    path = path.resolve() if path.is_symlink() else path
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

    An exception in the block leaves the whole lines so far, if there are any.

    Args:
      path: the complete file.
      options: all that the lines depend on, fit for JSON; a later call with
        equal options appends. None: the file always starts from nothing.
      overwrite: start from nothing in any case.
      note: called with the number of lines left after an exception.

    Yields:
      A function that appends a line, which a kill cannot lose, and the number
      of lines that an earlier process with the same options left.

    Raises:
      UsageError: the partial file has other options.
      T2TLiteError: another process writes the file.
      OSError: the file cannot be written.
    """
    path = files.place_of(path)
    partial, record = partial_paths(path)
    # Unbuffered: a buffer would hold back what a full disk refused.
    with open(partial, "ab", buffering=0) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # The last owner may have just renamed the file.
            if not os.path.samestat(os.fstat(file.fileno()), partial.stat()):
                raise BlockingIOError
        except (BlockingIOError, FileNotFoundError) as error:
            raise T2TLiteError(
                f"Another process is writing {partial}: wait for it, or choose "
                "another file."
            ) from error
        files.remove_unfinished(path.parent, path.name)
        kept = 0 if overwrite else _truncate_to_lines(file)
        if kept and record.exists():
            _require_same(partial, record, options)
        else:
            kept = 0
            file.truncate(0)  # first: lines never have other options
            record.unlink(missing_ok=True)
            if options is not None:
                files.write_json(record, options)

        def write(line: str) -> None:
            content = f"{line}\n".encode()
            while content:
                content = content[file.write(content) :]

        try:
            yield write, kept
            files.put_in_place(partial, path)
            record.unlink(missing_ok=True)
        except BaseException:
            if count := _truncate_to_lines(file):
                note(f"{partial} has the first {count:,} lines.")
            else:
                partial.unlink()
                record.unlink(missing_ok=True)
            raise


def _truncate_to_lines(file: io.FileIO) -> int:
    """Truncate after the last line end; return the number of lines."""
    with open(file.name, "rb") as lines:
        lengths = [len(line) for line in lines if line.endswith(b"\n")]
    file.truncate(sum(lengths))
    return len(lengths)


def _require_same(
    partial: pathlib.Path,
    record: pathlib.Path,
    options: Mapping[str, Any] | None,
) -> None:
    """Raise UsageError if the partial file has other options."""
    try:
        there = dict(json.loads(record.read_bytes()))
    except (ValueError, TypeError):
        there = {}
    # A round trip, because JSON has no tuples.
    here = json.loads(json.dumps(options)) or {}
    changes = [
        f"{name} was {there.get(name)} and is {here.get(name)}"
        for name in sorted(there.keys() | here.keys())
        if there.get(name) != here.get(name)
    ]
    if changes:
        raise UsageError(
            f"{partial} has lines of other options: {', '.join(changes[:3])}. "
            "Use the same options, or start again with --overwrite."
        )
