import shutil
from collections import namedtuple

import pytest

from t2t_lite.doctor import folders
from t2t_lite.doctor.finding import Asked

Usage = namedtuple("Usage", "total used free")


@pytest.fixture
def fast(monkeypatch):
    """A folder that is fast and has room, until a test says otherwise."""
    monkeypatch.setattr(folders, "speeds", lambda folder: (1e9, 1e-4))
    usage = Usage(0, 0, 100 << 30)
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: usage)
    return monkeypatch


def test_a_folder_is_measured_and_left_as_it_was(tmp_path):
    written, read = folders.speeds(tmp_path)
    assert written > 0 and read > 0
    assert not list(tmp_path.iterdir())


def test_a_folder_with_room_is_in_order(fast, tmp_path):
    found = folders.check_folder("--data_dir", tmp_path)
    assert found == (
        "--data_dir",
        True,
        f"{tmp_path}: 100.0 GiB free, writes 1,000 MB/s, reads a small file "
        "in 0.1 ms",
    )


def test_of_a_folder_to_be_made_the_one_around_it_is_looked_at(fast, tmp_path):
    found = folders.check_folder("--data_dir", tmp_path / "a" / "b")
    assert found.ok and found.text.startswith(f"{tmp_path}: ")


def test_a_full_disk_is_something_to_do(fast, tmp_path):
    usage = Usage(0, 0, 1 << 20)
    fast.setattr(shutil, "disk_usage", lambda folder: usage)
    found = folders.check_folder("--output_dir", tmp_path)
    assert not found.ok and "free some space" in found.text


@pytest.mark.parametrize("speeds", [(1e6, 1e-4), (1e9, 0.5)])
def test_a_slow_disk_is_something_to_do(fast, tmp_path, speeds):
    fast.setattr(folders, "speeds", lambda folder: speeds)
    found = folders.check_folder("--output_dir", tmp_path)
    assert not found.ok and "this is slow" in found.text


def test_a_folder_that_cannot_be_written_is_something_to_do(fast, tmp_path):
    def denied(folder):
        raise PermissionError(13, "Permission denied", str(folder))

    fast.setattr(folders, "speeds", denied)
    found = folders.check_folder("--output_dir", tmp_path)
    assert not found.ok and "change its permissions" in found.text


def test_a_file_in_place_of_a_folder_is_something_to_do(tmp_path):
    (tmp_path / "file").touch()
    found = folders.check_folder("--output_dir", tmp_path / "file")
    assert not found.ok and "Not a directory" in found.text


def test_only_a_run_that_is_asked_for_has_a_folder_to_check(fast, tmp_path):
    assert not list(folders.check_output_dir(Asked(tmp_path)))
    (found,) = folders.check_output_dir(Asked(tmp_path, output_dir=tmp_path))
    (data,) = folders.check_data_dir(Asked(tmp_path))
    assert (found.name, data.name) == ("--output_dir", "--data_dir")
