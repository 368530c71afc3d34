"""Which devices train, and how they share the cores."""

import pytest
import tensorflow as tf

from support.tiny_run import tiny_hparams
from t2t_lite.training.cluster import devices


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


def test_threads_that_are_there_already_stay(monkeypatch):
    def too_late(count):
        raise RuntimeError(count)

    monkeypatch.setattr(devices, "share_cores", too_late)
    monkeypatch.setattr(devices, "usable_cores", lambda: 2)
    strategy = devices.choose_strategy(1, tiny_hparams())
    assert strategy.num_replicas_in_sync == 1
