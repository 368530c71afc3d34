"""The files of a corpus by name: found in a folder, or downloaded."""

import dataclasses
import gzip
import hashlib
import os
import pathlib
import sys
import zlib
from collections.abc import Iterable

from t2t_lite.errors import T2TLiteError
from t2t_lite.progress import log


@dataclasses.dataclass(frozen=True)
class RemoteFile:
    """A file of a corpus and its address.

    Attributes:
      name: of the file in `raw_dir`.
      url: its address for a download without `raw_dir`; http, https or ftp.
      sha256: of the content, in hex; for a `.gz` file that is the uncompressed
        content, because the same text can be compressed in many ways.
      size: bytes to download, about; None if unknown.
    """

    name: str
    url: str
    sha256: str
    size: int | None = None

    @property
    def address(self) -> str:
        """The URL and the size, for people."""
        size = f" ({self.size / 1e6:.2f} MB)" if self.size else ""
        return f"{self.url}{size}"


class RawFiles:
    """Finds the files of a corpus by name.

    Args:
      files: the problem's `RemoteFile`s.
      raw_dir: a folder that already holds the files, used as they are; None
        downloads them.
      download_dir: the folder for downloads, made when needed; None refuses to
        download.
      progress: show the bar of a download on a terminal.
      tfds_dir: the folder of TensorFlow Datasets; None: that library's default.

    Attributes:
      sources: size and time of change of each file that was read, by path.
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
        self.raw_dir, self.download_dir, self.tfds_dir = (
            None if folder is None else pathlib.Path(folder).expanduser()
            for folder in (raw_dir, download_dir, tfds_dir)
        )
        self.progress = progress
        self.sources: dict[str, dict[str, int]] = {}

    def record_source(self, path: str | os.PathLike) -> None:
        """Record that the corpus is read from this file; `path` does it."""
        if state := file_stat(path):
            self.sources.setdefault(os.path.abspath(path), state)

    def path(self, name: str) -> pathlib.Path:
        """Return the path of the file of that name; download it if necessary.

        Raises:
          T2TLiteError: the file is not in the folder, cannot be downloaded, or
            has another content.
        """
        self.require([name])
        path = (self.raw_dir or self.download_dir or pathlib.Path()) / name
        if self.raw_dir is None:
            self._download(self.files[name], path)
        self.record_source(path)
        return path

    def require(self, names: Iterable[str]) -> None:
        """Raise T2TLiteError for files that are missing, and not downloaded."""
        if self.raw_dir is not None:
            there = self.raw_dir
            missing = [name for name in names if not (there / name).is_file()]
            problem = f"{there} holds no file {', '.join(missing)}"
        elif missing := [name for name in names if name not in self.files]:
            problem = f"{', '.join(missing)} cannot be downloaded"
        else:
            missing = [] if self.download_dir else list(names)
            addresses = [self.files[name].address for name in missing]
            problem = f"to be downloaded: {', '.join(addresses)}"
        if missing:
            raise T2TLiteError(
                f"{problem}; name the folder that holds them with `raw_dir`."
            )

    def _download(self, file: RemoteFile, path: pathlib.Path) -> None:
        if path.exists() and _sha256_of_content(path) == file.sha256:
            return
        import pooch

        log(f"downloading {file.url}")
        pooch.get_logger().setLevel("WARNING")
        fix = f"Get {file.name} by hand and name its folder with `raw_dir`."
        path.unlink(missing_ok=True)
        progress = self.progress and sys.stderr.isatty()
        try:
            pooch.retrieve(
                file.url,
                known_hash=None,  # which would be that of the archive
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
                f"{file.url} is not the expected file: sha256 must be "
                f"{file.sha256}; got {found}. {fix}"
            )


def file_stat(path: str | os.PathLike) -> dict[str, int] | None:
    """Return the size and the time of change of a file; None without one."""
    try:
        stat = os.stat(path)
    except (OSError, ValueError):  # or it is not a path
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
