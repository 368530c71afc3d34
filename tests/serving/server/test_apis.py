"""The REST and gRPC APIs, as a client of TensorFlow Serving uses them."""

import concurrent.futures
import json
import socket
import time
import urllib.error
import urllib.request

import grpc
import pytest
import tensorflow as tf
from grpc_health.v1 import health_pb2, health_pb2_grpc
from tensorflow_serving.apis import (
    classification_pb2,
    get_model_metadata_pb2,
    get_model_status_pb2,
    model_service_pb2_grpc,
    predict_pb2,
    prediction_service_pb2_grpc,
)

from support.served_model import metric, predict_request, save, serving

PREDICT = "/v1/models/m:predict"
PAIR = {"inputs": ["a"], "targets": ["b"]}
UNEQUAL = {"inputs": PAIR | {"targets": []}, "signature_name": "both"}


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    save(folder / "1", warmup=b"hello")
    limits = {"max_body_bytes": 4000, "max_texts": 20, "max_characters": 100}
    limits |= {"workers": 2, "max_batch_size": 8}
    with serving(folder, **limits) as server:
        yield server


@pytest.fixture
def http(server):
    def send(path, body=None, method=None, **headers):
        if body is not None and not isinstance(body, bytes):
            body = json.dumps(body).encode()
        url = f"http://127.0.0.1:{server.rest_api_port}{path}"
        request = urllib.request.Request(url, body, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=30) as response:
                return response.status, response.read(), response.headers
        except urllib.error.HTTPError as error:
            return error.code, error.read(), error.headers

    return send


@pytest.fixture
def rest(http):
    def send(path, *args, **options):
        status, body, headers = http(path, *args, **options)
        assert headers["Content-Type"].startswith("application/json")
        return status, json.loads(body)

    return send


@pytest.fixture
def channel(server):
    with grpc.insecure_channel(f"127.0.0.1:{server.port}") as channel:
        yield channel


@pytest.fixture
def stub(channel):
    return prediction_service_pb2_grpc.PredictionServiceStub(channel)


@pytest.mark.parametrize(
    ("inputs", "outputs"),
    [
        ({"inputs": ["hey"]}, {"outputs": ["HEY"], "scores": [0.3]}),
        ([], {"outputs": [], "scores": []}),
    ],
)
def test_rest_has_the_column_format(rest, inputs, outputs):
    answer = 200, {"outputs": outputs}
    assert rest(PREDICT, {"inputs": inputs}) == answer
    path = PREDICT.replace(":", "/versions/1:")
    assert rest(path, {"inputs": inputs}) == answer


def test_rest_has_the_row_format(rest):
    status, answer = rest(PREDICT, {"instances": ["hey", "grüße"]})
    assert (status, answer.keys()) == (200, {"predictions"})
    assert answer["predictions"] == [
        {"outputs": "HEY", "scores": 0.3},
        {"outputs": "GRÜSSE", "scores": 0.7},
    ]


def test_rest_serves_signatures_of_two_inputs_and_one_output(rest):
    body = {"signature_name": "both", "inputs": PAIR}
    assert rest(PREDICT, body) == (200, {"outputs": ["a+b"]})
    instance = {"inputs": "a", "targets": "b"}
    body = {"signature_name": "both", "instances": [instance]}
    assert rest(PREDICT, body) == (200, {"predictions": ["a+b"]})


@pytest.mark.parametrize(
    ("text", "letters"),
    [
        ({"b64": "w6Q="}, "ä"),
        # As in TensorFlow Serving: white space, and optional padding.
        ({"b64": "w6Q"}, "ä"),
        ({"b64": " w6\r\nQ="}, "ä"),
        ({"b64": ""}, ""),
        # Invalid UTF-8, and half of a surrogate pair.
        ({"b64": "/w=="}, "\ufffd"),
        ("\ud800", "?"),
    ],
)
def test_a_rest_text_may_be_in_base64_or_invalid(rest, text, letters):
    body = {"signature_name": "letters", "inputs": [text, "a"]}
    assert rest(PREDICT, body) == (200, {"outputs": [[letters], ["a"]]})


def test_rest_has_status_and_metadata(rest):
    status = {
        "version": "1",
        "state": "AVAILABLE",
        "status": {"error_code": "OK", "error_message": ""},
    }
    for path in ("/v1/models/m", "/v1/models/m/versions/1"):
        assert rest(path) == (200, {"model_version_status": [status]})
    code, metadata = rest("/v1/models/m/metadata")
    assert code == 200
    assert metadata["model_spec"] == {"name": "m", "version": "1"}
    signatures = metadata["metadata"]["signature_def"]["signature_def"]
    default = signatures["serving_default"]
    assert default["method_name"] == "tensorflow/serving/predict"
    assert default["inputs"]["inputs"]["dtype"] == "DT_STRING"


@pytest.mark.parametrize(
    ("path", "body", "status", "reason"),
    [
        ("/v1/models/n:predict", {"inputs": []}, 404, "not n"),
        ("/v1/models/m/versions/7:predict", {}, 404, "version 7"),
        (f"/v1/models/m/versions/{2**70}:predict", {}, 404, "Not Found"),
        ("/v1/models/m/versions/2", None, 404, "version 2"),
        ("/v1/models/n/metadata", None, 404, "not n"),
        ("/v1/models/m", {}, 405, "Not Allowed"),
        (PREDICT, None, 405, "Not Allowed"),
        ("/v1/models/m:classify", {}, 404, "Not Found"),
        ("/nothing", None, 404, "Not Found"),
        ("/page/..%2Frest.py", None, 404, "Not Found"),
        (PREDICT, b"{", 400, "JSON"),
        (PREDICT, b"[" * 3000, 400, "JSON"),
        (PREDICT, [1], 400, "object"),
        (PREDICT, {}, 400, "instances"),
        (PREDICT, {"inputs": [], "instances": []}, 400, "instances"),
        (PREDICT, {"instances": "a"}, 400, "instances"),
        (PREDICT, {"instances": ["a", {"inputs": "a"}]}, 400, "strings"),
        (PREDICT, {"instances": [{"inputs": "a"}, {"x": 1}]}, 400, "keys"),
        (PREDICT, {"inputs": {"x": ["a"]}}, 400, "inputs"),
        (PREDICT, {"inputs": "a"}, 400, "list"),
        (PREDICT, {"inputs": [1]}, 400, "int"),
        (PREDICT, b'{"inputs":' + b"[" * 900 + b"]" * 900 + b"}", 400, "list"),
        (PREDICT, {"inputs": [{"b64": "?"}]}, 400, "base64"),
        *(
            (PREDICT, {"inputs": [{"b64": x}]}, 400, "not valid")
            for x in ("w6Qab", "w6Q==", "w6\u00a0Q", "é", "w6_-")
        ),
        (PREDICT, {"inputs": [], "signature_name": "x"}, 400, "got x"),
        (PREDICT, {"inputs": [], "signature_name": 1}, 400, "got 1"),
        (PREDICT, UNEQUAL, 400, "same number"),
        (PREDICT, {"inputs": ["a"] * 21}, 400, "got 21"),
        (PREDICT, {"inputs": ["ä" * 101]}, 400, "got 101"),
        (PREDICT, b" " * 4001, 413, "Too Large"),
        (PREDICT, {"inputs": ["whisper"]}, 400, "not whisper"),
    ],
)
def test_rest_errors_are_one_line(rest, path, body, status, reason):
    found, answer = rest(path, body)
    assert (found, answer.keys()) == (status, {"error"})
    assert reason in answer["error"]
    assert "\n" not in answer["error"] and "Traceback" not in answer["error"]


def test_malformed_http_is_rejected_and_not_logged(server, rest, capfd):
    body = {"instances": ["a secret"]}
    assert rest(PREDICT, body, **{"Content-Encoding": "gzip"})[0] == 400
    address = ("127.0.0.1", server.rest_api_port)
    with socket.create_connection(address) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\na secret\r\n\r\n")
        assert connection.recv(1000).startswith(b"HTTP/1.0 400 ")
    assert not capfd.readouterr().err


def test_cross_site_requests_are_rejected(rest):
    for site, status in (("cross-site", 403), ("same-origin", 200)):
        headers = {"Sec-Fetch-Site": site}
        assert rest(PREDICT, {"instances": ["a"]}, **headers)[0] == status


def test_the_page_and_its_model_are_served(http, rest):
    status, _, headers = http("/")
    assert (status, headers.get_content_type()) == (200, "text/html")
    assert "default-src 'none'" in headers["Content-Security-Policy"]
    assert "Access-Control-Allow-Origin" not in headers
    assert http("/page/page.js")[0] == 200
    assert rest("/model") == (200, {"name": "m", "version": 1, "about": None})


def test_metrics_count_requests(server, rest):
    names = (
        't2t_lite_requests_total{api="REST",code="INVALID_ARGUMENT"}',
        't2t_lite_request_seconds_count{api="REST"}',
        "t2t_lite_texts_total",
    )
    before = [metric(server, name) for name in names]
    rest(PREDICT, {"instances": ["a", "b"]})
    rest(PREDICT, {"instances": [1]})
    added = [metric(server, n) - b for n, b in zip(names, before, strict=True)]
    assert (added[0], added[2]) == (1, 2)
    assert added[1] >= 2
    assert metric(server, "t2t_lite_version") == 1


def test_grpc_response_has_the_fields_of_tensorflow_serving(stub):
    response = stub.Predict(predict_request(["hey"], "m"), timeout=30)
    assert response.model_spec.version.value == 1
    assert response.outputs["outputs"].string_val == [b"HEY"]
    assert response.outputs["scores"].float_val == pytest.approx([0.3])
    assert tf.make_ndarray(response.outputs["scores"]).shape == (1,)
    request = predict_request(["a"], "m", "both", targets=["b"])
    joined = stub.Predict(request, timeout=30).outputs["joined"]
    assert joined.string_val == [b"a+b"]


def test_grpc_response_has_only_the_filtered_outputs(stub):
    request = predict_request(["a"], "m")
    request.output_filter.append("scores")
    assert set(stub.Predict(request, timeout=30).outputs) == {"scores"}


def test_grpc_has_status_metadata_and_health(channel, stub):
    request = get_model_status_pb2.GetModelStatusRequest()
    request.model_spec.name = "m"
    models = model_service_pb2_grpc.ModelServiceStub(channel)
    (status,) = models.GetModelStatus(request).model_version_status
    assert (status.version, status.state) == (1, 30)
    assert status.status.error_code == 0
    request = get_model_metadata_pb2.GetModelMetadataRequest(
        metadata_field=["signature_def"]
    )
    request.model_spec.name = "m"
    packed = stub.GetModelMetadata(request).metadata["signature_def"]
    signatures = get_model_metadata_pb2.SignatureDefMap()
    assert packed.Unpack(signatures)
    assert {"serving_default", "both"} <= set(signatures.signature_def)
    health = health_pb2_grpc.HealthStub(channel)
    assert health.Check(health_pb2.HealthCheckRequest()).status == 1


def bad_requests():
    yield predict_pb2.PredictRequest(), "NOT_FOUND", "m version 1"
    yield predict_request(["a"], "n"), "NOT_FOUND", "not n"
    yield predict_request(["a"], "m", "x"), "FAILED_PRECONDITION", "got x"
    yield predict_request(["a"], "m", x=["b"]), "INVALID_ARGUMENT", "inputs"
    request = predict_request(["a"], "m")
    request.model_spec.version_label = "canary"
    yield request, "INVALID_ARGUMENT", "version_label"
    request = predict_request(["a"], "m")
    request.inputs["inputs"].CopyFrom(tf.make_tensor_proto([1]))
    yield request, "INVALID_ARGUMENT", "DT_STRING"
    for size in (2**40, 2**20, 2, 0, -1):
        request = predict_request(["a"], "m")
        request.inputs["inputs"].tensor_shape.dim[0].size = size
        yield request, "INVALID_ARGUMENT", "shape"
    yield predict_request(["a"] * 21, "m"), "INVALID_ARGUMENT", "got 21"
    yield predict_request([["a"]], "m"), "INVALID_ARGUMENT", "shape"
    request = predict_request(["a"], "m")
    request.output_filter.append("x")
    yield request, "INVALID_ARGUMENT", "output_filter"
    yield predict_request(["a"], "n" * 3000), "NOT_FOUND", "not nnn"
    yield predict_request(["whisper"], "m"), "INVALID_ARGUMENT", "not whisper"
    yield predict_request(["a" * 5000], "m"), "RESOURCE_EXHAUSTED", "larger"


@pytest.mark.parametrize(("request_", "code", "reason"), list(bad_requests()))
def test_grpc_errors_are_one_line(stub, request_, code, reason):
    start = time.monotonic()
    with pytest.raises(grpc.RpcError) as found:
        stub.Predict(request_, timeout=30)
    assert time.monotonic() - start < 5
    assert found.value.code().name == code
    assert reason in found.value.details()
    assert "\n" not in found.value.details()


def test_malformed_protos_and_other_methods_are_rejected(channel, stub, capfd):
    predict = channel.unary_unary(
        "/tensorflow.serving.PredictionService/Predict"
    )
    with pytest.raises(grpc.RpcError) as found:
        predict(b"\xff", timeout=30)
    assert found.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    with pytest.raises(grpc.RpcError) as found:
        stub.Classify(classification_pb2.ClassificationRequest(), timeout=30)
    assert found.value.code() == grpc.StatusCode.UNIMPLEMENTED
    assert not capfd.readouterr().err


def test_concurrent_requests_each_get_their_own_answer(rest, stub):
    def send(number):
        text = f"text {'x' * (number % 90)} {number}"
        if number % 2:
            request = predict_request([text, "b"], "m")
            outputs = stub.Predict(request, timeout=30).outputs["outputs"]
            return outputs.string_val == [text.upper().encode(), b"B"]
        body = {"signature_name": "letters", "instances": [text]}
        return rest(PREDICT, body)[1] == {"predictions": [list(text)]}

    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        assert all(pool.map(send, range(200)))
