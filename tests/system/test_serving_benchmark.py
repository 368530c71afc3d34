"""`benchmarks/serving*.py`: its clients hear what a server says."""

import argparse
import asyncio
import importlib

import pytest

from support.places import ROOT
from support.served_model import predict_request, save, serving


@pytest.fixture
def module(monkeypatch):
    """Imports a module of the benchmarks."""
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    return importlib.import_module


def test_calls_of_ready_bytes_are_answered_or_fail(module, tmp_path):
    http2 = module("serving_http2")
    predict_pb2 = module("tensorflow_serving.apis.predict_pb2")
    save(tmp_path / "1")

    async def ask(port, texts):
        method = "/tensorflow.serving.PredictionService/Predict"
        transport, channel = await asyncio.get_running_loop().create_connection(
            lambda: http2.Channel("localhost", method), "127.0.0.1", port
        )
        requests = (predict_request([text], "m") for text in texts)
        answers = [
            channel.ask(http2.prefixed(request.SerializeToString()))
            for request in requests
        ]
        try:
            async with asyncio.timeout(30):
                return await asyncio.gather(*answers, return_exceptions=True)
        finally:
            transport.close()

    long = "a" * 9000  # its answer is more than one frame
    texts = ["a", "whisper", long, *map(str, range(200))]
    with serving(tmp_path) as (server, _):
        answers = asyncio.run(ask(server.port, texts))
    assert b"we do not whisper" in answers.pop(1).args[0]
    texts.remove("whisper")
    for text, answer in zip(texts, answers, strict=True):
        outputs = predict_pb2.PredictResponse.FromString(answer).outputs
        assert outputs["outputs"].string_val == [text.upper().encode()]


def test_direct_calls_that_die_are_no_figure(module, monkeypatch, tmp_path):
    speed = module("serving_speed")
    (tmp_path / "1").mkdir()
    args = argparse.Namespace(export_dir=tmp_path)
    monkeypatch.setattr(speed, "DIRECT", "input(); raise SystemExit(3)")
    with pytest.raises(RuntimeError, match=r"died: 3\."):
        speed.Direct(args, ["a"], 1)
    # One that dies later: it opens its orders, and answers none.
    later = "import sys; input(); print('ready', flush=True); open(sys.argv[2])"
    monkeypatch.setattr(speed, "DIRECT", later + ".readline(); sys.exit(4)")
    direct = speed.Direct(args, ["a"], 1)
    with pytest.raises(RuntimeError, match=r"died: 4\."):
        direct.time_for(1)
    direct.stop()
