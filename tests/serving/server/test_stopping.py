"""The command that starts a server, and the signals that stop it."""

import json
import os
import signal
import socket
import subprocess
import sys
import urllib.request

import pytest

from support.served_model import Held, save, serving
from t2t_lite.bin import server as command
from t2t_lite.errors import T2TLiteError


def test_command_serves_until_sigterm(tmp_path):
    save(tmp_path / "1", warmup=b"hello")
    server = subprocess.Popen(
        [sys.executable, "-m", "t2t_lite.bin.main", "server", "--port=0"]
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


@pytest.mark.slow
@pytest.mark.own_process
def test_a_signal_while_a_model_loads_stops_the_server(
    tmp_path, monkeypatch, capsys
):
    save(tmp_path / "1")
    # TensorFlow has already started in this process.
    monkeypatch.setattr(command, "set_num_threads", lambda count: None)
    monkeypatch.setattr(
        "t2t_lite.bin.cli.command.note",
        lambda line: (
            line.startswith("Loaded") and os.kill(os.getpid(), signal.SIGTERM)
        ),
    )
    flags = ["--port=0", "--rest_api_port=0", f"--model_base_path={tmp_path}"]
    assert command.main(flags) == 0
    assert not capsys.readouterr().out


@pytest.mark.parametrize(
    ("flags", "code", "message"),
    [
        ([], 2, "--model_base_path is required"),
        (["--model_base_path=VERSION"], 2, "is a version"),
        (["--model_base_path=x", "--model_name="], 2, "--model_name"),
        (["--model_base_path=/nothing"], 2, "/nothing"),
        (["--port=65536"], 2, "--port"),
    ],
)
def test_wrong_flags_end_with_a_clear_error(
    tmp_path, capsys, flags, code, message
):
    (tmp_path / "saved_model.pb").touch()
    flags = [flag.replace("VERSION", str(tmp_path)) for flag in flags]
    assert command.main(["--port=0", "--rest_api_port=0", *flags]) == code
    *_, line = capsys.readouterr().err.strip().splitlines()
    assert message in line


@pytest.mark.parametrize("flag", ["port", "rest_api_port"])
def test_error_names_a_port_in_use(tmp_path, flag):
    (tmp_path / "1").mkdir()
    (tmp_path / "1" / "saved_model.pb").touch()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(T2TLiteError, match=f"`{flag}={port}`: .* in use"):
            with serving(tmp_path, Held().load, **{flag: port}):
                pass
