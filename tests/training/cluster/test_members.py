"""Who trains together, from the flags or from TF_CONFIG."""

import json

import pytest

from t2t_lite.errors import UsageError
from t2t_lite.training.cluster.members import (
    Members,
    find_members,
    split_address,
)


def tf_config(cluster, role="worker", index=0):
    task = {"type": role, "index": index}
    return {"TF_CONFIG": json.dumps({"cluster": cluster, "task": task})}


def test_without_flags_and_tf_config_there_is_one_process():
    assert find_members(None, None, {}) is None


def test_flags_name_all_workers_and_which_this_is():
    members = find_members("a:1,b:2 , c:3", 2, {})
    assert members == Members(("a:1", "b:2", "c:3"), 2)
    assert members.name(2) == "worker 2 (c:3)"


def test_flags_go_before_tf_config():
    told = tf_config({"worker": ["x:1", "y:2"]})
    assert find_members("a:1,b:2", 0, told).addresses == ("a:1", "b:2")


@pytest.mark.parametrize(
    "cluster, role, index, expected",
    [
        ({"worker": ["a:1", "b:2"]}, "worker", 1, 1),
        ({"chief": ["c:9"], "worker": ["a:1", "b:2"]}, "worker", 1, 2),
        ({"chief": ["c:9"], "worker": ["a:1", "b:2"]}, "chief", 0, 0),
        ({"worker": ["a:1", "b:2"], "master": ["m:9"]}, "worker", 0, 1),
        ({"worker": ["a:1", "b:2"]}, "worker", "1", 1),  # as SLURM has it
        ({"worker": ["a:1", "b:2"], "ps": []}, "worker", 1, 1),
    ],
)
def test_tf_configs_roles_are_one_list_the_chief_first(
    cluster, role, index, expected
):
    members = find_members(None, None, tf_config(cluster, role, index))
    assert members.index == expected
    assert (
        members.addresses[0]
        == (cluster.get("chief") or cluster.get("master") or cluster["worker"])[
            0
        ]
    )


@pytest.mark.parametrize(
    "environment",
    [
        {"TF_CONFIG": ""},
        {"TF_CONFIG": "{}"},
        tf_config({"worker": ["a:1"]}),  # as TFJob has it with one replica
    ],
)
def test_a_cluster_of_one_is_no_cluster(environment):
    assert find_members(None, None, environment) is None


@pytest.mark.parametrize(
    "workers, worker, environment, message",
    [
        ("a:1,b:2", None, {}, "--workers needs --worker=N"),
        (None, 1, {}, "name them all with --workers"),
        (
            "a:1,b:2",
            2,
            {},
            "2 worker.s., counted from 0; this one is said .* 2",
        ),
        ("a:1,b", 0, {}, "host:port, such as .*got 'b'"),
        ("a:1,b:99999", 0, {}, "got 'b:99999'"),
        ("a:1,,b:2", 0, {}, "got ''"),
        ("a:1,a:1", 0, {}, "names an address twice"),
        (None, None, {"TF_CONFIG": "{"}, "TF_CONFIG is not as TensorFlow"),
        (None, None, {"TF_CONFIG": "[]"}, "TF_CONFIG is not as TensorFlow"),
        (
            None,
            None,
            {"TF_CONFIG": '{"cluster": {"worker": ["a:1"]}}'},
            "TF_CONFIG is not as TensorFlow",
        ),
        (
            None,
            None,
            tf_config({"worker": ["a:1"], "ps": ["p:1"]}),
            "role 'ps', which is not used here",
        ),
        (
            None,
            None,
            tf_config({"worker": ["a:1", "b:1"]}, "chief"),
            "this is chief 0, and its cluster has worker",
        ),
        (
            None,
            None,
            tf_config({"worker": ["a:1", "b:1"]}, index=5),
            "TF_CONFIG has 2 worker",
        ),
    ],
)
def test_what_cannot_be_is_wrong_usage(workers, worker, environment, message):
    with pytest.raises(UsageError, match=message):
        find_members(workers, worker, environment)


def test_an_ipv6_host_stands_in_brackets():
    assert split_address("[::1]:2222") == ("::1", 2222)
    assert split_address("node-a:2222") == ("node-a", 2222)
