"""Resumable output files; `bin/test_decoder.py` tests the whole command."""

import contextlib
import os

import pytest

from t2t_lite.decoding.resumable_output import open_resumable
from t2t_lite.errors import T2TLiteError, UsageError

OPTIONS = {"beam": 4, "names": ["a", "b"]}


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def write_until_interrupted(path, *lines, options=OPTIONS):
    with (
        contextlib.suppress(KeyboardInterrupt),
        open_resumable(path, options) as (write, _),
    ):
        for line in lines:
            write(line)
        raise KeyboardInterrupt


def test_an_interrupt_before_the_first_line_leaves_no_file(tmp_path):
    write_until_interrupted(tmp_path / "out")
    assert names(tmp_path) == []


def test_a_partial_file_with_damaged_options_is_refused(tmp_path):
    path = tmp_path / "out"
    write_until_interrupted(path, "eins")
    (tmp_path / "out.partial.json").write_text("[")
    with pytest.raises(UsageError, match="beam"), open_resumable(path, OPTIONS):
        pass


def test_partial_output_without_options_is_not_resumed(tmp_path):
    path = tmp_path / "out"
    write_until_interrupted(path, "eins", options=None)
    assert names(tmp_path) == ["out.partial"]
    with open_resumable(path, OPTIONS) as (_, kept):
        assert kept == 0


def test_two_processes_cannot_write_the_same_file(tmp_path):
    path = tmp_path / "out"
    with (
        open_resumable(path, OPTIONS),
        pytest.raises(T2TLiteError, match="Another process"),
        open_resumable(path, OPTIONS),
    ):
        pass
    assert names(tmp_path) == ["out"]


def test_temporary_files_of_a_killed_process_are_removed(tmp_path):
    (tmp_path / f".out.partial.json.{os.getpid() + 1}.tmp").write_text("{")
    with open_resumable(tmp_path / "out", OPTIONS):
        pass
    assert names(tmp_path) == ["out"]
