"""Raw files: found where they are, downloads checked."""

import gzip
import hashlib

import pytest

from t2t_lite.corpus.lines import read_lines
from t2t_lite.corpus.raw_files import RawFiles, RemoteFile
from t2t_lite.errors import T2TLiteError


def write(path, data):
    path.write_bytes(data)
    return path


def served(folder, name, data, content=None):
    """A RemoteFile at a file:// address; `content` is its text unpacked."""
    path = write(folder / name, data)
    digest = hashlib.sha256(data if content is None else content).hexdigest()
    return RemoteFile(name, path.as_uri(), digest)


def test_raw_dir_is_used_as_it_is(tmp_path):
    write(tmp_path / "train.en", b"my own text")
    remote = RemoteFile("train.en", "http://127.0.0.1:9/", "0" * 64)
    raw = RawFiles((remote,), raw_dir=tmp_path)
    assert raw.path("train.en").read_bytes() == b"my own text"


def test_a_file_missing_from_raw_dir_is_named_with_what_to_do(tmp_path):
    remote = RemoteFile("train.en", "http://127.0.0.1:9/", "0" * 64)
    raw = RawFiles((remote,), tmp_path, tmp_path / "downloads")
    with pytest.raises(T2TLiteError) as raised:
        raw.path("train.en")
    assert f"{tmp_path} holds no file train.en." in str(raised.value)
    assert "leave --raw_dir out to download it" in str(raised.value)


def test_without_raw_dir_or_address_it_is_asked_for(tmp_path):
    raw = RawFiles((), None, tmp_path)
    with pytest.raises(T2TLiteError, match="train.en is not .* --raw_dir"):
        raw.path("train.en")


def test_a_download_is_kept_and_not_repeated(tmp_path):
    remote = served(tmp_path, "a.txt", b"text")
    raw = RawFiles((remote,), None, tmp_path / "downloads")
    path = raw.path("a.txt")
    assert path == tmp_path / "downloads" / "a.txt"
    (tmp_path / "a.txt").unlink()
    assert raw.path("a.txt").read_bytes() == b"text"
    assert [p.name for p in path.parent.iterdir()] == ["a.txt"]


def test_the_checksum_of_an_archive_is_that_of_its_content(tmp_path):
    packed = gzip.compress(b"text", compresslevel=1)
    remote = served(tmp_path, "a.gz", packed, content=b"text")
    raw = RawFiles((remote,), None, tmp_path / "downloads")
    assert list(read_lines(raw.path("a.gz"))) == ["text"]


def test_a_download_that_was_damaged_later_is_repeated(tmp_path):
    remote = served(tmp_path, "a.txt", b"text")
    raw = RawFiles((remote,), None, tmp_path / "downloads")
    raw.path("a.txt").write_bytes(b"tex")
    assert raw.path("a.txt").read_bytes() == b"text"


@pytest.mark.parametrize("name", ["a.txt", "a.gz"])
def test_another_file_than_expected_is_refused_and_not_kept(tmp_path, name):
    remote = served(tmp_path, name, b"an error page", content=b"text")
    raw = RawFiles((remote,), None, tmp_path / "downloads")
    with pytest.raises(T2TLiteError, match="is not the expected file: sha256"):
        raw.path(name)
    assert not list((tmp_path / "downloads").iterdir())


def test_a_failed_download_says_what_to_do(tmp_path):
    url = (tmp_path / "none.txt").as_uri()
    raw = RawFiles(
        (RemoteFile("none.txt", url, "0" * 64),), None, tmp_path / "d"
    )
    with pytest.raises(T2TLiteError) as raised:
        raw.path("none.txt")
    assert f"Cannot download {url}" in str(raised.value)
    assert "name its folder with --raw_dir" in str(raised.value)
    assert not list((tmp_path / "d").iterdir())
