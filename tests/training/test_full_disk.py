"""A full disk: training continues, warns, and fails after so many retries."""

import contextlib
import json
import os
import subprocess

import pytest
import tensorflow as tf

from support.tiny_run import TinyRun
from support.tiny_training import steps, train
from t2t_lite.errors import T2TLiteError


@pytest.fixture
def fail_saves(monkeypatch):
    """Lets so many saves fail, as on a full disk."""
    left = [0]
    write = tf.train.Checkpoint.write

    def write_or_fail(self, *args):
        if left[0]:
            left[0] -= 1
            raise tf.errors.ResourceExhaustedError(
                None, None, "No space left on device"
            )
        return write(self, *args)

    monkeypatch.setattr(tf.train.Checkpoint, "write", write_or_fail)

    def fail(count):
        left[0] = count

    return fail


@pytest.mark.parametrize("retries", [0, 2])
def test_training_fails_after_so_many_retries_in_a_row(
    tmp_path, fail_saves, retries
):
    run = TinyRun(tmp_path)
    train(run, train_steps=2, save_steps=1)
    fail_saves(1000)
    failed = f"step-0000000{3 + retries} cannot be saved: No space left"
    with pytest.raises(T2TLiteError, match=failed) as caught:
        train(run, train_steps=100, save_steps=1, save_retries=retries)
    assert caught.value.exit_code == 1
    assert steps(run) == [1, 2]


def test_the_last_save_must_work(tmp_path, fail_saves):
    run = TinyRun(tmp_path)
    fail_saves(1)
    with pytest.raises(T2TLiteError, match="step-00000002"):
        train(run, train_steps=2, save_steps=1000, save_retries=9)


def test_the_best_is_marked_later_where_it_could_not_be_saved(
    tmp_path, fail_saves
):
    run = TinyRun(tmp_path)
    fail_saves(1)
    train(run, train_steps=4, save_steps=1000, eval_steps_every=2)
    assert steps(run) == [4]


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
    train(run, train_steps=8, save_steps=1, log_steps=1)
    assert steps(run) == [1, 2, 5, 6, 7, 8]
    lines = (run.output_dir / "metrics.jsonl").read_text().splitlines()
    recorded = [json.loads(line)["step"] for line in lines]
    assert recorded == [1, 2, 3, 4, 5, 6, 7, 8, 8]
    err = capfd.readouterr().err
    assert "step-00000003 cannot be saved: No space left on device" in err
    assert "Traceback" not in err
