"""A server that is told to stop, and the command that starts it."""

import asyncio
import concurrent.futures
import json
import signal
import socket
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request

import grpc
import pytest

from support.served_model import Held, predict_request, save, serving, until
from t2t_lite.bin import server as command
from t2t_lite.errors import T2TLiteError
from t2t_lite.serving.server.config import ServerConfig
from t2t_lite.serving.server.models import ModelConfig
from t2t_lite.serving.server.serve import Server, new_event_loop


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
    with serving(folder, held.load) as (server, loop):
        begun = pool.submit(ask, server), pool.submit(ask_by_grpc, server)
        until(server, "t2t_lite_queue_texts 1.0")  # one runs, one waits
        stopping = asyncio.run_coroutine_threadsafe(server.stop(), loop)
        refused = False
        while not refused:  # until the port is closed
            try:
                pool.submit(ask, server).result(0.2)
            except (urllib.error.URLError, ConnectionError):
                refused = True
            except TimeoutError:  # it came in time to be finished, too
                pass
        assert not stopping.done()
        held.go.set()
        assert begun[0].result(30) == {"predictions": ["a"]}
        assert begun[1].result(30) == [b"a"]
        assert stopping.result(30)


def test_what_takes_too_long_is_left_behind(folder, pool):
    held = Held()
    try:
        with serving(folder, held.load, drain_seconds=0.1) as (server, loop):
            begun = pool.submit(ask, server)
            assert held.began.wait(30)
            stop = server.stop()
            idle = asyncio.run_coroutine_threadsafe(stop, loop).result(30)
            assert not idle
            with pytest.raises(OSError):
                begun.result(30)
    finally:
        held.go.set()


def test_a_server_that_still_loads_stops_at_once(tmp_path):
    save(tmp_path / "1")
    code = (
        "import os, signal, sys, time\n"
        "from t2t_lite.bin import server\n"
        "from t2t_lite.serving.server import saved_model\n"
        "def load(folder):\n"
        "    os.kill(os.getpid(), signal.SIGTERM)\n"
        "    time.sleep(600)\n"
        "saved_model.SavedModel = load\n"
        "sys.exit(server.main(sys.argv[1:]))\n"
    )
    flags = [f"--model_base_path={tmp_path}", "--port=0", "--rest_api_port=0"]
    done = subprocess.run(
        [sys.executable, "-c", code, *flags],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (done.returncode, done.stdout) == (0, "")
    assert "drain" not in done.stderr


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


@pytest.mark.parametrize(
    ("flags", "code", "message"),
    [
        ([], 2, "Give one of --model_base_path"),
        (["--model_base_path=x", "--output_dir=y"], 2, "Give one of"),
        (["--model_base_path=VERSION"], 2, "is a version itself. Give"),
        (["--model_base_path=x", "--log_texts"], 2, "--access_log"),
        (["--model_base_path=x", "--model_name="], 2, "--model_name is req"),
        (["--port=65536"], 2, "--port: must be a port, 0 to 65535; got '65"),
        (["--model_config_file=CONFIG"], 2, "model_platform"),
    ],
)
def test_what_cannot_be_served_is_said_in_one_line(
    folder, capsys, flags, code, message
):
    config = folder / "config"
    config.write_text(
        "model_config_list { config { name: 'm' base_path: '/x' "
        "model_platform: 'caffe' } }"
    )
    places = {
        "VERSION": folder / "1",
        "CONFIG": config,
    }
    for name, place in places.items():
        flags = [flag.replace(name, str(place)) for flag in flags]
    assert command.main(["--port=0", "--rest_api_port=0", *flags]) == code
    *_, line = capsys.readouterr().err.strip().splitlines()
    assert message in line


@pytest.mark.own_process
def test_sigterm_while_a_run_is_exported_leaves_nothing(
    tmp_path, monkeypatch, capsys
):
    def export(words, **how):
        assert len(list(tmp_path.iterdir())) == 1
        signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(subprocess, "run", export)
    assert command.main(["--output_dir=RUN"]) == 130
    assert capsys.readouterr().err == "t2t-lite-server: stopped by SIGTERM.\n"
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("flag", ["port", "rest_api_port"])
def test_a_port_that_is_taken_is_named(folder, flag):
    async def start(**ports):
        ports = {"port": 0, "rest_api_port": 0, **ports}
        config = ServerConfig((ModelConfig("m", folder),), **ports)
        server = Server(config, Held().load, lambda line: None)
        try:
            await server.start()
        finally:
            await server.stop()

    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        why = f"at --host=127.0.0.1 --{flag}={port}: .* already in use. Choose"
        with pytest.raises(T2TLiteError, match=why):
            with asyncio.Runner(loop_factory=new_event_loop) as runner:
                runner.run(start(**{flag: port}))
