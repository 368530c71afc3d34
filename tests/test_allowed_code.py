import json
import stat

import pytest

from t2t_lite import allowed_code


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def test_only_a_remembered_folder_is_allowed_by_whatever_path(
    tmp_path, monkeypatch
):
    (tmp_path / "mine").mkdir()
    (tmp_path / "theirs").mkdir()
    (tmp_path / "link").symlink_to("mine")
    monkeypatch.chdir(tmp_path)
    allowed_code.remember("link")
    assert allowed_code.place_of("mine") == str(tmp_path / "mine")
    assert allowed_code.is_allowed(str(tmp_path / "mine"))
    assert not allowed_code.is_allowed(str(tmp_path / "theirs"))


def test_what_is_remembered_is_a_file_of_the_user_alone(tmp_path, home):
    for name in ("a", "b", "a"):
        (tmp_path / name).mkdir(exist_ok=True)
        allowed_code.remember(str(tmp_path / name))
    (file,) = home.rglob("*.json")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert json.loads(file.read_text()) == [f"{tmp_path}/a", f"{tmp_path}/b"]


def test_a_package_is_found_and_not_imported(tmp_path, monkeypatch):
    package = tmp_path / "usr_found" / "inner"
    package.mkdir(parents=True)
    (tmp_path / "usr_found" / "__init__.py").write_text("1 / 0\n")
    monkeypatch.syspath_prepend(tmp_path)
    place = str(tmp_path / "usr_found" / "__init__.py")
    assert allowed_code.place_of("usr_found") == place
    assert allowed_code.place_of("usr_found.inner") == place


@pytest.mark.parametrize("name", ["no/such/folder", "~nobody/x", "é!"])
def test_what_is_nowhere_has_no_place(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert allowed_code.place_of(name) is None


@pytest.mark.parametrize("content", [b"", b"{}", b"\xff", b"[1"])
def test_a_damaged_record_allows_nothing_and_is_written_anew(
    tmp_path, home, content
):
    allowed_code.remember(str(tmp_path))
    (file,) = home.rglob("*.json")
    file.write_bytes(content)
    assert not allowed_code.is_allowed(str(tmp_path))
    allowed_code.remember(str(tmp_path))
    assert allowed_code.is_allowed(str(tmp_path))


def test_a_record_that_cannot_be_written_is_a_warning(tmp_path, home, capsys):
    home.write_text("a file in the way")
    allowed_code.remember(str(tmp_path))
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("Warning: later commands need --usr_dir=")
