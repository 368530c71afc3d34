"""The devices of a process, and the memory that is left."""

import pytest
import tensorflow as tf

from support.tiny_run import tiny_hparams
from t2t_lite.errors import T2TLiteError
from t2t_lite.training import devices

# Before anything runs on TensorFlow's devices.
devices.choose_strategy(replicas=3)


@pytest.mark.parametrize(
    ("cores", "gpus", "replicas", "hidden_size", "halves"),
    [
        (2, [], None, 256, True),
        (8, [], 1, 64, True),
        (2, [], None, 512, False),
        (1, [], None, 256, False),
        (8, ["a GPU"], 1, 256, False),
    ],
)
def test_halves_of_a_small_model_share_a_processor_of_several_cores(
    monkeypatch, cores, gpus, replicas, hidden_size, halves
):
    shared = []
    monkeypatch.setattr(devices, "share_cores", shared.append)
    monkeypatch.setattr(devices, "usable_cores", lambda: cores)
    monkeypatch.setattr(
        tf.config, "list_physical_devices", lambda kind: {"GPU": gpus}[kind]
    )
    hparams = tiny_hparams(hidden_size=hidden_size)
    strategy = devices.choose_strategy(replicas, hparams)
    assert devices.computes_halves(strategy, hparams) is halves
    assert shared == [2] * halves


def test_replicas_need_a_process_that_did_not_start_with_fewer():
    with pytest.raises(T2TLiteError, match="replicas=8 .* fresh process"):
        devices.choose_strategy(replicas=8)


def test_a_container_limits_the_free_memory(tmp_path):
    machine = devices.free_bytes(tmp_path)  # without a control group
    assert machine > 2**20
    (tmp_path / "memory.current").write_text("1000\n")
    (tmp_path / "memory.stat").write_text("anon 1\ninactive_file 50\n")
    (tmp_path / "memory.max").write_text("3000\n")
    assert devices.free_bytes(tmp_path) == 2050
    (tmp_path / "memory.max").write_text("max\n")
    assert devices.free_bytes(tmp_path) > 2**20
