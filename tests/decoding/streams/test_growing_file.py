"""Files that grow: complete or partial, gone on with or refused."""

import json
import os

import pytest

from t2t_lite.decoding.streams.growing_file import grow
from t2t_lite.errors import T2TLiteError, UsageError

ASKED = {"beam": 4, "names": ["a", "b"]}


def stopped(path, *lines, asked=ASKED):
    """Writes lines and is stopped."""
    with pytest.raises(KeyboardInterrupt), grow(path, asked) as file:
        for line in lines:
            file.write(line)
        raise KeyboardInterrupt


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_nothing_is_left_beside_a_complete_file(tmp_path):
    path = tmp_path / "out"
    path.write_text("of another day\n")
    with grow(path, ASKED) as file:
        file.write("eins")
        assert names(tmp_path) == ["out", "out.partial", "out.partial.json"]
        assert (tmp_path / "out.partial").read_text() == "eins\n"
        assert path.read_text() == "of another day\n"
        file.write("zwei")
    assert path.read_text() == "eins\nzwei\n"
    assert names(tmp_path) == ["out"]


def test_the_same_goes_on(tmp_path):
    path = tmp_path / "out"
    stopped(path, "eins", "zwei")
    with open(tmp_path / "out.partial", "ab") as file:
        file.write(b"dr")
    with grow(path, ASKED) as file:
        assert file.kept == 2
        assert list(file.kept_lines()) == [b"eins\n", b"zwei\n"]
        file.write("drei")
    assert path.read_text() == "eins\nzwei\ndrei\n"


def test_a_stop_before_the_first_line_leaves_nothing(tmp_path):
    stopped(tmp_path / "out")
    assert names(tmp_path) == []


def test_something_else_is_refused_and_may_overwrite(tmp_path):
    path = tmp_path / "out"
    stopped(path, "eins")
    with (
        pytest.raises(UsageError, match="first 1 lines .* beam was 4 and is 5"),
        grow(path, {**ASKED, "beam": 5}),
    ):
        pass
    with pytest.raises(UsageError, match="and is None"), grow(path, None):
        pass
    (tmp_path / "out.partial.json").write_text("[")
    with pytest.raises(UsageError, match="was None and is"), grow(path, ASKED):
        pass
    with grow(path, {**ASKED, "beam": 5}, overwrite=True) as file:
        assert file.kept == 0
        assert json.loads((tmp_path / "out.partial.json").read_text())
        file.write("zwei")
    assert path.read_text() == "zwei\n"


def test_lines_that_nobody_can_go_on_with_start_anew(tmp_path):
    path = tmp_path / "out"
    stopped(path, "eins", asked=None)
    assert names(tmp_path) == ["out.partial"]
    with grow(path, ASKED) as file:
        assert file.kept == 0


def test_two_processes_do_not_write_one_file(tmp_path):
    path = tmp_path / "out"
    with (
        grow(path, ASKED),
        pytest.raises(T2TLiteError, match="Another process is writing"),
        grow(path, ASKED),
    ):
        pass
    assert path.exists()


def test_leftovers_of_a_kill_are_swept(tmp_path):
    (tmp_path / f".out.partial.json.{os.getpid() + 1}.tmp").write_text("{")
    with grow(tmp_path / "out", ASKED):
        pass
    assert names(tmp_path) == ["out"]
