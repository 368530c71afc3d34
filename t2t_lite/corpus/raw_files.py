"""The files of a corpus by name: found in a folder, or downloaded."""

import dataclasses
import gzip
import hashlib
import os
import pathlib
import shutil
import sys
import urllib.parse
import zlib
from typing import Any

from t2t_lite.errors import T2TLiteError
from t2t_lite.progress import say

_TIMEOUT_SECONDS = 60  # without a byte from the server


@dataclasses.dataclass(frozen=True)
class RemoteFile:
    """A file of a corpus and its address.

    Attributes:
      name: of the file in `--raw_dir`.
      url: its address for a download without `--raw_dir`; http, https, ftp, or
        file for a mirror on a disk.
      sha256: of the content, in hex; for a `.gz` file that is the uncompressed
        content, because the same text can be compressed in many ways.
      size: bytes to download, about; None if unknown.
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
      download_dir: the folder for downloads; made when needed.
      progress: show the bar of a download on a terminal.
      tfds_dir: the folder of TensorFlow Datasets; None: that library's default.

    Attributes:
      noted: size and time of change of each file that was read, by path.
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
        """Record that the corpus is read from this file; `path` does it."""
        if state := state_of(path):
            self.noted.setdefault(os.path.abspath(path), state)

    def path(self, name: str) -> pathlib.Path:
        """Return the path of the file of that name; download it if necessary.

        Raises:
          T2TLiteError: the file is not in the folder, cannot be downloaded, or
            has another content.
        """
        if self.raw_dir is not None:
            self.require([name])
            path = self.raw_dir / name
        elif name in self.files and self.download_dir is not None:
            path = self._download(self.files[name], self.download_dir / name)
        else:
            raise T2TLiteError(
                f"{name} is not on this machine and has no address to download "
                "it from: name the folder that holds it with --raw_dir."
            )
        self.note(path)
        return path

    def require(self, names: list[str]) -> None:
        """Raise T2TLiteError for the files that `raw_dir`, if given, lacks."""
        folder = self.raw_dir
        if folder is None:
            return
        missing = [name for name in names if not (folder / name).is_file()]
        if missing:
            fix = "Put them there, or name another folder with --raw_dir"
            if all(name in self.files for name in missing):
                fix += ", or leave --raw_dir out to download them"
            raise T2TLiteError(
                f"{folder} holds no file {', '.join(missing)}. {fix}."
            )

    def tell(self, file: RemoteFile) -> str:
        """Return a line about the place or the address of a file."""
        size = f" ({file.size / 1e6:.2f} MB)" if file.size else ""
        address = f"{file.url}{size}"
        if self.raw_dir is None:
            return f"to be downloaded: {address}"
        path = self.raw_dir / file.name
        if path.exists():
            return f"found: {path}"
        return f"missing: {path}, from {address}"

    def _download(self, file, path):
        if path.exists() and _sha256_of_content(path) == file.sha256:
            return path
        import pooch

        say(f"downloading {file.url}")
        pooch.get_logger().setLevel("WARNING")
        fix = f"Get {file.name} by hand and name its folder with --raw_dir."
        path.unlink(missing_ok=True)
        try:
            pooch.retrieve(
                file.url,
                known_hash=None,  # which would be that of the archive
                fname=path.name,
                path=path.parent,
                downloader=self._downloader(file.url),
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
        return path

    def _downloader(self, url: str) -> Any:
        import pooch

        parts = urllib.parse.urlsplit(url)
        if parts.scheme == "file":
            source = urllib.parse.unquote(parts.path)
            return lambda url, target, pooch: shutil.copyfile(source, target)
        if parts.scheme == "ftp":
            return pooch.FTPDownloader(timeout=_TIMEOUT_SECONDS)
        return pooch.HTTPDownloader(
            progressbar=self.progress and sys.stderr.isatty(),
            timeout=_TIMEOUT_SECONDS,
        )


def state_of(path: str | os.PathLike) -> dict[str, int] | None:
    """Return the size and the time of change of a file; None without one."""
    try:
        stat = os.stat(path)
    except (OSError, ValueError):  # or it is not a path
        return None
    return {"bytes": stat.st_size, "mtime_ns": stat.st_mtime_ns}


def _expanded(folder):
    return None if folder is None else pathlib.Path(folder).expanduser()


def _sha256_of_content(path):
    """Return the hex digest of the content; None for a damaged archive."""
    opener = gzip.open if ".gz" in path.suffixes else open
    try:
        with opener(path, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except (EOFError, zlib.error, gzip.BadGzipFile):
        return None
