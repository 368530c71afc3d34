"""A tiny SavedModel with several signatures, and a server of it."""

import asyncio
import concurrent.futures
import contextlib
import pathlib
import threading
import time
import types
import urllib.request

import numpy as np
import tensorflow as tf
import uvloop
from tensorflow_serving.apis import predict_pb2, prediction_log_pb2

from t2t_lite.serving.options import ServerOptions
from t2t_lite.serving.server.model import Signature, Version, load_version
from t2t_lite.serving.server.serve import running

TEXT = tf.TensorSpec([None], tf.string, name="inputs")


class Shouter(tf.Module):
    """A model that returns texts in capitals."""

    @tf.function(input_signature=[TEXT])
    def louder(self, inputs):
        tf.debugging.assert_none_equal(
            inputs, "whisper", message="we do not whisper"
        )
        return {
            "outputs": tf.strings.upper(inputs, "utf-8"),
            "scores": tf.cast(tf.strings.length(inputs), tf.float32) / 10,
        }

    @tf.function(
        input_signature=[TEXT, tf.TensorSpec([None], tf.string, name="targets")]
    )
    def both(self, inputs, targets):
        return {"joined": tf.strings.join([inputs, targets], "+")}

    @tf.function(input_signature=[TEXT])
    def letters(self, inputs):
        split = tf.strings.unicode_split(inputs, "UTF-8")
        return {"letters": split.to_tensor("")}


def save(folder: pathlib.Path, warmup: bytes | None = None) -> None:
    """Write a version, optionally with a warm-up request of this text."""
    model = Shouter()
    signatures = {
        "serving_default": model.louder,
        "both": model.both,
        "letters": model.letters,
    }
    tf.saved_model.save(model, str(folder), signatures)
    if warmup is None:
        return
    log = prediction_log_pb2.PredictionLog()
    request = predict_request([warmup], "m", "serving_default")
    log.predict_log.request.CopyFrom(request)
    (folder / "assets.extra").mkdir()
    path = str(folder / "assets.extra" / "tf_serving_warmup_requests")
    with tf.io.TFRecordWriter(path) as writer:
        writer.write(log.SerializeToString())


def predict_request(texts, model, signature="", **others):
    """Return a gRPC predict request."""
    request = predict_pb2.PredictRequest()
    request.model_spec.name = model
    request.model_spec.signature_name = signature
    for name, value in {"inputs": np.array(texts, object), **others}.items():
        request.inputs[name].CopyFrom(tf.make_tensor_proto(value))
    return request


class Held:
    """A model that blocks until it is released.

    Attributes:
      began: event that is set when the model runs.
      go: event that releases the model.
      ran: the texts of each batch.
    """

    def __init__(self):
        self.began = threading.Event()
        self.go = threading.Event()
        self.ran = []

    def run(self, inputs):
        self.ran.append(inputs["inputs"].tolist())
        self.began.set()
        assert self.go.wait(30)
        return {"outputs": inputs["inputs"]}

    def load(self, folder):
        signature = Signature(("inputs",), self.run)
        return Version(int(folder.name), {"serving_default": signature})


def until(server, name, value):
    """Wait until a metric of a server has a value."""
    deadline = time.monotonic() + 30
    while (found := metric(server, name)) != value:
        assert time.monotonic() < deadline, f"{name} is {found}"
        time.sleep(0.01)


def metric(server, name):
    """Return the value of a metric; 0 if it does not exist."""
    port = server.rest_api_port
    url = f"http://127.0.0.1:{port}/monitoring/prometheus/metrics"
    text = urllib.request.urlopen(url, timeout=30).read().decode()
    lines = [line for line in text.splitlines() if line.startswith(name)]
    return float(lines[0].split()[-1]) if lines else 0


@contextlib.contextmanager
def serving(folder, load=load_version, **config):
    """Run a server of the model `m` in a thread.

    Yields its ports, `stop()` and `finished()`, which waits for the server to
    end and returns whether all requests were answered.
    """
    config = {"drain_seconds": 10, "port": 0, "rest_api_port": 0, **config}
    started = concurrent.futures.Future()

    async def main():
        stopping = asyncio.Event()
        loop = asyncio.get_running_loop()
        settings = ServerOptions(folder, "m", **config)
        async with running(settings, lambda line: None, load) as ports:
            server = types.SimpleNamespace(
                rest_api_port=ports[0],
                port=ports[1],
                stop=lambda: loop.call_soon_threadsafe(stopping.set),
                finished=lambda: ended.result(60),
            )
            started.set_result(server)
            await stopping.wait()
        return not ports[2].running

    def run():
        try:
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                return runner.run(main())
        except BaseException as error:
            if not started.done():
                started.set_exception(error)
            raise

    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        ended = pool.submit(run)
        server = started.result(60)
        try:
            yield server
        finally:
            with contextlib.suppress(RuntimeError):  # the loop has ended
                server.stop()
        server.finished()
