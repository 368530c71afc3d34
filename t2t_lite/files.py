"""Atomic writing of files and folders.

A file or folder is written under the hidden name `.NAME.PID.tmp` in the same
folder, and renamed when it is complete. Readers find either the old or the new
version, even after a crash.
"""

import contextlib
import errno
import glob
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

PathLike = str | os.PathLike


def write_json(path: Path, value: Any) -> None:
    """Write an indented JSON file atomically."""
    write_text(path, json.dumps(value, indent=2) + "\n")


def write_text(path: Path, text: str) -> None:
    """Write a UTF-8 file atomically."""
    write_bytes(path, text.encode("utf-8"))


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file atomically."""
    with write_file(path) as file:
        file.write(content)


@contextlib.contextmanager
def write_file(path: Path, sync_to_disk: bool = True) -> Iterator[BinaryIO]:
    """Open a new binary file, which replaces `path` if the block succeeds.

    A symbolic link is resolved. For `sync_to_disk` see `atomic_replace`.
    """
    path = resolve_path(path)
    hidden = temp_path(path)
    try:
        with open(hidden, "wb") as file:
            yield file
        atomic_replace(hidden, path, sync_to_disk)
    except OSError as error:
        if error.filename == str(hidden):
            error.filename = str(path)  # the name that users know
        raise
    finally:
        with contextlib.suppress(OSError):  # the error above is raised
            hidden.unlink()


@contextlib.contextmanager
def write_folder(path: Path, replace: bool = True) -> Iterator[Path]:
    """Create a folder, which becomes `path` if the block succeeds.

    Missing parents are created. Without `replace` an existing folder is an
    OSError.
    """
    hidden = temp_path(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        hidden.mkdir()
        yield hidden
        for file in hidden.rglob("*"):
            _sync(file)
        old = temp_path(path.with_name(f"{path.name}.old"))
        if replace and path.exists():
            path.rename(old)
        atomic_replace(hidden, path)
        shutil.rmtree(old, ignore_errors=True)
    finally:
        shutil.rmtree(hidden, ignore_errors=True)


def resolve_path(path: Path) -> Path:
    """Return the path to write to, with a symbolic link resolved.

    Raises:
      OSError: the path is a device, a pipe or a folder.
    """
    if path.exists() and not path.is_file():
        raise OSError(errno.EINVAL, "Not a regular file", str(path))
    return path.resolve() if path.is_symlink() else path


def temp_path(path: Path) -> Path:
    """Return the hidden path of this process for writing `path`."""
    return path.with_name(f".{path.name}.{os.getpid()}.tmp")


def atomic_replace(
    written: Path, path: Path, sync_to_disk: bool = True
) -> None:
    """Rename a complete file or folder; an existing file is replaced.

    `sync_to_disk` waits for the disk first, for safety against power failures.
    """
    if sync_to_disk:
        _sync(written)
    os.replace(written, path)
    if path.is_dir():
        _sync(path.parent)


def remove_folder(path: Path) -> None:
    """Delete a folder, after renaming it for atomicity."""
    hidden = temp_path(path)
    path.rename(hidden)
    shutil.rmtree(hidden, ignore_errors=True)


def in_progress(folder: Path) -> set[str]:
    """Return the names that other processes on this machine are writing."""
    import psutil

    names = set()
    for path in folder.glob(".*.*.tmp"):
        name, process = path.name[1:-4].rsplit(".", 1)
        is_other = process.isdecimal() and int(process) != os.getpid()
        if is_other and psutil.pid_exists(int(process)):
            names.add(name)
    return names


def remove_unfinished(folder: Path, name: str = "") -> None:
    """Delete temporary files of killed processes, by default for all names.

    No other process may be writing in the folder.
    """
    for path in folder.glob(f".{glob.escape(name) or '*'}.*.tmp"):
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
