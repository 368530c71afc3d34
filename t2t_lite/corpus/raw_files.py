"""The files of a corpus by name: found in a folder, or downloaded."""

import dataclasses
import gzip
import hashlib
import os
import pathlib
import urllib.request
import zlib

from t2t_lite import files
from t2t_lite.errors import T2TLiteError
from t2t_lite.progress import Counter

_CHUNK_BYTES = 1 << 20
_TIMEOUT_SECONDS = 60  # without a byte from the server


@dataclasses.dataclass(frozen=True)
class RemoteFile:
    """A file of a corpus and where it comes from.

    Attributes:
      name: what the file is called in `--raw_dir`.
      url: where it is downloaded from when there is no `--raw_dir`.
      sha256: of what the file holds, in hex; of a `.gz` file that is the
        uncompressed content, because the same text can be packed in many ways.
      size: bytes to download, about; None where it is not known.
    """

    name: str
    url: str
    sha256: str
    size: int | None = None


class RawFiles:
    """Finds the files of a corpus by name.

    Args:
      files: the problem's `RemoteFile`s.
      raw_dir: a folder that already holds the files, used as they are; None
        downloads them.
      download_dir: where downloads are kept; made when needed.
      progress: show the bar of a download on stderr.
      tfds_dir: where TensorFlow Datasets are; None: where that library looks.
    """

    def __init__(
        self,
        files: tuple[RemoteFile, ...] = (),
        raw_dir: str | os.PathLike | None = None,
        download_dir: str | os.PathLike | None = None,
        progress: bool = True,
        tfds_dir: str | os.PathLike | None = None,
    ):
        self.files = {file.name: file for file in files}
        self.raw_dir = _expanded(raw_dir)
        self.download_dir = _expanded(download_dir)
        self.progress = progress
        self.tfds_dir = _expanded(tfds_dir)
        self.noted: dict[str, dict[str, int]] = {}

    def note(self, path: str | os.PathLike) -> None:
        """Says that the corpus is read from this file.

        A later change of it is noticed, because its size and the time of its
        last change are kept. `path` does so for the files it gives.
        """
        if state := state_of(path):
            self.noted.setdefault(os.path.abspath(path), state)

    def path(self, name: str) -> pathlib.Path:
        """The path of the file of that name; downloads it first if necessary.

        Raises:
          T2TLiteError: the file is not in the folder, cannot be downloaded or
            is not the expected one.
        """
        if self.raw_dir is not None:
            path = self.raw_dir / name
            if not path.is_file():
                raise self._missing([name])
        elif name in self.files and self.download_dir is not None:
            file, path = self.files[name], self.download_dir / name
            if not path.exists() or _sha256_of_content(path) != file.sha256:
                self._download(file, path)
        else:
            raise T2TLiteError(
                f"{name} is not on this machine and has no address to download "
                "it from: name the folder that holds it with --raw_dir."
            )
        self.note(path)
        return path

    def tell(self, file: RemoteFile) -> str:
        """Says where a file is or would come from."""
        size = f" ({file.size / 1e6:.2f} MB)" if file.size else ""
        address = f"{file.url}{size}"
        if self.raw_dir is None:
            return f"to be downloaded: {address}"
        path = self.raw_dir / file.name
        if path.exists():
            return f"found: {path}"
        return f"missing: {path}, from {address}"

    def _missing(self, names):
        """The error for files that the folder lacks."""
        what, it = ("them", "them") if len(names) > 1 else (names[0], "it")
        fix = f"Put {what} there, or name another folder with --raw_dir"
        if all(name in self.files for name in names):
            fix += f", or leave --raw_dir out to download {it}"
        return T2TLiteError(
            f"{self.raw_dir} holds no file {', '.join(names)}. {fix}."
        )

    def _download(self, file, path):
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            files.remove_unfinished(path.parent, path.name)
            with files.write_file(path) as out:
                self._fetch(file, out)
                out.flush()
                found = _sha256_of_content(pathlib.Path(out.name))
                if found != file.sha256:
                    raise T2TLiteError(
                        f"{file.url} is not the expected file: sha256 must be "
                        f"{file.sha256}; got {found}. Get {file.name} by hand "
                        "and name its folder with --raw_dir."
                    )
        except OSError as error:  # URLError and time-outs are among them
            raise T2TLiteError(
                f"Cannot download {file.url} to {path}: {error}. Get "
                f"{file.name} by hand and name its folder with --raw_dir."
            ) from error

    def _fetch(self, file, out):
        with urllib.request.urlopen(file.url, timeout=_TIMEOUT_SECONDS) as page:
            size = page.headers.get("Content-Length")
            megabytes = int(size) / 1e6 if size else None
            with Counter(file.name, "MB", self.progress, megabytes) as counter:
                while chunk := page.read(_CHUNK_BYTES):
                    out.write(chunk)
                    counter.advance(len(chunk) / 1e6)


class Look(RawFiles):
    """Finds files as another one does, and notes those that a folder lacks.

    For them, too, it gives a path; so whoever asks goes on to the next one.

    Attributes:
      missing: their names, in the order in which they were asked for.
    """

    def __init__(self, raw: RawFiles):
        vars(self).update(vars(raw))
        self.missing: list[str] = []

    def path(self, name: str) -> pathlib.Path:
        """The path of the file of that name, which may not be there."""
        if self.raw_dir is None or (self.raw_dir / name).is_file():
            return super().path(name)
        if name not in self.missing:
            self.missing.append(name)
        return self.raw_dir / name

    def require_all(self) -> None:
        """Raises T2TLiteError if there are missing ones."""
        if self.missing:
            raise self._missing(self.missing)


def state_of(path: str | os.PathLike) -> dict[str, int] | None:
    """The size and the time of the last change of a file, if it is there."""
    try:
        stat = os.stat(path)
    except (OSError, ValueError):  # or it is no path
        return None
    return {"bytes": stat.st_size, "mtime_ns": stat.st_mtime_ns}


def _expanded(folder):
    return None if folder is None else pathlib.Path(folder).expanduser()


def _sha256_of_content(path):
    """Hex digest of what the file holds; None if it cannot be unpacked."""
    opener = gzip.open if ".gz" in path.suffixes else open
    try:
        with opener(path, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except (EOFError, zlib.error, gzip.BadGzipFile):
        return None
