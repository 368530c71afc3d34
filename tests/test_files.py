"""Atomic writes of files and folders, and removal of leftovers."""

import io
import os

import pytest

from t2t_lite import files


def names_in(folder):
    return {path.name for path in folder.iterdir()}


def test_a_file_keeps_its_old_content_until_the_new_one_is_complete(tmp_path):
    path, link = tmp_path / "file", tmp_path / "link"
    files.write_text(path, "old")
    link.symlink_to(path)
    with files.write_file(link) as file, io.TextIOWrapper(file) as text:
        text.write("new")
        assert path.read_text() == "old"
    assert path.read_text() == "new" and link.is_symlink()
    assert names_in(tmp_path) == {"file", "link"}


@pytest.mark.parametrize("write", [files.write_file, files.write_folder])
def test_failed_write_leaves_nothing(tmp_path, write):
    with pytest.raises(ZeroDivisionError), write(tmp_path / "new"):
        1 / 0  # noqa: B018 (it fails)
    assert not names_in(tmp_path)


def test_a_pipe_is_not_replaced(tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    with pytest.raises(OSError, match="pipe"):
        files.write_text(path, "text")
    assert path.is_fifo() and os.listdir(tmp_path) == ["pipe"]


def test_error_names_the_file_and_not_the_temporary_file(tmp_path):
    path = tmp_path / "none" / "file"
    with pytest.raises(FileNotFoundError) as error, files.write_file(path):
        pass
    assert error.value.filename == str(path)
    (tmp_path / "none").touch()
    with pytest.raises(NotADirectoryError) as error, files.write_file(path):
        pass
    assert error.value.filename == str(path)


@pytest.mark.parametrize("replace", [True, False])
def test_folder_replaces_another_only_if_allowed(tmp_path, replace):
    path = tmp_path / "folder"
    for name in ("one", "two"):
        try:
            with files.write_folder(path, replace) as folder:
                (folder / "deeper").mkdir()
                (folder / "deeper" / name).touch()
        except OSError:
            assert (name, replace) == ("two", False)
    assert names_in(path / "deeper") == {"two" if replace else "one"}
    assert names_in(tmp_path) == {"folder"}


def test_leftovers_of_one_name_or_all_are_removed(tmp_path):
    keep = {".a.lock", "b.tmp", ".text.incomplete"}
    for name in (*keep, ".a[1].123.tmp"):
        (tmp_path / name).touch()
    (tmp_path / ".b.old.123.tmp").mkdir()
    (tmp_path / ".b.old.123.tmp" / "file").touch()
    files.remove_unfinished(tmp_path, "a[1]")
    assert names_in(tmp_path) == keep | {".b.old.123.tmp"}
    files.remove_unfinished(tmp_path)
    assert names_in(tmp_path) == keep
