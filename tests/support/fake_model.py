"""A model of a made-up server, for REST and for gRPC: capitals come back."""

import contextlib
import http.server
import json
import re
import threading
from concurrent.futures import ThreadPoolExecutor

BAD = "bad"  # a text that no model takes
STEPS = 3  # hypotheses of a text


class Refusal(Exception):
    """What a server says instead of an answer."""

    def __init__(self, status, message):
        super().__init__(message)
        self.status = status


class FakeModel:
    """Answers, and remembers what it was asked.

    Attributes:
      failures: refusals, each of which one request gets instead of an answer.
      asked: (name, version, signature, texts) of each request.
      most: requests under way at once, so far.
    """

    def __init__(self):
        self.failures = []
        self.asked = []
        self.most = 0
        self._now = 0
        self._lock = threading.Lock()

    def answer(self, name, version, signature, texts):
        """The columns for texts; raises Refusal."""
        with self._lock:
            self.asked.append((name, version, signature, texts))
            self._now += 1
            self.most = max(self.most, self._now)
            failure = self.failures.pop(0) if self.failures else None
        try:
            if failure:
                raise failure
            if name != "default":
                raise Refusal(404, f"Servable not found: {name}")
            if BAD in texts:
                raise Refusal(400, "A text is\nbad.")
            return self._columns(signature, texts)
        finally:
            with self._lock:
                self._now -= 1

    def _columns(self, signature, texts):
        best = [text.upper() for text in texts]
        cut = [len(text) > 100 for text in texts]
        if signature == "serving_default":
            scores = [-0.5] * len(texts)
            return {"outputs": best, "scores": scores, "cut": cut}
        return {
            "outputs": [[f"{text} {k}" for k in range(STEPS)] for text in best],
            "scores": [[-0.5, -1.25, -1e9] for _ in texts],
            "cut": cut,
        }


@contextlib.contextmanager
def over_rest(model):
    """Serves a model as TensorFlow Serving's REST API does; gives its URL."""

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self):
            length = int(self.headers["Content-Length"])
            body = json.loads(self.rfile.read(length))
            name, version = re.fullmatch(
                r"/v1/models/([^/:]+)(?:/versions/(\d+))?:predict", self.path
            ).groups()
            try:
                outputs = model.answer(
                    name,
                    version and int(version),
                    body["signature_name"],
                    body["inputs"]["inputs"],
                )
                status, told = 200, {"outputs": outputs}
            except Refusal as refusal:
                status, told = refusal.status, {"error": str(refusal)}
            content = json.dumps(told).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *args):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        threading.Thread(
            target=server.serve_forever, args=(0.02,), daemon=True
        ).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()


@contextlib.contextmanager
def over_grpc(model):
    """Serves a model with the public stubs; gives its URL."""
    import grpc
    import tensorflow as tf
    from tensorflow_serving.apis import (
        predict_pb2,
        prediction_service_pb2_grpc,
    )

    codes = {
        400: grpc.StatusCode.INVALID_ARGUMENT,
        404: grpc.StatusCode.NOT_FOUND,
        429: grpc.StatusCode.RESOURCE_EXHAUSTED,
        503: grpc.StatusCode.UNAVAILABLE,
        504: grpc.StatusCode.DEADLINE_EXCEEDED,
    }

    class Service(prediction_service_pb2_grpc.PredictionServiceServicer):
        def Predict(self, request, context):
            spec = request.model_spec
            version = None
            if spec.HasField("version"):
                version = spec.version.value
            texts = tf.make_ndarray(request.inputs["inputs"])
            texts = [text.decode() for text in texts]
            try:
                columns = model.answer(
                    spec.name, version, spec.signature_name, texts
                )
            except Refusal as refusal:
                context.abort(codes[refusal.status], str(refusal))
            response = predict_pb2.PredictResponse(model_spec=spec)
            for name, rows in columns.items():
                response.outputs[name].CopyFrom(tf.make_tensor_proto(rows))
            return response

    server = grpc.server(ThreadPoolExecutor(8))
    prediction_service_pb2_grpc.add_PredictionServiceServicer_to_server(
        Service(), server
    )
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield f"grpc://127.0.0.1:{port}"
    finally:
        server.stop(None)
