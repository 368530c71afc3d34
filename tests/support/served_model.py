"""A tiny SavedModel with signatures of several kinds, and a server of it."""

import asyncio
import contextlib
import pathlib
import threading
import types
import urllib.request

import numpy as np
import tensorflow as tf
from tensorflow_serving.apis import predict_pb2, prediction_log_pb2

from t2t_lite.serving.server.config import ServerConfig
from t2t_lite.serving.server.models import ModelConfig
from t2t_lite.serving.server.saved_model import SavedModel
from t2t_lite.serving.server.serve import Server, new_event_loop
from t2t_lite.serving.server.signature import Signature, TensorSpec

TEXT = tf.TensorSpec([None], tf.string, name="inputs")


class Shouter(tf.Module):
    """Says texts louder."""

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
        input_signature=[
            TEXT,
            tf.TensorSpec([None, 2], tf.float32, name="pair"),
        ]
    )
    def both(self, inputs, pair):
        return {"sum": tf.reduce_sum(pair, -1) + 0.2}

    @tf.function(input_signature=[TEXT])
    def letters(self, inputs):
        split = tf.strings.unicode_split(inputs, "UTF-8")
        return {"letters": split.to_tensor("")}


def save(folder: pathlib.Path, warmup: bytes | None = None) -> None:
    """Writes a version; with a warm-up request of this text."""
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
    log.predict_log.request.CopyFrom(predict_request([warmup], "m"))
    (folder / "assets.extra").mkdir()
    path = str(folder / "assets.extra" / "tf_serving_warmup_requests")
    with tf.io.TFRecordWriter(path) as writer:
        writer.write(log.SerializeToString())


def predict_request(texts, model, signature="", **others):
    """A request of gRPC."""
    request = predict_pb2.PredictRequest()
    request.model_spec.name = model
    request.model_spec.signature_name = signature
    for name, value in {"inputs": np.array(texts, object), **others}.items():
        request.inputs[name].CopyFrom(tf.make_tensor_proto(value))
    return request


class Held:
    """A model that answers when it is let.

    Attributes:
      began: is set when it is asked.
      go: lets it answer.
      ran: the texts of each batch that it was asked.

    Args:
      counts: outputs of every batch, whole numbers.
    """

    def __init__(self, **counts):
        self.counts = counts
        self.began = threading.Event()
        self.go = threading.Event()
        self.ran = []
        text = TensorSpec(np.dtype(object), (None,))
        signature = Signature(
            "serving_default", {"inputs": text}, {"outputs": text}, self.run
        )
        self.model = types.SimpleNamespace(
            signatures={"serving_default": signature}, sample=None, about=None
        )

    def run(self, inputs):
        self.ran.append(inputs["inputs"].tolist())
        self.began.set()
        assert self.go.wait(30)
        outputs = {"outputs": inputs["inputs"]}
        for name, values in self.counts.items():
            outputs[name] = np.array(values, np.int32)
        return outputs

    def load(self, folder):
        return self.model


def until(server, line):
    """Waits until the metrics of a server say so."""
    port = server.rest_api_port
    url = f"http://127.0.0.1:{port}/monitoring/prometheus/metrics"
    while line not in urllib.request.urlopen(url, timeout=30).read().decode():
        pass


@contextlib.contextmanager
def serving(folder, load=SavedModel, **config):
    """A server of the model `m` in a thread of its own.

    Yields the server and its loop; it is stopped after the block.
    """
    config.setdefault("drain_seconds", 10)
    config = ServerConfig(
        (ModelConfig("m", folder),), port=0, rest_api_port=0, **config
    )
    loop = new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()

    async def make():
        server = Server(config, load, lambda line: None)
        await server.start()
        return server

    try:
        server = asyncio.run_coroutine_threadsafe(make(), loop).result(60)
        yield server, loop
        asyncio.run_coroutine_threadsafe(server.stop(), loop).result(60)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
