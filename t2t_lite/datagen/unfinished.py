"""Work that survives being killed: what is finished is not done again.

A folder holds the files of the work, a note of what the work is, and a record
of each finished step, written after the files of the step. Each record carries
its checksum, so what was damaged since is never gone on with.
"""

import contextlib
import hashlib
import json
import os
import pathlib
import shutil
from typing import Any

from t2t_lite import files
from t2t_lite.corpus.raw_files import RawFiles, state_of
from t2t_lite.errors import T2TLiteError

_NOTE = "work.json"


class Work:
    """The folder of unfinished work.

    What lies there is resumed if it is the same work: the same identity, and
    corpus files with the size and the time of change that they had. Otherwise
    it is removed, or set aside as `FOLDER.damaged` if it is damaged.

    Args:
      folder: made if it is not there.
      identity: what the work is, fit for JSON, by what it is called in words.
      raw: notes the files of the corpus as they are read.

    Attributes:
      folder, raw: as given.
      difference: why older work does not go on; "" if it does.
      resumed: whether older work was there and goes on.
    """

    def __init__(
        self, folder: pathlib.Path, identity: dict[str, Any], raw: RawFiles
    ):
        self.folder = folder
        self.raw = raw
        self._identity = json.loads(json.dumps(identity))
        self._noted: dict[str, dict[str, int]] | None = None
        was_there = os.path.lexists(folder)
        try:
            self.difference = self._compare() if was_there else ""
        except T2TLiteError as error:
            kept = self._set_aside()
            self.difference = f"{error} (it is now in {kept.name})"
        self.resumed = was_there and not self.difference
        if self.difference:
            self.remove()
        folder.mkdir(exist_ok=True)
        if self.resumed:
            files.remove_unfinished(folder)
            for inner in filter(pathlib.Path.is_dir, folder.iterdir()):
                files.remove_unfinished(inner)
        self.note_sources()

    def _compare(self) -> str:
        """How the work that lies there differs, or "".

        Raises:
          T2TLiteError: it is damaged.
        """
        path = self.folder / _NOTE
        if self.folder.is_dir() and not os.path.lexists(path):
            return "it has no note"  # stopped before its start or in its end
        note = read_record(path)
        for name, value in self._identity.items():
            if note["identity"].get(name) != value:
                return f"{name} differs"
        for path, state in note["sources"].items():
            if state_of(path) != state:
                return f"{path} has changed"
        for record in self.folder.glob("finished-*.json"):
            read_record(record)
        for record in self.folder.glob("*/chunk-*.json"):
            read_record(record)
            if not record.with_suffix("").is_file():
                raise _damaged(record.with_suffix(""))
        self.raw.noted.update(note["sources"])
        self._noted = note["sources"]
        return ""

    def _set_aside(self) -> pathlib.Path:
        """Gives the folder another name, where an older one makes way."""
        aside = self.folder.with_name(f"{self.folder.name}.damaged")
        remove_any(aside)
        self.folder.rename(aside)
        return aside

    def note_sources(self) -> None:
        """Keeps which corpus files were read so far.

        That is to be known before anything made of them counts as finished.
        """
        if self._noted != self.raw.noted:
            self._noted = dict(self.raw.noted)
            note = {"identity": self._identity, "sources": self._noted}
            write_record(self.folder / _NOTE, note)

    def finish(self, step: str, record: Any) -> None:
        """Keeps the record of a step whose files are all written."""
        self.note_sources()
        write_record(self._path(step), record)

    def finished(self, step: str) -> Any:
        """The record of a step, or None if it is not finished."""
        path = self._path(step)
        return read_record(path) if path.exists() else None

    def _path(self, step: str) -> pathlib.Path:
        return self.folder / f"finished-{step}.json"

    def remove(self) -> None:
        """Removes the folder, first of all the note that lets it go on."""
        with contextlib.suppress(OSError):
            (self.folder / _NOTE).unlink()
        remove_any(self.folder)


def remove_any(path: pathlib.Path) -> None:
    """Removes a folder, a file or a link, if it is there."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def write_record(path: pathlib.Path, record: Any) -> None:
    """Writes a record, fit for JSON, with its checksum."""
    text = json.dumps(record)
    files.write_json(
        path, {"record": json.loads(text), "sha256": _sha256(text)}
    )


def read_record(path: pathlib.Path) -> Any:
    """What `write_record` wrote.

    Raises:
      T2TLiteError: it is missing or damaged.
    """
    try:
        found = json.loads(path.read_text("utf-8"))
        record = found["record"]
        if _sha256(json.dumps(record)) == found["sha256"]:
            return record
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise _damaged(path) from error
    raise _damaged(path)


def _damaged(path):
    return T2TLiteError(f"{path.name} is damaged")


def _sha256(text):
    return hashlib.sha256(text.encode()).hexdigest()


def code_version() -> str:
    """The sha256 of this package's modules: other code makes other work."""
    digest = hashlib.sha256()
    package = pathlib.Path(__file__).parents[1]
    for path in sorted(package.rglob("*.py")):
        digest.update(str(path.relative_to(package)).encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()
