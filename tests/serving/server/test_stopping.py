"""A server that is told to stop, and the command that starts it."""

import asyncio
import concurrent.futures
import json
import os
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request

import grpc
import pytest

from support.served_model import Held, predict_request, save, serving, until
from t2t_lite.bin import server as command
from t2t_lite.errors import T2TLiteError
from t2t_lite.serving.server import serve


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "1").mkdir()
    (tmp_path / "1" / "saved_model.pb").touch()
    return tmp_path


@pytest.fixture
def pool():
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        yield pool


def ask(server):
    url = f"http://127.0.0.1:{server.rest_api_port}/v1/models/m:predict"
    body = b'{"instances": ["a"]}'
    with urllib.request.urlopen(url, body, timeout=30) as response:
        return json.load(response)


def ask_by_grpc(server):
    from tensorflow_serving.apis import prediction_service_pb2_grpc

    with grpc.insecure_channel(f"127.0.0.1:{server.port}") as channel:
        stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)
        response = stub.Predict(predict_request(["a"], "m"), timeout=30)
        return list(response.outputs["outputs"].string_val)


def test_what_has_begun_is_finished_and_nothing_new_begins(folder, pool):
    held = Held()
    with serving(folder, held.load) as server:
        begun = pool.submit(ask, server), pool.submit(ask_by_grpc, server)
        until(server, "t2t_lite_queue_texts", 1)  # one runs, one waits
        server.stop()
        refused = False
        while not refused:  # until the port is closed
            try:
                pool.submit(ask, server).result(0.2)
            except (urllib.error.URLError, ConnectionError):
                refused = True
            except TimeoutError:  # it came in time to be finished, too
                pass
        held.go.set()
        assert begun[0].result(30) == {"predictions": ["a"]}
        assert begun[1].result(30) == [b"a"]
        assert server.finished()


def test_a_request_that_takes_too_long_is_abandoned(folder, pool):
    held = Held()
    try:
        with serving(folder, held.load, drain_seconds=0.1) as server:
            begun = pool.submit(ask, server)
            assert held.began.wait(30)
            server.stop()
            assert not server.finished()
            with pytest.raises(OSError):
                begun.result(30)
    finally:
        held.go.set()


def test_the_command_serves_until_it_is_told_to_stop(tmp_path):
    save(tmp_path / "1", warmup=b"hello")
    server = subprocess.Popen(
        [sys.executable, "-m", "t2t_lite.bin.server", "--port=0"]
        + ["--rest_api_port=0", f"--model_base_path={tmp_path}"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    line = server.stdout.readline()
    url = line.partition("page at ")[2].partition(",")[0]
    body = b'{"instances": ["hey"]}'
    with urllib.request.urlopen(
        f"{url}v1/models/default:predict", body
    ) as response:
        (answer,) = json.load(response)["predictions"]
    assert answer["outputs"] == "HEY"
    server.send_signal(signal.SIGTERM)
    _, errors = server.communicate(timeout=60)
    assert server.returncode == 0
    assert "Traceback" not in errors


@pytest.mark.own_process
def test_a_signal_while_a_model_loads_stops_the_server(tmp_path):
    save(tmp_path / "1")
    ports = []
    finished = asyncio.run(
        serve.serve(
            serve.ServerConfig(tmp_path, port=0, rest_api_port=0),
            lambda line: os.kill(os.getpid(), signal.SIGTERM),  # loaded
            lambda *both: ports.append(both),
        )
    )
    assert finished
    assert not ports


@pytest.mark.parametrize(
    ("flags", "code", "message"),
    [
        ([], 2, "--model_base_path is required"),
        (["--model_base_path=VERSION"], 2, "is a version. Give"),
        (["--model_base_path=x", "--model_name="], 2, "--model_name"),
        (["--model_base_path=/nothing"], 2, "/nothing"),
        (["--port=65536"], 2, "--port"),
    ],
)
def test_wrong_flags_are_one_clear_error(folder, capsys, flags, code, message):
    flags = [flag.replace("VERSION", str(folder / "1")) for flag in flags]
    assert command.main(["--port=0", "--rest_api_port=0", *flags]) == code
    *_, line = capsys.readouterr().err.strip().splitlines()
    assert message in line


@pytest.mark.parametrize("flag", ["port", "rest_api_port"])
def test_a_port_that_is_taken_is_named(folder, flag):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(T2TLiteError, match=f"--{flag}={port}: .* in use"):
            with serving(folder, Held().load, **{flag: port}):
                pass
