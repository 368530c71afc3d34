"""A full disk ends training; saved checkpoints stay intact."""

import contextlib
import os
import subprocess

import pytest

from support.tiny_run import TinyRun
from support.tiny_training import metrics, steps, train
from t2t_lite.errors import T2TLiteError


@pytest.fixture
def small_disk(tmp_path):
    """Mount a file system of 400 kB, which requires root."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=400k", "tmpfs", folder]
    if subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("a file system can be mounted by root only")
    yield folder
    subprocess.run(["umount", folder], check=True)


def fill(folder):
    """Fill the file system to the last byte."""
    with open(folder / "filler", "ab", buffering=0) as file:
        for size in (4096, 1):
            with contextlib.suppress(OSError):
                while True:
                    file.write(bytes(size))


def test_full_disk_ends_training_and_keeps_checkpoints(small_disk):
    run = TinyRun(small_disk / "run")

    def fill_in_update(epoch, number):
        if number == 7:  # within update 3
            fill(small_disk)

    run.data.before_batch = fill_in_update
    with pytest.raises(T2TLiteError, match="step-00000003 cannot be saved: No"):
        train(run, train_steps=8, save_steps=1, log_steps=1)
    assert steps(run) == [1, 2]
    os.remove(small_disk / "filler")
    run.data.before_batch = lambda epoch, number: None
    train(run, train_steps=4, save_steps=1, log_steps=1)
    assert steps(run) == [1, 2, 3, 4]
    assert [record["step"] for record in metrics(run)][-3:] == [3, 4, 4]
