"""Versions of an export: numbered folders `EXPORT_DIR/1/`, `EXPORT_DIR/2/`."""

import os
from pathlib import Path

from t2t_lite import files
from t2t_lite.errors import T2TLiteError

# The file that identifies the format of an export.
SAVED_MODEL = "saved_model.pb"
CTRANSLATE2 = "model.bin"
MARKS = {
    "ctranslate2": CTRANSLATE2,
    "huggingface": "model.safetensors",
    "keras_hub": "task.json",
}
_LOADABLE = (SAVED_MODEL, CTRANSLATE2)
_FORMATS = (SAVED_MODEL, *MARKS.values())
# The description of a SavedModel; it contains no paths of this machine.
ABOUT = Path("assets.extra", "t2t-lite.json")


def next_version(export_dir: str | os.PathLike, mark: str) -> Path:
    """Return the folder of the next version.

    The number is one more than the largest number that exists or is being
    written. Write the folder with `files.write_folder`, because a server loads
    a numbered folder as soon as it exists.

    Args:
      export_dir: parent folder of the versions; created if it does not exist.
      mark: the file of the format, such as SAVED_MODEL.

    Raises:
      T2TLiteError: existing versions have another format.
      OSError: `export_dir` cannot be created or read.
    """
    export_dir = Path(export_dir)
    export_dir.mkdir(parents=True, exist_ok=True)
    for other in set(_FORMATS) - {mark}:
        if others := _versions(export_dir, other):
            raise T2TLiteError(
                "All versions of an export must have the same format (got "
                f"{other} in {others[-1]}): choose another `export_dir`."
            )
    names = {path.name for path in export_dir.iterdir()}
    names |= files.in_progress(export_dir)
    numbers = [int(name) for name in names if name.isdecimal()]
    target = export_dir / str(max(numbers, default=0) + 1)
    files.remove_unfinished(export_dir, target.name)
    return target


def remove_old_versions(newest: Path, keep: int) -> list[Path]:
    """Remove the oldest versions, so that `keep` versions remain.

    Other folders are ignored. So are versions newer than `newest`, because
    another process has just written them.

    Args:
      newest: folder of a version.
      keep: number of versions to keep, `newest` included, at least 1.

    Returns:
      The removed folders, oldest first.
    """
    old = [
        path
        for path in _versions(newest.parent, *_FORMATS)
        if int(path.name) <= int(newest.name) and not path.is_symlink()
    ][:-keep]
    for path in old:
        files.remove_folder(path)
    return old


def newest_version(folder: Path) -> Path | None:
    """Return `folder` if it is an export, else the newest version in it.

    KerasHub loads its presets itself.
    """
    if not folder.is_dir():
        return None
    if any((folder / mark).is_file() for mark in _LOADABLE):
        return folder
    versions = _versions(folder, *_LOADABLE)
    return versions[-1] if versions else None


def _versions(folder: Path, *marks: str) -> list[Path]:
    numbered = [path for path in folder.iterdir() if path.name.isdecimal()]
    found = [p for p in numbered if any((p / mark).is_file() for mark in marks)]
    return sorted(found, key=lambda path: int(path.name))
