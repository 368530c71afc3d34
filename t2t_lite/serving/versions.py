"""Exports as numbered folders: `EXPORT_DIR/1/`, `EXPORT_DIR/2/`, ..."""

import os
import pathlib
from collections.abc import Callable

from t2t_lite import files
from t2t_lite.errors import T2TLiteError

# The file that tells an export of a format from any other folder.
SAVED_MODEL = "saved_model.pb"
CTRANSLATE2 = "model.bin"
_FORMATS = (SAVED_MODEL, CTRANSLATE2)


def write_version(
    export_dir: str | os.PathLike,
    mark: str,
    write: Callable[[pathlib.Path], None],
    version: int | None = None,
) -> pathlib.Path:
    """Writes `EXPORT_DIR/<version>/`, complete or not at all.

    The folder is written under a hidden name beside it and renamed, because a
    server loads a numbered folder as soon as it sees one.

    Args:
      export_dir: made if it is missing.
      mark: the file of the format, SAVED_MODEL or CTRANSLATE2.
      write: is given an empty folder, and fills it.
      version: a positive integer; by default one more than the largest that
        is there or is being written.

    Returns:
      the folder of the version.

    Raises:
      T2TLiteError: the version exists, or the versions there are of another
        format.
      OSError: the folder cannot be written.
    """
    export_dir = pathlib.Path(export_dir)
    export_dir.mkdir(parents=True, exist_ok=True)
    for other in set(_FORMATS) - {mark}:
        if strange := _versions(export_dir, other):
            raise T2TLiteError(
                "A folder of exports has one format, or servers try to load "
                f"what they cannot; {strange[-1]} has a {other}. Choose "
                "another --export_dir."
            )
    target = export_dir / str(_new_version(export_dir, version))
    files.remove_unfinished(export_dir, target.name)
    with files.write_folder(target, replace=False) as folder:
        write(folder)
    return target


def _new_version(export_dir: pathlib.Path, version: int | None) -> int:
    """The number of the new version."""
    there = {int(p.name) for p in export_dir.iterdir() if p.name.isdecimal()}
    there |= {
        int(name) for name in files.under_way(export_dir) if name.isdecimal()
    }
    if version is None:
        return max(there, default=0) + 1
    if version < 1 or version in there:
        raise T2TLiteError(
            "An export needs a new version, 1 or more; got "
            f"version={version}, and {export_dir} has "
            f"{', '.join(map(str, sorted(there))) or 'none'}."
        )
    return version


def remove_old_versions(newest: pathlib.Path, keep: int) -> list[pathlib.Path]:
    """Removes the oldest exports, so that `keep` remain.

    Only numbered folders with an export count. Versions above `newest` are
    neither counted nor removed: someone else has just written them.

    Args:
      newest: the folder of a version, complete.
      keep: how many remain with it, at least 1.

    Returns:
      what was removed, oldest first.
    """
    old = [
        path
        for path in _versions(newest.parent, *_FORMATS)
        if int(path.name) <= int(newest.name) and not path.is_symlink()
    ][:-keep]
    for path in old:
        files.remove_folder(path)
    return old


def newest_version(folder: pathlib.Path) -> pathlib.Path | None:
    """An export itself, or the newest in a folder of exports; None: neither."""
    if not folder.is_dir():
        return None
    if any((folder / mark).is_file() for mark in _FORMATS):
        return folder
    versions = _versions(folder, *_FORMATS)
    return versions[-1] if versions else None


def _versions(folder: pathlib.Path, *marks: str) -> list[pathlib.Path]:
    """The numbered folders with an export of these formats, oldest first."""
    found = [
        path
        for path in folder.iterdir()
        if path.name.isdecimal()
        and any((path / mark).is_file() for mark in marks)
    ]
    return sorted(found, key=lambda path: int(path.name))
