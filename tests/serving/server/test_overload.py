"""More requests than a server can answer, and its end, over the wire."""

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
    """A server with one worker, which runs the text "a" until it is let."""

    def __init__(self, server, stub, held, pool):
        self.server = server
        self.stub = stub
        self.held = held
        self.first = pool.submit(self.grpc, "a")
        assert held.began.wait(30)

    def rest(self, text):
        """The status and the JSON of a request."""
        with contextlib.closing(self.connection(text)) as connection:
            response = connection.getresponse()
            return response.status, json.loads(response.read())

    def connection(self, text):
        """A request that was sent."""
        address = f"127.0.0.1:{self.server.rest_api_port}"
        connection = http.client.HTTPConnection(address, timeout=30)
        body = json.dumps({"inputs": [text]})
        connection.request("POST", "/v1/models/m:predict", body)
        return connection

    def grpc(self, text, seconds=30):
        """The name of the status of a call."""
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


def test_a_full_queue_is_refused_at_once(busy, pool):
    with busy() as busy:
        second = pool.submit(busy.grpc, "b")
        busy.waiting(1)
        # Both are answered while the model still holds all others up.
        status, told = busy.rest("c")
        assert (status, told.keys()) == (503, {"error"})
        assert "queue is full" in told["error"]
        assert busy.grpc("d") == "RESOURCE_EXHAUSTED"
        busy.held.go.set()
        assert busy.first.result(30) == second.result(30) == "OK"
        assert busy.rest("e") == (200, {"outputs": ["e"]})
    assert busy.held.ran == [[b"a"], [b"b"], [b"e"]]


def test_what_comes_too_late_is_refused_and_not_computed(busy, pool):
    with busy(seconds=0.5) as busy:
        # The server's own limit.
        status, body = busy.rest("b")
        assert status == 504 and "deadline" in body["error"]
        assert busy.first.result(30) == "DEADLINE_EXCEEDED"
        assert busy.grpc("c") == "DEADLINE_EXCEEDED"
        busy.waiting(0)
    assert busy.held.ran == [[b"a"]]


def test_a_body_that_does_not_come_is_not_waited_for(busy):
    with busy(seconds=0.5) as busy:
        address = f"127.0.0.1:{busy.server.rest_api_port}"
        connection = http.client.HTTPConnection(address, timeout=30)
        with contextlib.closing(connection):
            path, more = "/v1/models/m:predict", {"Content-Length": "9"}
            connection.request("POST", path, b"{", more)
            response = connection.getresponse()
            assert response.status == 504


def test_what_a_client_waits_for_no_more_is_not_computed(busy):
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


def test_at_the_end_what_has_begun_is_finished_and_nothing_new_begins(
    busy, pool
):
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


def test_at_the_end_a_request_that_takes_too_long_is_abandoned(busy):
    with busy(drain_seconds=0.1) as busy:
        busy.server.stop()
        assert not busy.server.finished()
        assert busy.first.result(30) != "OK"
