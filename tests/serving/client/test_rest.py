"""REST over connections that stay open, close unasked, or say nothing."""

import contextlib
import json
import socket
import threading

import pytest

from t2t_lite.serving.client.address import Address
from t2t_lite.serving.client.patience import Busy, Refused
from t2t_lite.serving.client.rest import RestModel

ANSWER = {"outputs": {"outputs": ["A"]}}


@contextlib.contextmanager
def model_of(*answers):
    """A model whose server answers one request a connection, then closes it.

    Args:
      answers: bytes of each answer; None leaves the connection open, silent.
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
        port = listening.getsockname()[1]
        address = Address.parse(f"http://127.0.0.1:{port}")
        yield RestModel(address, "a model", None)
        thread.join(10)
        for connection in silent:
            connection.close()


def http_answer(status, content, *headers):
    content = (
        content if isinstance(content, bytes) else json.dumps(content).encode()
    )
    head = [f"HTTP/1.1 {status} X", f"Content-Length: {len(content)}", *headers]
    return "\r\n".join([*head, "", ""]).encode() + content


def test_a_connection_that_the_server_closed_is_opened_again():
    with model_of(http_answer(200, ANSWER), http_answer(200, ANSWER)) as model:
        for _ in range(2):
            assert model.predict("s", ["a"], 10) == ANSWER["outputs"]


def test_no_answer_in_time_is_a_refusal_of_these_texts():
    with (
        model_of(None) as model,
        pytest.raises(Refused, match="no answer within") as caught,
    ):
        model.predict("s", ["a"], 0.05)
    assert caught.value.for_a_text


def test_a_proxy_without_its_server_is_busy_for_as_long_as_it_says():
    answer = http_answer(502, b"<html>Bad gateway", "Retry-After: 3")
    with (
        model_of(answer) as model,
        pytest.raises(Busy, match="the server answered 502") as caught,
    ):
        model.predict("s", ["a"], 10)
    assert caught.value.wait == 3


@pytest.mark.parametrize("content", [b"", b"[]", b"{}", b'{"outputs": [1]}'])
def test_what_has_no_outputs_is_refused(content):
    with (
        model_of(http_answer(200, content)) as model,
        pytest.raises(Refused, match="the server answered 200"),
    ):
        model.predict("s", ["a"], 10)
