"""Files and folders that are there in full or not at all.

They are written under a hidden name beside their place, brought to the disk,
and renamed: who reads meanwhile, or after a crash, finds the old or the new.
"""

import contextlib
import json
import os
import pathlib
import shutil
from collections.abc import Iterator
from typing import Any, BinaryIO


def write_json(path: pathlib.Path, value: Any) -> None:
    """Writes a JSON file, indented, in one go."""
    write_text(path, json.dumps(value, indent=2) + "\n")


def write_text(path: pathlib.Path, text: str) -> None:
    """Writes a UTF-8 file in one go."""
    with write_file(path) as file:
        file.write(text.encode("utf-8"))


@contextlib.contextmanager
def write_file(path: pathlib.Path, to_disk: bool = True) -> Iterator[BinaryIO]:
    """A new file to write bytes into; it becomes `path` when all went well.

    Args:
      path: the file.
      to_disk: wait until it is there. Without, a machine that loses power may
        leave a part of the file; a process that is killed does not.
    """
    aside = _aside(path, "new")
    try:
        with open(aside, "wb") as file:
            yield file
            if to_disk:
                file.flush()
                os.fsync(file.fileno())
        os.replace(aside, path)
    finally:
        aside.unlink(missing_ok=True)


@contextlib.contextmanager
def write_folder(path: pathlib.Path) -> Iterator[pathlib.Path]:
    """A new folder to write files into; it becomes `path` when all went well.

    A folder that was there is replaced, at the last moment.
    """
    aside = _aside(path, "new")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        aside.mkdir()
        yield aside
        for file in aside.iterdir():
            _to_disk(file)
        _to_disk(aside)
        if path.exists():
            path.rename(_aside(path, "old"))
        aside.rename(path)
        _to_disk(path.parent)
        shutil.rmtree(_aside(path, "old"), ignore_errors=True)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def remove_folder(path: pathlib.Path) -> None:
    """Removes a folder; if that is interrupted, it has lost its name."""
    aside = _aside(path, "old")
    path.rename(aside)
    shutil.rmtree(aside, ignore_errors=True)


def remove_unfinished(directory: pathlib.Path) -> None:
    """Removes what interrupted writes and removals have left in a folder."""
    for path in directory.glob(".*.tmp"):
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def _aside(path, what):
    return path.with_name(f".{path.name}.{what}.{os.getpid()}.tmp")


def _to_disk(path):
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
