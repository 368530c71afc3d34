"""A full disk: training goes on, warns, and fails after so many tries."""

import contextlib
import json
import os
import subprocess

import pytest
import tensorflow as tf

from support.tiny_run import TinyRun
from t2t_lite.errors import T2TLiteError
from t2t_lite.training import trainer
from t2t_lite.training.checkpoints import checkpoint
from t2t_lite.training.options import TrainingOptions
from t2t_lite.training.telemetry import MetricsFile


def train(run, **options):
    options = TrainingOptions(**{"log_steps": 1, "save_steps": 1, **options})
    return trainer.train(run, options, evaluate_text=lambda: {})


def saved(run):
    found = checkpoint.list_checkpoints(run.checkpoints_dir)
    return [each.step for each in found]


@pytest.fixture
def fail_saves(monkeypatch):
    """Lets so many saves fail, as on a full disk."""
    left = [0]
    save = tf.raw_ops.SaveV2

    def save_or_fail(**arguments):
        if left[0]:
            left[0] -= 1
            raise tf.errors.ResourceExhaustedError(
                None, None, "No space left on device"
            )
        return save(**arguments)

    monkeypatch.setattr(tf.raw_ops, "SaveV2", save_or_fail)

    def fail(count):
        left[0] = count

    return fail


def test_training_goes_on_and_saves_when_it_can_again(
    tmp_path, fail_saves, capsys
):
    run = TinyRun(tmp_path)
    train(run, train_steps=2)
    fail_saves(3)
    train(run, train_steps=6)
    assert saved(run) == [1, 2, 6]
    warnings = [
        line
        for line in capsys.readouterr().err.splitlines()
        if line.startswith("WARNING")
    ]
    for number, line in enumerate(warnings):
        assert f"step-0000000{number + 3} cannot be saved: No space" in line
        assert line.endswith(f"tries left: {3 - number}.")
    assert len(warnings) == 3


@pytest.mark.parametrize("retries", [0, 2])
def test_training_fails_after_so_many_tries_in_a_row(
    tmp_path, fail_saves, retries
):
    run = TinyRun(tmp_path)
    train(run, train_steps=2)
    fail_saves(1000)
    with pytest.raises(T2TLiteError) as caught:
        train(run, train_steps=100, save_retries=retries)
    assert f"step-0000000{3 + retries} cannot be saved" in str(caught.value)
    assert "No space left on device" in str(caught.value)
    assert "What was saved before is intact" in str(caught.value)
    assert caught.value.exit_code == 1
    assert saved(run) == [1, 2]


def test_the_last_save_must_work(tmp_path, fail_saves):
    run = TinyRun(tmp_path)
    fail_saves(1)
    with pytest.raises(T2TLiteError, match="step-00000002 cannot be saved"):
        train(run, train_steps=2, save_steps=1000, save_retries=9)


def test_the_best_is_marked_later_where_it_could_not_be_saved(
    tmp_path, fail_saves
):
    run = TinyRun(tmp_path)
    fail_saves(1)
    train(run, train_steps=4, save_steps=1000, eval_steps_every=2)
    assert saved(run) == [4]


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 400 kB; only root may make one."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=400k", "tmpfs", folder]
    if subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("a file system can be mounted by root only")
    yield folder
    subprocess.run(["umount", folder], check=True)


def fill(folder):
    """Leaves no byte free."""
    with open(folder / "filler", "ab", buffering=0) as file:
        for size in (4096, 1):
            with contextlib.suppress(OSError):
                while True:
                    file.write(bytes(size))


def test_a_disk_that_is_really_full_loses_nothing(small_disk, capfd):
    run = TinyRun(small_disk / "run")

    def in_update(epoch, number):
        if number == 7:  # within update 3
            fill(small_disk)
        if number == 13:  # within update 5
            os.remove(small_disk / "filler")

    run.data.before_batch = in_update
    train(run, train_steps=8)
    assert saved(run) == [1, 2, 5, 6, 7, 8]
    lines = (run.output_dir / "metrics.jsonl").read_text().splitlines()
    steps = [json.loads(line)["step"] for line in lines]
    assert steps == [1, 2, 3, 4, 5, 6, 7, 8, 8]
    told = capfd.readouterr().err
    assert "step-00000003 cannot be saved: No space left on device" in told
    assert "Traceback" not in told


def test_metrics_wait_until_there_is_space(small_disk, capfd):
    path = small_disk / "metrics.jsonl"
    metrics = MetricsFile(path, step=0)
    fill(small_disk)
    for step in range(1, 1000):
        metrics.write({"step": step, "loss": 1.0})
    assert path.stat().st_size < 999 * len('{"step": 1, "loss": 1.0}')
    os.remove(small_disk / "filler")
    metrics.write({"step": 1000, "loss": 1.0})
    metrics.close()
    steps = [json.loads(line)["step"] for line in path.read_text().splitlines()]
    assert steps == list(range(1, 1001))
    told = capfd.readouterr().err
    assert told.count("cannot be written: No space left on device") == 1


def test_metrics_that_found_no_space_to_the_end_are_counted(small_disk, capfd):
    metrics = MetricsFile(small_disk / "metrics.jsonl", step=0)
    fill(small_disk)
    for step in range(1, 1000):
        metrics.write({"step": step, "loss": 1.0})
    metrics.close()
    assert "metrics.jsonl lacks its last" in capfd.readouterr().err


def test_a_disk_that_stays_full_leaves_sound_checkpoints(small_disk):
    run = TinyRun(small_disk / "run")
    run.data.before_batch = lambda epoch, number: (
        fill(small_disk) if number == 7 else None
    )
    with pytest.raises(T2TLiteError, match="step-00000006 cannot be saved"):
        train(run, train_steps=100)
    assert saved(run) == [1, 2]
    os.remove(small_disk / "filler")
    run.data.before_batch = lambda epoch, number: None
    train(run, train_steps=4)
    assert saved(run) == [1, 2, 3, 4]
