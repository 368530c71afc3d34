"""A file of lines that grows beside its place and outlives a kill.

```
FILE.partial       the lines so far
FILE.partial.json  what was asked for, so that the same can go on
FILE               when it is complete; then the others are gone
```
"""

import contextlib
import fcntl
import io
import itertools
import json
import os
import pathlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from t2t_lite import files
from t2t_lite.errors import T2TLiteError, UsageError

_SHOWN_CHANGES = 3


class GrowingFile:
    """An open `FILE.partial`, made by `grow`.

    Attributes:
      kept: lines that another process wrote, of the same.
    """

    def __init__(self, file: io.FileIO, kept: int):
        self._file = file
        self.kept = kept

    def write(self, line: str) -> None:
        """Adds a line, or several; a killed process cannot lose it."""
        content = f"{line}\n".encode()
        while content:
            content = content[self._file.write(content) :]

    def kept_lines(self) -> Iterator[bytes]:
        """The lines that were there."""
        with open(self._file.name, "rb") as file:
            yield from itertools.islice(file, self.kept)


def beside(path: pathlib.Path) -> tuple[pathlib.Path, pathlib.Path]:
    """What is beside a file while it grows: the lines, and their record."""
    partial = path.with_name(f"{path.name}.partial")
    return partial, path.with_name(f"{path.name}.partial.json")


@contextlib.contextmanager
def grow(
    path: pathlib.Path,
    asked: Mapping[str, Any] | None,
    overwrite: bool = False,
    note: Callable[[str], None] = lambda text: None,
) -> Iterator[GrowingFile]:
    """Opens `FILE.partial`, which becomes `path` if the block succeeds.

    Whatever stops the block leaves the whole lines so far, if there are any.

    Args:
      path: the complete file, which is replaced then.
      asked: all that the lines follow from, fit for JSON; the same may go on.
        None: nobody can, so each one starts anew.
      overwrite: start anew in any case.
      note: is told what is left when something stops the block.

    Raises:
      UsageError: the lines that are there follow from something else.
      T2TLiteError: another process writes them.
      OSError: as `files.place_of` does, or it cannot be written.
    """
    path = files.place_of(path)
    partial, record = beside(path)
    # Without a buffer, which would hold back what a full disk refused.
    with open(partial, "ab", buffering=0) as file:
        _lock(file, partial)
        files.remove_unfinished(path.parent, path.name)
        kept = 0 if overwrite else _keep_whole_lines(partial)
        if kept and record.exists():
            _require_same(partial, record, kept, asked)
        else:
            kept = 0
            file.truncate(0)  # first: lines are never another record's
            record.unlink(missing_ok=True)
            if asked is not None:
                files.write_json(record, asked)
        try:
            yield GrowingFile(file, kept)
            files.put_in_place(partial, path)
            record.unlink(missing_ok=True)
        except BaseException:
            count = _keep_whole_lines(partial)
            if count:
                note(f"{partial} has the first {count:,} lines.")
            else:
                partial.unlink()
                record.unlink(missing_ok=True)
            raise


def _lock(file: io.FileIO, partial: pathlib.Path) -> None:
    """Keeps others out until the file is closed, by whatever."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # Whoever had it may just have given it its final name.
        if os.path.samestat(os.fstat(file.fileno()), os.stat(partial)):
            return
    except (BlockingIOError, FileNotFoundError):
        pass
    raise T2TLiteError(
        f"Another process is writing {partial}: wait for it, or choose "
        "another file."
    )


def _keep_whole_lines(partial: pathlib.Path) -> int:
    """Cuts off a last line without its end; how many lines there are."""
    count = end = 0
    with open(partial, "rb") as file:
        for line in file:
            if line.endswith(b"\n"):
                count += 1
                end += len(line)
    os.truncate(partial, end)
    return count


def _require_same(
    partial: pathlib.Path,
    record: pathlib.Path,
    kept: int,
    asked: Mapping[str, Any] | None,
) -> None:
    """Raises UsageError if the lines follow from something else."""
    try:
        there = dict(json.loads(record.read_bytes()))
    except (ValueError, TypeError):
        there = {}
    # As JSON gives it back.
    now = None if asked is None else json.loads(json.dumps(asked))
    if there == now:
        return
    if now is None:
        reason = "what is asked now cannot go on behind any"
    else:
        changes = [
            f"{name} was {there.get(name)} and is {now.get(name)}"
            for name in sorted(there.keys() | now.keys())
            if there.get(name) != now.get(name)
        ]
        reason = ", ".join(changes[:_SHOWN_CHANGES])
        if len(changes) > _SHOWN_CHANGES:
            reason += f" and {len(changes) - _SHOWN_CHANGES} more"
    raise UsageError(
        f"{partial} has the first {kept:,} lines of something else: {reason}. "
        "Go on with the same, or give --overwrite to start anew."
    )
