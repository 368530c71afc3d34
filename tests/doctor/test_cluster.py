import socket
import subprocess

import pytest

from t2t_lite.doctor import cluster
from t2t_lite.doctor.finding import Asked


@pytest.fixture
def listening():
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


@pytest.fixture
def free():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    return f"127.0.0.1:{port}"


def found(tmp_path, worker, *addresses):
    asked = Asked(tmp_path, workers=",".join(addresses), worker=worker)
    return list(cluster.check_cluster(asked))


def test_workers_that_are_there_are_in_order(tmp_path, listening, free):
    other, this = found(tmp_path, 1, listening, free)
    assert other == (f"worker 0 ({listening})", True, other.text)
    assert "it listens" in other.text
    assert this.ok and "this one; port" in this.text
    this, other = found(tmp_path, 0, free, "127.0.0.2:1")
    assert other.ok and "its trainer has not started" in other.text


def test_a_port_that_is_taken_is_something_to_do(tmp_path, listening, free):
    this, _ = found(tmp_path, 0, listening, free)
    assert not this.ok and "is taken" in this.text


def test_a_worker_that_cannot_be_reached_is_something_to_do(
    tmp_path, free, monkeypatch
):
    def unreachable(address, timeout):
        raise TimeoutError("timed out")

    monkeypatch.setattr(socket, "create_connection", unreachable)
    _, other = found(tmp_path, 0, free, "127.0.0.2:1")
    assert not other.ok and "cannot be reached (timed out)" in other.text


def test_a_name_without_an_address_is_something_to_do(
    tmp_path, free, monkeypatch
):
    def unknown(host, port, type):
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    _, other = found(tmp_path, 0, free, "nowhere:1")
    assert not other.ok and "nowhere has no address" in other.text


def test_one_process_is_no_cluster(tmp_path, monkeypatch):
    monkeypatch.delenv("TF_CONFIG", raising=False)
    assert not list(cluster.check_cluster(Asked(tmp_path)))


@pytest.mark.parametrize(
    "out,told",
    [
        (
            '{"devices": "2 GPUs", "difference": 0.5}',
            "differs from that of one",
        ),
        (
            '{"devices": "2 GPUs", "difference": NaN}',
            "differs from that of one",
        ),
        ("no answer", "train on one device"),
    ],
)
def test_replicas_that_do_not_equal_one_are_something_to_do(
    monkeypatch, out, told
):
    done = subprocess.CompletedProcess([], 0, out, "")
    monkeypatch.setattr(subprocess, "run", lambda *a, **b: done)
    (finding,) = cluster.check_strategy(None)
    assert not finding.ok and told in finding.text


def test_a_self_test_that_fails_tells_its_last_line(monkeypatch):
    def fail(*words, **how):
        raise subprocess.CalledProcessError(1, "x", "", "trace\nNCCL is gone\n")

    monkeypatch.setattr(subprocess, "run", fail)
    (finding,) = cluster.check_strategy(None)
    assert not finding.ok and finding.text.startswith("NCCL is gone. Until")
