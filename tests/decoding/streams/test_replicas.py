"""How many searches share a processor, and what each has of it."""

import pytest
import tensorflow as tf

from t2t_lite.decoding.streams import replicas


def share(monkeypatch, count, cores, gpus=(), units_of_line=None):
    """What `share_processor` returns, and for how many it shares the cores."""
    shared = []
    monkeypatch.setattr(replicas, "usable_cores", lambda: cores)
    monkeypatch.setattr(replicas, "share_cores", shared.append)
    monkeypatch.setattr(
        tf.config, "list_physical_devices", lambda kind: list(gpus)
    )
    return replicas.share_processor(count, units_of_line), shared


@pytest.mark.parametrize(
    ("count", "cores", "searches"),
    [(None, 1, 1), (None, 2, 2), (None, 4, 4), (None, 64, 4), (3, 2, 3)],
)
def test_a_search_a_core_but_no_more_than_memory_bears(
    monkeypatch, count, cores, searches
):
    found = share(monkeypatch, count, cores)
    assert found == (searches, [searches])


@pytest.mark.parametrize(("units", "shares"), [(256, 8), (512, 1)])
def test_a_small_model_has_one_core_for_a_line(monkeypatch, units, shares):
    assert share(monkeypatch, 1, 8, units_of_line=units) == (1, [shares])


@pytest.mark.parametrize("count", [None, 1, 2])
def test_with_gpus_the_processor_is_left_alone(monkeypatch, count):
    assert share(monkeypatch, count, 8, gpus=["GPU:0"]) == (count, [])


def test_threads_that_are_there_already_stay(monkeypatch):
    def too_late(count):
        raise RuntimeError("cannot be modified after initialization")

    monkeypatch.setattr(replicas, "share_cores", too_late)
    assert replicas.share_processor(2) == 2
