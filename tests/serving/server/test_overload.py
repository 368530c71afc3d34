"""Overload, deadlines, cancellation and shutdown of a running server."""

import concurrent.futures
import contextlib
import http.client
import json

import grpc
import pytest
from tensorflow_serving.apis import prediction_service_pb2_grpc

from support.served_model import Held, metric, predict_request, serving, until

ONE_WAITS = {"workers": 1, "max_batch_size": 1, "max_queue": 1}


class Busy:
    """A server whose only worker is busy with the text "a" until released."""

    def __init__(self, server, stub, held, pool):
        self.server = server
        self.stub = stub
        self.held = held
        self.first = pool.submit(self.grpc, "a")
        assert held.began.wait(30)

    def rest(self, text):
        """Send a REST request; return the status and the parsed JSON."""
        with contextlib.closing(self.connection(text)) as connection:
            response = connection.getresponse()
            return response.status, json.loads(response.read())

    def connection(self, text):
        """Send a REST request; return its open connection."""
        address = f"127.0.0.1:{self.server.rest_api_port}"
        connection = http.client.HTTPConnection(address, timeout=30)
        body = json.dumps({"inputs": [text]})
        connection.request("POST", "/v1/models/m:predict", body)
        return connection

    def grpc(self, text, seconds=30):
        """Send a gRPC request; return the name of its status code."""
        try:
            self.stub.Predict(predict_request([text], "m"), timeout=seconds)
        except grpc.RpcError as error:
            return error.code().name
        return "OK"

    def waiting(self, texts):
        until(self.server, "t2t_lite_queue_texts", texts)


@pytest.fixture
def pool():
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        yield pool


@pytest.fixture
def busy(tmp_path, pool):
    (tmp_path / "1").mkdir()
    (tmp_path / "1" / "saved_model.pb").touch()

    @contextlib.contextmanager
    def start(seconds=30.0, **config):
        held = Held()
        with (
            serving(
                tmp_path,
                held.load,
                rest_api_timeout_in_ms=round(1000 * seconds),
                **ONE_WAITS,
                **config,
            ) as server,
            grpc.insecure_channel(f"127.0.0.1:{server.port}") as channel,
        ):
            stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)
            try:
                yield Busy(server, stub, held, pool)
            finally:
                held.go.set()

    return start


def test_request_to_a_full_queue_is_rejected_immediately(busy, pool):
    with busy() as busy:
        second = pool.submit(busy.grpc, "b")
        busy.waiting(1)
        # Both requests are rejected while the model is still blocked.
        status, body = busy.rest("c")
        assert (status, body.keys()) == (503, {"error"})
        assert "queue is full" in body["error"]
        assert busy.grpc("d") == "RESOURCE_EXHAUSTED"
        busy.held.go.set()
        assert busy.first.result(30) == second.result(30) == "OK"
        assert busy.rest("e") == (200, {"outputs": ["e"]})
    assert busy.held.ran == [[b"a"], [b"b"], [b"e"]]


def test_expired_request_is_rejected_and_not_computed(busy, pool):
    with busy(seconds=0.5) as busy:
        # The deadline of the server, not of the client.
        status, body = busy.rest("b")
        assert status == 504 and "deadline" in body["error"]
        assert busy.first.result(30) == "DEADLINE_EXCEEDED"
        assert busy.grpc("c") == "DEADLINE_EXCEEDED"
        busy.waiting(0)
    assert busy.held.ran == [[b"a"]]


def test_incomplete_request_body_times_out(busy):
    with busy(seconds=0.5) as busy:
        address = f"127.0.0.1:{busy.server.rest_api_port}"
        connection = http.client.HTTPConnection(address, timeout=30)
        with contextlib.closing(connection):
            path, headers = "/v1/models/m:predict", {"Content-Length": "9"}
            connection.request("POST", path, b"{", headers)
            response = connection.getresponse()
            assert response.status == 504


def test_cancelled_request_is_not_computed(busy):
    with busy() as busy:
        assert busy.grpc("b", seconds=0.3) == "DEADLINE_EXCEEDED"
        busy.waiting(0)
        cancelled = (
            't2t_lite_requests_total{api="gRPC",code="CANCELLED"}',
            't2t_lite_requests_total{api="REST",code="CANCELLED"}',
        )
        before = [metric(busy.server, name) for name in cancelled]
        call = busy.stub.Predict.future(predict_request(["c"], "m"), timeout=30)
        busy.waiting(1)
        call.cancel()
        busy.waiting(0)
        until(busy.server, cancelled[0], before[0] + 1)
        connection = busy.connection("d")
        busy.waiting(1)
        connection.close()
        busy.waiting(0)
        until(busy.server, cancelled[1], before[1] + 1)
        busy.held.go.set()
        assert busy.first.result(30) == "OK"
    assert busy.held.ran == [[b"a"]]


def test_stopping_server_finishes_requests_and_accepts_no_more(busy, pool):
    with busy() as busy:
        second = pool.submit(busy.rest, "b")
        busy.waiting(1)
        busy.server.stop()
        with pytest.raises(ConnectionError):  # when the port is closed
            while busy.rest("c")[0] == 503:  # the queue is full until then
                pass
        busy.held.go.set()
        assert busy.first.result(30) == "OK"
        assert second.result(30) == (200, {"outputs": ["b"]})
        assert busy.server.finished()


def test_stopping_server_abandons_requests_after_drain_seconds(busy):
    with busy(drain_seconds=0.1) as busy:
        busy.server.stop()
        assert not busy.server.finished()
        assert busy.first.result(30) != "OK"
