"""The client: addresses, retries and malformed responses."""

import contextlib
import json
import socket
import threading

import pytest

from t2t_lite.errors import UsageError
from t2t_lite.serving.client import Client, Failure, connect

ANSWER = {"outputs": {"outputs": ["A"]}}


@pytest.mark.parametrize(
    "url",
    ["", "localhost:8500", "localhost", "ftp://a", "http://", "http://a:x"]
    + ["http://a:0", "http://a:70000", "grpc://a/path", "http://me:pw@a"]
    + ["http://a?b", "http://a#b", "http://[::1", "http://a..b", "http://a/ü"]
    + ["http://a/b c", f"http://{'a' * 70}"],
)
def test_a_malformed_address_is_refused(url):
    with pytest.raises(UsageError, match="`server"):
        connect(url, "m")


@contextlib.contextmanager
def server_of(*answers):
    """Run a server that closes each connection after one response.

    Args:
      answers: bytes of each response; None sends nothing.
    """
    with socket.create_server(("127.0.0.1", 0)) as listening:
        silent = []

        def serve():
            for answer in answers:
                connection, _ = listening.accept()
                connection.recv(1 << 16)
                if answer is None:
                    silent.append(connection)
                else:
                    connection.sendall(answer)
                    connection.close()

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        url = f"http://127.0.0.1:{listening.getsockname()[1]}/below/"
        yield connect(url, "a model")
        thread.join(10)
        for connection in silent:
            connection.close()


def http_answer(status, content):
    if not isinstance(content, bytes):
        content = json.dumps(content).encode()
    head = f"HTTP/1.1 {status} X\r\nContent-Length: {len(content)}\r\n\r\n"
    return head.encode() + content


def test_client_reconnects_after_the_server_closes_the_connection():
    good = http_answer(200, ANSWER)
    with server_of(good, good) as predict:
        client = Client(predict)
        for _ in range(2):
            assert outputs(client.translate(["a"])) == ["A"]


def test_timeout_is_late_but_not_busy():
    with server_of(None) as predict, pytest.raises(Failure) as caught:
        predict("s", ["a"], 0.05)
    assert caught.value.is_late and not caught.value.is_busy


def test_bad_gateway_counts_as_busy():
    answer = http_answer(502, b"<html>Bad gateway")
    with server_of(answer) as predict, pytest.raises(Failure) as caught:
        predict("s", ["a"], 10)
    assert caught.value.is_busy


@pytest.mark.parametrize("content", [b"", b"[]", b"{}", b'{"outputs": [1]}'])
def test_response_without_outputs_is_a_failure(content):
    with (
        server_of(http_answer(200, content)) as predict,
        pytest.raises(Failure, match="200"),
    ):
        predict("s", ["a"], 10)


class Fake:
    """A model that is busy at first, and fails or is slow for some texts."""

    def __init__(self, busy=0):
        self.busy = busy
        self.asked = []

    def __call__(self, signature, texts, seconds):
        self.asked.append(list(texts))
        if self.busy:
            self.busy -= 1
            raise Failure("full", 503)
        for text in texts:
            if text == "slow":
                raise Failure("no answer", "DEADLINE_EXCEEDED")
            if text == "gone":
                raise Failure("no such model", 404)
        return {"outputs": [text.upper() for text in texts]}


def outputs(answers):
    return [a.error or a.hypotheses[0].text for a in answers]


def test_client_stops_retrying_after_a_timeout_until_a_request_succeeds():
    fake = Fake(busy=100)
    client = Client(fake, seconds=0.5)
    assert outputs(client.translate(["a"])) == ["full"]
    assert len(fake.asked) > 1
    fake.asked.clear()
    assert outputs(client.translate(["b"])) == ["full"]
    assert len(fake.asked) == 1
    fake.busy = 0
    assert outputs(client.translate(["c"])) == ["C"]
    fake.busy = 1
    assert outputs(client.translate(["d"])) == ["D"]


def test_slow_text_does_not_fail_other_texts():
    answers = Client(Fake()).translate(["slow", "a", "b", "c"])
    assert outputs(answers) == ["no answer", "A", "B", "C"]


def test_hanging_server_is_not_retried_for_each_text():
    fake = Fake()
    client = Client(fake)
    for _ in range(100):
        client.translate(["slow"] * 4)
    # Only the first request is split into single texts: 1 + 2 + 4.
    assert len(fake.asked) == 7 + 99
