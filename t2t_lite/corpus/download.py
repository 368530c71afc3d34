"""Find the files of a corpus by name in a folder, or download them."""

import dataclasses
import gzip
import hashlib
import os
import sys
import zlib
from collections.abc import Iterable
from pathlib import Path

from t2t_lite.errors import T2TLiteError
from t2t_lite.files import PathLike
from t2t_lite.progress import log


@dataclasses.dataclass(frozen=True)
class RemoteFile:
    """A file of a corpus and its URL.

    Attributes:
      name: the name of the file in `raw_dir`.
      url: the URL for a download without `raw_dir`; http, https or ftp.
      sha256: the sha256 of the content, in hex; uncompressed for a `.gz` file,
        because the same text can be compressed in many ways.
      size: approximate size of the download in bytes; None if unknown.
    """

    name: str
    url: str
    sha256: str
    size: int | None = None

    @property
    def address(self) -> str:
        """The URL and the size in MB, for messages."""
        size = f" ({self.size / 1e6:.2f} MB)" if self.size else ""
        return f"{self.url}{size}"


class RawFiles:
    """The files of a corpus by name.

    Args:
      files: the problem's `RemoteFile`s.
      raw_dir: a folder with the files; None downloads them.
      download_dir: the folder for downloads, created when needed; None allows
        no download.
      progress: show a progress bar for downloads on a terminal.
      tfds_dir: the folder of TensorFlow Datasets; None is its default folder.

    Attributes:
      sources: the `file_stat` of each file that was read, by path.
    """

    def __init__(
        self,
        files: tuple[RemoteFile, ...] = (),
        raw_dir: PathLike | None = None,
        download_dir: PathLike | None = None,
        progress: bool = True,
        tfds_dir: PathLike | None = None,
    ):
        self.files = {file.name: file for file in files}
        self.raw_dir, self.download_dir, self.tfds_dir = (
            None if folder is None else Path(folder).expanduser()
            for folder in (raw_dir, download_dir, tfds_dir)
        )
        self.progress = progress
        self.sources: dict[str, dict[str, int]] = {}

    def record_source(self, path: PathLike) -> None:
        """Record a file of the corpus; `path` calls it."""
        if state := file_stat(path):
            self.sources.setdefault(os.path.abspath(path), state)

    def path(self, name: str) -> Path:
        """Return the path of a file; download it if necessary.

        Raises:
          T2TLiteError: the file is missing or has other content.
        """
        self.require([name])
        path = (self.raw_dir or self.download_dir or Path()) / name
        if self.raw_dir is None:
            self._download(self.files[name], path)
        self.record_source(path)
        return path

    def require(self, names: Iterable[str]) -> None:
        """Raise T2TLiteError if files are missing and cannot be downloaded."""
        if folder := self.raw_dir:
            missing = [name for name in names if not (folder / name).is_file()]
            problem = f"{folder} holds no file {', '.join(missing)}"
        elif missing := [name for name in names if name not in self.files]:
            problem = f"{', '.join(missing)} cannot be downloaded"
        else:
            missing = [] if self.download_dir else list(names)
            addresses = [self.files[name].address for name in missing]
            problem = f"downloads are disabled: {', '.join(addresses)}"
        if missing:
            raise T2TLiteError(
                f"{problem}. Give the folder of these files with `raw_dir`."
            )

    def _download(self, file: RemoteFile, path: Path) -> None:
        if path.exists() and _sha256_of_content(path) == file.sha256:
            return
        import pooch

        log(f"downloading {file.url}")
        pooch.get_logger().setLevel("WARNING")
        fix = f"Get {file.name} manually and give its folder with `raw_dir`."
        path.unlink(missing_ok=True)
        progress = self.progress and sys.stderr.isatty()
        try:
            pooch.retrieve(
                file.url,
                known_hash=None,  # it would be the hash of the archive
                fname=path.name,
                path=path.parent,
                progressbar=progress,
            )
        except (OSError, ValueError) as error:
            raise T2TLiteError(
                f"Cannot download {file.url} to {path}: {error}. {fix}"
            ) from error
        if (found := _sha256_of_content(path)) != file.sha256:
            path.unlink()
            raise T2TLiteError(
                f"The sha256 of {file.url} must be {file.sha256} (got "
                f"{found}). {fix}"
            )


def file_stat(path: PathLike) -> dict[str, int] | None:
    """Return the size and modification time of a file; None if missing."""
    try:
        stat = os.stat(path)
    except (OSError, ValueError):  # ValueError: not a path
        return None
    return {"bytes": stat.st_size, "mtime_ns": stat.st_mtime_ns}


def _sha256_of_content(path):
    """Return the hex digest of the content; None for a damaged archive."""
    opener = gzip.open if ".gz" in path.suffixes else open
    try:
        with opener(path, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except (EOFError, zlib.error, gzip.BadGzipFile):
        return None
