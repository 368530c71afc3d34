"""The trainer as a separate process: replicas and a usr_dir."""

import json

import pytest

from support.places import ROOT

pytestmark = pytest.mark.slow


def test_trainer_runs_with_two_replicas(tiny_flags, tmp_path, run_process):
    done = run_process(
        "trainer", *tiny_flags, f"--output_dir={tmp_path}", "--replicas=2"
    )
    assert done.returncode == 0, done.stderr
    assert "step: 4\n" in done.stdout
    assert "cudart" not in done.stderr


def test_roman_numerals_train_from_their_usr_dir(tmp_path, run_process):
    run = [
        f"--output_dir={tmp_path / 'run'}",
        f"--usr_dir={ROOT / 'examples' / 'roman_numerals'}",
    ]
    flags = [
        "--problem=roman_numerals",
        "--hparams=transformer_roman",
        "--hparams_override=train_steps=8",
        f"--data_dir={tmp_path / 'data'}",
    ]
    done = run_process("trainer", *run, *flags)
    assert done.returncode == 0, done.stderr
    assert "step: 8\n" in done.stdout
    assert f"t2t-lite-evaluator {' '.join(run)}" in done.stderr
    done = run_process("evaluator", *run, "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["sentences"] == 200
