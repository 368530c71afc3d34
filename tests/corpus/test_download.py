"""Raw files: local files, and downloads with their checksums."""

import functools
import gzip
import hashlib
import http.server
import threading

import pytest

from t2t_lite.corpus.download import RawFiles, RemoteFile
from t2t_lite.errors import T2TLiteError


@pytest.fixture
def address(tmp_path):
    """The address of a server for the files in `tmp_path`."""

    class Handler(http.server.SimpleHTTPRequestHandler):
        def copyfile(self, source, outputfile):
            content = source.read()  # half of "short", as if it broke off
            cut = "short" in self.path
            outputfile.write(content[: len(content) // 2] if cut else content)

        def log_message(self, *args):
            pass

    server = http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), functools.partial(Handler, directory=tmp_path)
    )
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def remote(name, url, content=b"text"):
    return RemoteFile(name, url, hashlib.sha256(content).hexdigest())


def downloads(folder, *files):
    return RawFiles(files, None, folder / "downloads")


def test_the_error_for_a_file_missing_from_raw_dir_has_a_fix(tmp_path):
    files = (remote("train.en", "http://127.0.0.1:9/"),)
    raw = RawFiles(files, tmp_path, tmp_path / "downloads")
    with pytest.raises(T2TLiteError, match=r"train\.en.*`raw_dir") as raised:
        raw.path("train.en")
    assert str(tmp_path) in str(raised.value)


def test_without_a_download_folder_the_addresses_are_reported():
    raw = RawFiles((RemoteFile("a", "http://127.0.0.1:9/a", "00", 9_000_000),))
    with pytest.raises(T2TLiteError, match="127.0.0.1:9/a .9.00 MB"):
        raw.require(["a"])


def test_a_file_without_address_requires_raw_dir(tmp_path):
    with pytest.raises(T2TLiteError, match="train.en cannot be .*`raw_dir"):
        downloads(tmp_path).path("train.en")


@pytest.mark.parametrize("content", [b"text", gzip.compress(b"text", mtime=0)])
def test_a_download_is_kept_and_its_content_checked(tmp_path, address, content):
    name = "a.gz" if content[:1] == b"\x1f" else "a.txt"
    served = tmp_path / name
    served.write_bytes(content)
    raw = downloads(tmp_path, remote(name, f"{address}/{name}"))
    path = raw.path(name)
    assert path == tmp_path / "downloads" / name
    path.write_bytes(content[:-1])  # damaged, so it is downloaded again
    assert raw.path(name).read_bytes() == content
    served.unlink()
    assert raw.path(name).read_bytes() == content
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("other.txt", "sha256"),
        ("other.gz", "sha256"),
        ("short.txt", "Cannot download|sha256"),
        ("none.txt", "Cannot download .*404"),
    ],
)
def test_a_bad_download_is_refused_and_not_kept(
    tmp_path, address, name, message
):
    (tmp_path / "other.txt").write_bytes(b"an error page")
    (tmp_path / "other.gz").write_bytes(b"an error page")
    (tmp_path / "short.txt").write_bytes(b"text")
    url = f"{address}/{name}"
    raw = downloads(tmp_path, remote(name, url))
    with pytest.raises(T2TLiteError, match=message) as raised:
        raw.path(name)
    assert url in str(raised.value) and "`raw_dir" in str(raised.value)
    assert not list((tmp_path / "downloads").iterdir())
