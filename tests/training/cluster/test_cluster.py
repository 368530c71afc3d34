"""What the processes of a cluster say to each other, in threads of one."""

import contextlib
import json
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from t2t_lite.errors import Interrupted, T2TLiteError
from t2t_lite.training.cluster import agreement, roll_call
from t2t_lite.training.cluster import cluster as cluster_module
from t2t_lite.training.cluster import peer as peer_module
from t2t_lite.training.cluster.agreement import require_equal, require_shared
from t2t_lite.training.cluster.cluster import ALONE, Workers
from t2t_lite.training.cluster.local_workers import free_ports
from t2t_lite.training.cluster.members import Members
from t2t_lite.training.cluster.peer import Peer
from t2t_lite.training.cluster.roll_call import LostWorkerError


@pytest.fixture
def addresses():
    return tuple(f"127.0.0.1:{port}" for port in free_ports(3))


def at_once(*works):
    """What each of them returns or raises."""
    with ThreadPoolExecutor(len(works)) as pool:
        futures = [pool.submit(work) for work in works]
        return [future.exception() or future.result() for future in futures]


def on_all(addresses, work, timeout=20):
    """What `work(cluster)` returns or raises on each worker."""

    def be(index):
        with Workers(Members(addresses, index), timeout) as cluster:
            return work(cluster)

    return at_once(*(lambda i=i: be(i) for i in range(len(addresses))))


def test_an_exchange_gives_everybody_all_values_in_order(addresses):
    def talk(cluster):
        first = cluster.exchange("who", cluster.index)
        second = cluster.exchange("text", {"ü": "x" * 100_000 * cluster.index})
        return first, [len(each["ü"]) for each in second], cluster.is_chief

    answers = on_all(addresses, talk)
    assert answers == [
        ([0, 1, 2], [0, 100_000, 200_000], index == 0) for index in range(3)
    ]


def test_alone_an_exchange_is_with_oneself():
    assert ALONE.exchange("topic", 5) == [5]
    assert ALONE.is_chief


def test_who_has_not_come_is_named_to_all(addresses):
    def be(index):
        with Workers(Members(addresses, index), timeout=1.5):
            pass

    answers = at_once(lambda: be(0), lambda: be(1))
    for answer in answers:
        assert isinstance(answer, T2TLiteError)
        assert f"worker 2 ({addresses[2]}) missing" in str(answer)


def test_who_has_come_hears_that_the_chief_was_stopped(addresses, monkeypatch):
    has_come = threading.Event()

    class OfTheChief(Peer):
        def __init__(self, connection):
            super().__init__(connection)
            has_come.set()

    monkeypatch.setattr(roll_call, "Peer", OfTheChief)

    def be_stopped(listen=socket.socket.accept):
        def accept(server):
            if has_come.is_set():
                raise KeyboardInterrupt("SIGTERM")
            return listen(server)

        monkeypatch.setattr(socket.socket, "accept", accept)
        with pytest.raises(KeyboardInterrupt):
            Workers(Members(addresses, 0), 20).__enter__()

    def come():
        Workers(Members(addresses, 1), 20).__enter__()

    _, told = at_once(be_stopped, come)
    assert isinstance(told, Interrupted)
    assert f"worker 0 ({addresses[0]}) was stopped by SIGTERM" in str(told)


def test_who_was_there_and_left_may_come_again(addresses):
    def come_twice():
        port = int(addresses[0].rpartition(":")[2])
        greeting = {"hello": "t2t-lite", "worker": 1, "addresses": addresses}
        while True:  # until the chief listens
            with contextlib.suppress(ConnectionRefusedError):
                with socket.create_connection(("127.0.0.1", port)) as caller:
                    caller.sendall(json.dumps(greeting).encode() + b"\n")
                return be(1)
            time.sleep(0.01)

    def be(index):
        with Workers(Members(addresses, index), 20) as cluster:
            return cluster.exchange("here", index)

    def come_late():
        time.sleep(1)
        return be(2)

    answers = at_once(lambda: be(0), come_twice, come_late)
    assert answers == [[0, 1, 2]] * 3


def test_who_is_stopped_before_training_begins_stops_all_in_order(addresses):
    def talk(cluster):
        if cluster.index == 1:
            raise KeyboardInterrupt("SIGTERM")
        return cluster.exchange("command", None)

    chief, stopped, other = on_all(addresses, talk)
    assert isinstance(stopped, KeyboardInterrupt)
    for answer in (chief, other):
        assert isinstance(answer, Interrupted)  # its exit code is 75
        assert str(answer) == (
            f"worker 1 ({addresses[1]}) was stopped by SIGTERM before training "
            "began. Run the same command on all workers to go on."
        )


def test_who_leaves_at_once_while_all_train_is_lost(addresses):
    def talk(cluster):
        cluster.share_stop(lambda: None, lambda why: None)
        if cluster.index == 1:
            raise KeyboardInterrupt
        return cluster.exchange("decision 7", None)

    chief, _, other = on_all(addresses, talk)
    for answer in (chief, other):
        assert isinstance(answer, LostWorkerError)
        assert "was stopped at once by Ctrl-C. What is saved" in str(answer)


def test_who_leaves_as_all_agreed_is_not_lost(addresses):
    left = threading.Event()
    lost = []

    def talk(cluster):
        cluster.when_lost = lost.append
        cluster.exchange("decision 7", None)
        if cluster.index == 1:
            left.set()
        elif left.wait(20):
            time.sleep(0.5)  # until it has said goodbye
        raise Interrupted("Stopped by SIGTERM: update 7 is saved.")

    for answer in on_all(addresses, talk):
        assert isinstance(answer, Interrupted)
    assert lost == []


def test_a_chief_that_is_not_there_is_named(addresses):
    with pytest.raises(T2TLiteError, match="the chief, cannot be reached"):
        Workers(Members(addresses, 1), timeout=0.5).__enter__()


def test_a_taken_port_is_told_of(addresses):
    port = int(addresses[0].rpartition(":")[2])
    with (
        socket.create_server(("", port)),
        pytest.raises(T2TLiteError, match=f"cannot listen on port {port}"),
    ):
        Workers(Members(addresses, 0), timeout=5).__enter__()


def test_who_says_to_be_a_worker_that_is_there_is_refused(addresses):
    pair = addresses[:2]
    told = []

    def impostor():
        chosen = Members((*pair, addresses[2]), 1)
        try:
            with Workers(chosen, 10):
                pass
        except T2TLiteError as error:
            told.append(str(error))

    def be(index):
        with Workers(Members(pair, index), 20) as cluster:
            return cluster.exchange("here", index)

    chief = threading.Thread(target=be, args=(0,))
    chief.start()
    impostor()
    assert be(1) == [0, 1]
    chief.join()
    assert f"list of workers is another one: {','.join(pair)}" in told[0]


@pytest.mark.parametrize(
    "greeting", [b"", b"GET / HTTP/1.1\r\n\r\n", b"[]\n", b"{}\n", b"\xff\n"]
)
def test_who_is_no_worker_changes_nothing(addresses, greeting):
    pair = addresses[:2]

    def be(index):
        with Workers(Members(pair, index), 20) as cluster:
            return cluster.exchange("here", index)

    def stranger():
        port = int(pair[0].rpartition(":")[2])
        while True:  # until the chief listens
            with contextlib.suppress(ConnectionRefusedError):
                with socket.create_connection(("127.0.0.1", port)) as caller:
                    caller.sendall(greeting)
                return be(1)
            time.sleep(0.01)

    assert at_once(lambda: be(0), stranger) == [[0, 1], [0, 1]]


def test_an_error_of_one_stops_all_and_is_told_in_its_words(addresses):
    def talk(cluster):
        if cluster.index == 1:
            raise T2TLiteError("The disk is full.")
        return cluster.exchange("update 1", None)

    chief, failed, other = on_all(addresses, talk)
    assert str(failed) == "The disk is full."
    for answer in (chief, other):
        assert isinstance(answer, LostWorkerError)
        assert str(answer).startswith(
            f"worker 1 ({addresses[1]}) has stopped: The disk is full. "
        )


@pytest.mark.parametrize("gone", [0, 2])
def test_a_worker_that_dies_is_named_to_all(addresses, gone):
    def talk(cluster):
        cluster.exchange("start", None)
        if cluster.index == gone:
            cluster._closed.set()
            for peer in cluster._peers.values():  # as the system does then
                peer.close()
            return "dead"
        return cluster.exchange("update 1", None)

    answers = on_all(addresses, talk)
    assert answers.pop(gone) == "dead"
    for answer in answers:
        assert isinstance(answer, LostWorkerError)
        assert f"worker {gone} ({addresses[gone]}) is gone" in str(answer)


@pytest.mark.parametrize("silent", [0, 2])
def test_a_worker_that_hangs_is_named_to_all(addresses, silent, monkeypatch):
    monkeypatch.setattr(cluster_module, "SILENCE_SECONDS", 1.5)
    all_lost = threading.Barrier(3)
    told = []

    def talk(cluster):
        cluster.when_lost = told.append
        cluster.exchange("start", None)
        if cluster.index == silent:
            for peer in cluster._peers.values():
                peer.send = lambda message: None
            all_lost.wait(20)
            return "silent"
        try:
            return cluster.exchange("update 1", None)
        finally:
            all_lost.wait(20)

    answers = on_all(addresses, talk)
    answers.pop(silent)
    for answer in answers:
        assert isinstance(answer, LostWorkerError)
        assert f"worker {silent} (" in str(answer)
        assert "has not been heard of" in str(answer)
        assert str(answer) in told


def test_who_leaves_while_others_wait_for_it_is_named(addresses):
    def talk(cluster):
        cluster.exchange("start", None)
        return cluster.index == 1 or cluster.exchange("update 1", None)

    chief, left, _ = on_all(addresses, talk)
    assert left is True
    assert f"worker 1 ({addresses[1]}) has left" in str(chief)


def test_who_takes_no_message_for_long_is_gone(monkeypatch):
    monkeypatch.setattr(peer_module, "SEND_SECONDS", 1)
    with socket.create_server(("127.0.0.1", 0)) as server:
        there = socket.create_connection(server.getsockname())
        here, _ = server.accept()
    peer = peer_module.Peer(here)
    with there:  # which nobody reads from
        peer.send({"topic": "texts", "value": "x" * 20_000_000})
        assert list(peer.messages()) == []


def test_a_signal_to_one_reaches_all(addresses):
    asked = [None, None, "SIGTERM"]
    reached = [threading.Event() for _ in asked]

    def talk(cluster):
        def ask(why):
            asked[cluster.index] = asked[cluster.index] or why
            reached[cluster.index].set()

        cluster.share_stop(lambda: asked[cluster.index], ask)
        cluster.exchange("start", None)
        came = cluster.index == 2 or reached[cluster.index].wait(20)
        cluster.exchange("end", None)
        return came

    assert on_all(addresses, talk) == [True] * 3
    assert asked == ["SIGTERM"] * 3


def test_workers_at_different_places_are_out_of_step(addresses):
    def talk(cluster):
        return cluster.exchange("ab"[cluster.index], None)

    chief, _ = on_all(addresses[:2], talk)
    assert "is at 'b' where this one is at 'a'" in str(chief)


class OfTensorFlow(Exception):
    def __init__(self, code):
        super().__init__("Connection reset by peer")
        self.error_code, self.message = code, "Connection reset by peer"


def test_tensorflows_error_about_a_loss_becomes_one_with_a_name(addresses):
    def talk(cluster):
        cluster.exchange("start", None)
        if cluster.index == 1:
            raise T2TLiteError("Out of luck.")
        with cluster.naming_losses():
            raise OfTensorFlow(14)

    chief, *_ = on_all(addresses[:2], talk)
    assert isinstance(chief, LostWorkerError)
    assert "worker 1 (" in str(chief) and "Out of luck" in str(chief)


def test_other_errors_of_tensorflow_stay_what_they_are(addresses):
    out_of_memory = OfTensorFlow(8)

    def talk(cluster):
        with cluster.naming_losses():
            raise out_of_memory

    assert on_all(addresses[:2], talk) == [out_of_memory] * 2


def test_a_difference_is_named_with_both_values(addresses):
    def compare(cluster):
        facts = {"tensorflow": f"2.2{cluster.index}", "seed": 1}
        require_equal(cluster, "command", facts, "Mend it.")

    answers = on_all(addresses[:2], compare)
    for answer in answers:
        assert str(answer) == (
            f"worker 1 ({addresses[1]}) differs: tensorflow is '2.21' there "
            "and '2.20' on the chief. Mend it."
        )


def test_equal_workers_pass(addresses):
    def compare(cluster):
        require_equal(cluster, "command", {"seed": 1}, "")

    assert on_all(addresses, compare) == [None] * 3


def test_a_folder_that_is_not_shared_is_refused(
    addresses, tmp_path, monkeypatch
):

    monkeypatch.setattr(agreement, "_SECONDS_TO_SEE", 0.5)

    def look(cluster):
        other = tmp_path / "other" if cluster.index == 2 else tmp_path / "run"
        require_shared(cluster, other)

    for answer in on_all(addresses, look):
        assert f"worker 2 ({addresses[2]}) did not see" in str(answer)
    on_shared = on_all(addresses, lambda c: require_shared(c, tmp_path / "run"))
    assert on_shared == [None] * 3
    assert list((tmp_path / "run").iterdir()) == []


def test_what_is_exchanged_is_json(addresses):
    values = [None, [1, 2.5], {"a": "\n"}]

    def talk(cluster):
        return cluster.exchange("x", values[cluster.index])

    for answer in on_all(addresses, talk):
        assert json.dumps(answer) == json.dumps(values)
