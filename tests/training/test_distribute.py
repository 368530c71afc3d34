"""Devices and worker processes of distributed training."""

import json

import pytest

from t2t_lite.errors import T2TLiteError, UsageError
from t2t_lite.training import distribute
from t2t_lite.training.distribute import choose_strategy


@pytest.fixture
def find(monkeypatch):
    """Return a function that sets TF_CONFIG and finds the workers."""

    def find_workers(cluster=None, kind="worker", index=0, text=None):
        task = {"type": kind, "index": index}
        config = json.dumps({"cluster": cluster, "task": task})
        monkeypatch.setenv("TF_CONFIG", config if text is None else text)
        return distribute.find_workers()

    return find_workers


def test_chief_in_tf_config_comes_before_the_workers(find):
    cluster = {"worker": ["b:1", "[::1]:2"], "chief": ["a:1"]}
    addresses = ["a:1", "b:1", "[::1]:2"]
    assert find(cluster, "chief", 0) == (addresses, 0)
    assert find(cluster, "worker", 1) == (addresses, 2)


@pytest.mark.parametrize("text", ["", "{}", '{"cluster": {}}'])
def test_tf_config_without_a_cluster_means_one_process(find, text):
    assert find(text=text) == ([], 0)
    assert find({"worker": ["a:1"]}) == ([], 0)


@pytest.mark.parametrize(
    "config",
    [
        {"text": "{"},
        {"cluster": {"worker": ["a:1", "b:1"]}, "index": 2},
        {"cluster": {"worker": ["a:1", "b:1"]}, "kind": "chief"},
        {"cluster": {"worker": ["a:1", "b"]}},
        {"cluster": {"worker": ["a:1", "a:1"]}},
        {"cluster": {"worker": ["a:1"], "ps": ["b:1"]}, "kind": "ps"},
        {"cluster": {"worker": ["a:1", "b:1"]}, "index": -1},
        {"cluster": {"chief": ["a:1"]}, "kind": "evaluator"},
        {"cluster": {"chief": ["a:1"], "worker": ["b:1"]}, "kind": "evaluator"},
        *({"text": x} for x in ("[]", "null", "7", '{"cluster": []}', "[")),
        *({"text": f'{{"task": {x}}}'} for x in ("null", "[]", "1")),
    ],
)
def test_invalid_tf_config_is_wrong_usage(find, config):
    with pytest.raises(UsageError, match="unset TF_CONFIG"):
        find(**config)


def test_worker_index_out_of_range_is_refused():
    with pytest.raises(UsageError, match="a:1"):
        distribute.find_workers("a:1,b:1", 2)


def test_more_replicas_need_a_new_process():
    with pytest.raises(T2TLiteError, match="replicas=8.* process"):
        choose_strategy(replicas=8)
