"""Work that survives being killed: what is finished is not done again.

A folder holds the files of the work, a note of what the work is, and a record
of each finished step, written after the files of the step.
"""

import hashlib
import json
import pathlib
import shutil
from typing import Any

from t2t_lite import files
from t2t_lite.corpus.raw_files import RawFiles, state_of

_NOTE = "work.json"


class Work:
    """The folder of unfinished work.

    What lies there is resumed if it is the same work: the same identity, and
    corpus files with the size and the time of change that they had. Otherwise
    it is removed.

    Args:
      folder: made if it is not there.
      identity: what the work is, fit for JSON, by what it is called in words.
      raw: notes the files of the corpus as they are read.

    Attributes:
      folder, raw: as given.
      difference: why older work was removed; "" if it was not.
      resumed: whether older work was there and goes on.
    """

    def __init__(
        self, folder: pathlib.Path, identity: dict[str, Any], raw: RawFiles
    ):
        self.folder = folder
        self.raw = raw
        self._identity = json.loads(json.dumps(identity))
        self._noted: dict[str, dict[str, int]] | None = None
        was_there = folder.exists()
        self.difference = self._compare() if was_there else ""
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
        """How the work that lies there differs, or ""."""
        try:
            note = json.loads((self.folder / _NOTE).read_text("utf-8"))
            then, sources = note["identity"], note["sources"]
        except (OSError, ValueError, KeyError, TypeError):
            return "its note cannot be read"
        for name, value in self._identity.items():
            if then.get(name) != value:
                return f"{name} differs"
        for path, state in sources.items():
            if state_of(path) != state:
                return f"{path} has changed"
        for record in self.folder.glob("finished-*.json"):
            try:
                json.loads(record.read_text("utf-8"))
            except ValueError:
                return f"{record.name} is damaged"
        self.raw.noted.update(sources)
        self._noted = sources
        return ""

    def note_sources(self) -> None:
        """Keeps which corpus files were read so far.

        That is to be known before anything made of them counts as finished.
        """
        if self._noted != self.raw.noted:
            self._noted = dict(self.raw.noted)
            note = {"identity": self._identity, "sources": self._noted}
            files.write_json(self.folder / _NOTE, note)

    def finish(self, step: str, record: Any) -> None:
        """Keeps the record of a step whose files are all written."""
        self.note_sources()
        files.write_json(self._path(step), record)

    def finished(self, step: str) -> Any:
        """The record of a step, or None if it is not finished."""
        path = self._path(step)
        return json.loads(path.read_text("utf-8")) if path.exists() else None

    def _path(self, step: str) -> pathlib.Path:
        return self.folder / f"finished-{step}.json"

    def remove(self) -> None:
        """Removes the folder, first of all the note that lets it go on."""
        (self.folder / _NOTE).unlink(missing_ok=True)
        shutil.rmtree(self.folder, ignore_errors=True)


def code_version() -> str:
    """The sha256 of this package's modules: other code makes other work."""
    digest = hashlib.sha256()
    package = pathlib.Path(__file__).parents[1]
    for path in sorted(package.rglob("*.py")):
        digest.update(str(path.relative_to(package)).encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()
