"""Files and folders that are either complete or not there.

Each is written beside its place under a hidden name, `.NAME.PID.tmp`, and
renamed when it is complete. So readers find the old one or the new one, never
a part, also after a crash. `remove_unfinished` sweeps up after killed
processes.
"""

import contextlib
import errno
import glob
import json
import os
import pathlib
import re
import shutil
from collections.abc import Iterator
from typing import Any, BinaryIO

_ASIDE = re.compile(r"\.(.+)\.(\d+)\.tmp")


def write_json(path: pathlib.Path, value: Any) -> None:
    """Writes a JSON file, indented; complete or not at all."""
    write_text(path, json.dumps(value, indent=2) + "\n")


def write_text(path: pathlib.Path, text: str) -> None:
    """Writes a UTF-8 file; complete or not at all."""
    with write_file(path) as file:
        file.write(text.encode("utf-8"))


@contextlib.contextmanager
def write_file(path: pathlib.Path, to_disk: bool = True) -> Iterator[BinaryIO]:
    """Opens a new file for bytes; it becomes `path` if the block succeeds.

    Args: as in `put_in_place`.

    Raises:
      OSError: as `place_of` does, or it cannot be written.
    """
    path = place_of(path)
    hidden = aside(path)
    try:
        with open(hidden, "wb") as file:
            yield file
        put_in_place(hidden, path, to_disk)
    except OSError as error:
        if error.filename == str(hidden):
            error.filename = str(path)  # the name that people know
        raise
    finally:
        hidden.unlink(missing_ok=True)


@contextlib.contextmanager
def write_folder(
    path: pathlib.Path, replace: bool = True
) -> Iterator[pathlib.Path]:
    """Makes a new folder; it becomes `path` if the block succeeds.

    A folder that is there makes way at the last moment; without `replace` it
    stays, and the new one is an OSError.
    """
    hidden = aside(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        hidden.mkdir()
        yield hidden
        for file in hidden.rglob("*"):
            _sync(file)
        old = path.with_name(f"{path.name}.old")
        if replace and path.exists():
            path.rename(aside(old))
        put_in_place(hidden, path)
        shutil.rmtree(aside(old), ignore_errors=True)
    finally:
        shutil.rmtree(hidden, ignore_errors=True)


def place_of(path: pathlib.Path) -> pathlib.Path:
    """Where a file that is to become `path` goes: a link is followed.

    Raises:
      OSError: what is there is no file but, for example, a device, whose place
        nothing may take.
    """
    if path.exists() and not path.is_file():
        raise OSError(errno.EINVAL, "Not a regular file", str(path))
    return path.resolve() if path.is_symlink() else path


def aside(path: pathlib.Path) -> pathlib.Path:
    """The hidden name under which this process writes a file or folder."""
    return path.with_name(f".{path.name}.{os.getpid()}.tmp")


def put_in_place(
    written: pathlib.Path, path: pathlib.Path, to_disk: bool = True
) -> None:
    """Gives a complete file or folder its name.

    Args:
      written: where it is now, on the same file system.
      path: its place; a file there is replaced.
      to_disk: first wait until the disk has it. If False, a power failure may
        leave a part of it; a killed process cannot.
    """
    if to_disk:
        _sync(written)
    os.replace(written, path)
    if path.is_dir():
        _sync(path.parent)


def remove_folder(path: pathlib.Path) -> None:
    """Removes a folder; if that is interrupted, it has lost its name."""
    hidden = aside(path)
    path.rename(hidden)
    shutil.rmtree(hidden, ignore_errors=True)


def under_way(folder: pathlib.Path) -> set[str]:
    """The names of what other processes of this machine write in a folder."""
    return {
        found[1]
        for path in folder.iterdir()
        if (found := _ASIDE.fullmatch(path.name)) and _lives(int(found[2]))
    }


def _lives(process: int) -> bool:
    """Whether there is another process of this number."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # of another user
        pass
    return process != os.getpid()


def remove_unfinished(folder: pathlib.Path, name: str = "") -> None:
    """Removes what killed processes left when they wrote or removed something.

    Args:
      folder: where to look. Nobody else may be writing there.
      name: of the one file or folder whose leftovers are to go; "" means all.
    """
    for path in folder.glob(f".{glob.escape(name) or '*'}.*.tmp"):
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def _sync(path: pathlib.Path) -> None:
    """Waits until the disk has a file, or the names in a folder."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
