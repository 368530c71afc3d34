"""REST and gRPC, asked with the public protos as a stock client asks."""

import concurrent.futures
import json
import re
import socket
import urllib.error
import urllib.request

import grpc
import numpy as np
import pytest
import tensorflow as tf
from grpc_health.v1 import health_pb2, health_pb2_grpc
from tensorflow_serving.apis import (
    get_model_metadata_pb2,
    get_model_status_pb2,
    model_service_pb2_grpc,
    predict_pb2,
    prediction_service_pb2_grpc,
)

from support.served_model import (
    Held,
    predict_request,
    save,
    serving,
    until,
)
from t2t_lite.serving.server.batching import Batching
from t2t_lite.serving.server.predict import Limits


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    save(folder / "1", warmup=b"hello")
    log = folder / "access.jsonl"
    limits = Limits(body_bytes=4000, texts=20, characters=100)
    how = Batching(workers=2, max_batch_size=8)
    with serving(folder, access_log=log, limits=limits, batching=how) as (
        server,
        _,
    ):
        server.log = log
        yield server


@pytest.fixture
def http(server):
    def ask(path, body=None, method=None, **headers):
        if body is not None and not isinstance(body, bytes):
            body = json.dumps(body).encode()
        url = f"http://127.0.0.1:{server.rest_api_port}{path}"
        request = urllib.request.Request(url, body, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=30) as response:
                return response.status, response.read(), response.headers
        except urllib.error.HTTPError as error:
            return error.code, error.read(), error.headers

    return ask


@pytest.fixture
def rest(http):
    def ask(path, *more, **how):
        status, body, headers = http(path, *more, **how)
        assert headers["Content-Type"].startswith("application/json")
        return status, json.loads(body)

    return ask


@pytest.fixture
def channel(server):
    with grpc.insecure_channel(f"127.0.0.1:{server.port}") as channel:
        yield channel


@pytest.fixture
def stub(channel):
    return prediction_service_pb2_grpc.PredictionServiceStub(channel)


def test_rest_answers_rows_and_columns(rest):
    path = "/v1/models/m:predict"
    assert rest(path, {"instances": ["hey", "grüße"]}) == (
        200,
        {
            "predictions": [
                {"outputs": "HEY", "scores": 0.3},
                {"outputs": "GRÜSSE", "scores": 0.7},
            ]
        },
    )
    assert rest(path, {"inputs": {"inputs": ["hey"]}}) == (
        200,
        {"outputs": {"outputs": ["HEY"], "scores": [0.3]}},
    )
    assert rest(path, {"inputs": []}) == (
        200,
        {"outputs": {"outputs": [], "scores": []}},
    )


def test_rest_answers_several_inputs_and_a_single_output(rest):
    both = {"signature_name": "both"}
    rows = [{"inputs": "a", "pair": [1, 2]}, {"inputs": "b", "pair": [3, 4.5]}]
    columns = {"inputs": ["a", "b"], "pair": [[1, 2], [3, 4.5]]}
    path = "/v1/models/m/versions/1:predict"
    assert rest(path, both | {"instances": rows}) == (
        200,
        {"predictions": [3.2, 7.7]},
    )
    assert rest(path, both | {"inputs": columns}) == (
        200,
        {"outputs": [3.2, 7.7]},
    )


def test_rest_tells_the_status_of_versions_as_documented(rest):
    expected = {
        "model_version_status": [
            {
                "version": "1",
                "state": "AVAILABLE",
                "status": {"error_code": "OK", "error_message": ""},
            }
        ]
    }
    assert rest("/v1/models/m") == (200, expected)
    assert rest("/v1/models/m/versions/1") == (200, expected)
    assert rest("/v1/models/m/versions/2")[0] == 404
    assert rest(f"/v1/models/m/versions/{'9' * 5000}")[0] == 400


def test_rest_takes_paths_in_capitals_as_the_stock_server_does(rest):
    assert rest("/V1/MODELS/m")[0] == 200


def test_rest_tells_metadata_as_documented(rest):
    status, told = rest("/v1/models/m/metadata")
    assert status == 200
    assert told["model_spec"] == {
        "name": "m",
        "signature_name": "",
        "version": "1",
    }
    signatures = told["metadata"]["signature_def"]["signature_def"]
    default = signatures["serving_default"]
    assert default["method_name"] == "tensorflow/serving/predict"
    assert default["inputs"]["inputs"] == {
        "dtype": "DT_STRING",
        "tensor_shape": {
            "dim": [{"size": "-1", "name": ""}],
            "unknown_rank": False,
        },
        "name": "serving_default_inputs:0",
    }


@pytest.mark.parametrize(
    ("path", "body", "status", "reason"),
    [
        ("/v1/models/n:predict", {"inputs": []}, 404, r"request: Latest\(n\)"),
        ("/v1/models/m/versions/7:predict", {}, 404, r"Specific\(m, 7\)"),
        ("/v1/models/m/labels/x:predict", {}, 400, "version label: x"),
        (f"/v1/models/m/versions/{2**64}:predict", {}, 400, "to numeric"),
        ("/v1/models/m:predict", b"{", 400, "JSON Parse error"),
        ("/v1/models/m:predict", {"inputs": [1]}, 400, "type: string"),
        (
            "/v1/models/m:predict",
            {"inputs": ["a"], "signature_name": "x"},
            400,
            '"x" not found in signature def',
        ),
        ("/v1/models/m:predict", {"inputs": ["a"] * 21}, 400, "20 texts"),
        ("/v1/models/m:predict", {"inputs": ["ä" * 101]}, 400, "got 101"),
        ("/v1/models/m:predict", b" " * 4001, 413, "4000 bytes"),
        ("/v1/models/m:predict", {"inputs": ["whisper"]}, 400, "not whisper"),
        ("/v1/models/m:classify", {}, 501, "not served"),
        ("/v1/models/m", {}, 400, "Malformed request: POST /v1/models/m"),
        ("/v1/models/m:predict", None, 400, "Malformed request: GET"),
        ("/v1/models", None, 400, "Missing model name"),
        ("/v1/models/n", None, 404, "any versions of model n"),
        ("/v1/models/n/metadata", None, 404, "not found"),
        ("/nothing", None, 404, "Not Found"),
        ("/page/..%2Frest.py", None, 404, "Not Found"),
    ],
)
def test_rest_refuses_in_one_line_with_a_status(
    rest, path, body, status, reason
):
    found, told = rest(path, body)
    assert found == status
    assert told.keys() == {"error"}
    assert re.search(reason, told["error"])
    assert "\n" not in told["error"] and "Traceback" not in told["error"]


def test_other_methods_are_refused(rest):
    error = {"error": "Malformed request: DELETE /v1/models/m"}
    assert rest("/v1/models/m", method="DELETE") == (400, error)
    assert rest("/models", method="DELETE")[0] == 405


def test_what_is_no_http_is_told_in_one_line_without_its_content(
    server, rest, capsys
):
    body = {"instances": ["a secret"]}
    gzip = {"Content-Encoding": "gzip"}
    error = {"error": "The body is not in its encoding."}
    assert rest("/v1/models/m:predict", body, **gzip) == (400, error)
    address = ("127.0.0.1", server.rest_api_port)
    with socket.create_connection(address) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\na secret\r\n\r\n")
        assert connection.recv(1000).startswith(b"HTTP/1.0 400 ")
    told = capsys.readouterr().err.splitlines()
    assert "Error handling request from 127.0.0.1: BadHttpMessage." in told
    assert not [line for line in told if "secret" in line or "File" in line]


def test_pages_of_other_sites_may_not_ask(rest):
    path, body = "/v1/models/m:predict", {"instances": ["a"]}
    for site, status in (("cross-site", 403), ("same-origin", 200)):
        assert rest(path, body, **{"Sec-Fetch-Site": site})[0] == status


def test_the_page_comes_under_its_policy(http):
    status, body, headers = http("/")
    assert (status, headers.get_content_type()) == (200, "text/html")
    assert "default-src 'none'" in headers["Content-Security-Policy"]
    assert "Access-Control-Allow-Origin" not in headers
    assert http("/page/page.js")[0] == 200


def test_models_are_listed_for_the_page(rest):
    assert rest("/models") == (
        200,
        {
            "models": [
                {
                    "name": "m",
                    "versions": [
                        {"version": "1", "state": "AVAILABLE", "about": None}
                    ],
                    "about": None,
                }
            ]
        },
    )


def test_grpc_answers_in_the_fields_of_the_stock_server(stub):
    response = stub.Predict(predict_request(["hey"], "m"), timeout=30)
    assert response.model_spec.name == "m"
    assert response.model_spec.version.value == 1
    assert response.model_spec.signature_name == "serving_default"
    assert response.outputs["outputs"].string_val == [b"HEY"]
    (score,) = response.outputs["scores"].float_val
    assert score == pytest.approx(0.3)
    assert not response.outputs["scores"].tensor_content
    assert tf.make_ndarray(response.outputs["scores"]).shape == (1,)


def test_grpc_takes_content_and_fields_alike(stub):
    pair = np.array([[1, 2]], np.float32)
    by_content = predict_request(["a"], "m", "both", pair=pair)
    by_field = predict_request(["a"], "m", "both", pair=pair)
    by_field.inputs["pair"].tensor_content = b""
    by_field.inputs["pair"].float_val.extend([1, 2])
    for request in (by_content, by_field):
        sums = stub.Predict(request, timeout=30).outputs["sum"].float_val
        assert list(sums) == pytest.approx([3.2])


def test_grpc_answers_only_the_outputs_that_are_asked_for(stub):
    request = predict_request(["a"], "m")
    request.output_filter.append("scores")
    assert set(stub.Predict(request, timeout=30).outputs) == {"scores"}


def test_grpc_tells_status_metadata_and_health(channel, stub):
    request = get_model_status_pb2.GetModelStatusRequest()
    request.model_spec.name = "m"
    models = model_service_pb2_grpc.ModelServiceStub(channel)
    (status,) = models.GetModelStatus(request).model_version_status
    assert (status.version, status.state, status.status.error_code) == (
        1,
        30,
        0,
    )

    request = get_model_metadata_pb2.GetModelMetadataRequest(
        metadata_field=["signature_def"]
    )
    request.model_spec.name = "m"
    packed = stub.GetModelMetadata(request).metadata["signature_def"]
    signatures = get_model_metadata_pb2.SignatureDefMap()
    assert packed.Unpack(signatures)
    assert {"serving_default", "both", "letters"} <= set(
        signatures.signature_def
    )
    health = health_pb2_grpc.HealthStub(channel)
    assert health.Check(health_pb2.HealthCheckRequest()).status == 1


def wrong_requests():
    yield predict_pb2.PredictRequest(), "INVALID_ARGUMENT", "ModelSpec"
    yield predict_request(["a"], ""), "INVALID_ARGUMENT", "no name"
    yield predict_request(["a"], "n"), "NOT_FOUND", "Latest(n)"
    yield predict_request(["a"], "m", "x"), "FAILED_PRECONDITION", '"x"'
    yield predict_request(["a"], "m", x=[1]), "INVALID_ARGUMENT", "extra: {x}"
    request = predict_request(["a"], "m")
    request.inputs["inputs"].CopyFrom(tf.make_tensor_proto([1]))
    yield request, "INVALID_ARGUMENT", "string but int32"
    request = predict_request(["a"], "m")
    request.inputs["inputs"].tensor_shape.dim[0].size = 2**40
    yield request, "INVALID_ARGUMENT", "shape cannot be held"
    request = predict_request(["a"], "m")
    request.inputs["inputs"].tensor_shape.dim[0].size = 2**17
    yield request, "INVALID_ARGUMENT", "shape cannot be held"
    request = predict_request(["a"], "m")
    request.inputs["inputs"].tensor_shape.dim[0].size = 21
    yield request, "INVALID_ARGUMENT", "may hold 20 texts; got 21"
    request = predict_request([["a"]], "m")
    yield request, "INVALID_ARGUMENT", "must have the shape [?]"
    request = predict_request(["a"], "m")
    request.output_filter.append("x")
    yield request, "INVALID_ARGUMENT", "alias not found in signature: x"
    request = predict_request(["a"], "m")
    request.output_filter.extend(["scores", "scores"])
    yield request, "INVALID_ARGUMENT", "duplicate output tensor alias: scores"
    yield predict_request(["a"], "n" * 3000), "NOT_FOUND", "Latest(nnn"
    yield predict_request(["whisper"], "m"), "INVALID_ARGUMENT", "not whisper"
    yield predict_request(["a" * 5000], "m"), "RESOURCE_EXHAUSTED", "larger"


@pytest.mark.parametrize(("request_", "code", "reason"), list(wrong_requests()))
def test_grpc_refuses_in_one_line_with_a_status(stub, request_, code, reason):
    with pytest.raises(grpc.RpcError) as found:
        stub.Predict(request_, timeout=30)
    assert found.value.code().name == code
    assert reason in found.value.details()
    assert "\n" not in found.value.details()


def test_bytes_that_are_no_message_are_refused_as_grpc_does(channel, capsys):
    predict = channel.unary_unary(
        "/tensorflow.serving.PredictionService/Predict"
    )
    with pytest.raises(grpc.RpcError) as found:
        predict(b"\xff", timeout=30)
    assert found.value.code() == grpc.StatusCode.INTERNAL
    assert found.value.details() == "The request is no PredictRequest."
    assert "Traceback" not in capsys.readouterr().err


def test_calls_that_are_not_served_say_so(channel):
    stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)
    from tensorflow_serving.apis import classification_pb2

    with pytest.raises(grpc.RpcError) as found:
        stub.Classify(classification_pb2.ClassificationRequest(), timeout=30)
    assert found.value.code() == grpc.StatusCode.UNIMPLEMENTED


def test_many_at_once_each_get_their_own_answer(rest, stub):
    def ask(number):
        text = f"text {'x' * (number % 90)} {number}"
        if number % 2:
            outputs = stub.Predict(
                predict_request([text, "b"], "m"), timeout=30
            ).outputs
            return outputs["outputs"].string_val == [
                text.upper().encode(),
                b"B",
            ]
        body = {"signature_name": "letters", "instances": [text]}
        _, told = rest("/v1/models/m:predict", body)
        return told == {"predictions": [list(text)]}

    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        assert all(pool.map(ask, range(200)))


def test_metrics_count_what_was_answered_and_the_log_has_no_texts(
    server, rest, http
):
    secret = "a secret".ljust(71, "!")  # as long as no other test's
    rest("/v1/models/m:predict", {"instances": [secret]})
    _, body, _ = http("/monitoring/prometheus/metrics")
    lines = body.decode().splitlines()
    assert 't2t_lite_versions{model="m"} 1.0' in lines
    assert "t2t_lite_queue_texts 0.0" in lines
    assert any(
        line.startswith("t2t_lite_requests_total{")
        and 'code="200",model="m"' in line
        for line in lines
    )
    log = server.log.read_text()
    assert "secret" not in log
    lines = [json.loads(line) for line in log.splitlines()]
    line = next(one for one in lines if one["characters"] == len(secret))
    assert (line["api"], line["code"], line["model"]) == ("REST", "200", "m")
    assert (line["version"], line["texts"]) == (1, 1)


def test_tokens_are_counted_where_the_model_tells(tmp_path):
    (tmp_path / "1").mkdir()
    (tmp_path / "1" / "saved_model.pb").touch()
    # Of the best answers, then others; and of the texts.
    held = Held(lengths=[[3, 9], [4, 9]], source_lengths=[5, 6])
    held.go.set()
    with serving(tmp_path, held.load) as (server, _):
        url = f"http://127.0.0.1:{server.rest_api_port}/v1/models/m:predict"
        for _ in range(2):
            urllib.request.urlopen(url, b'{"inputs": ["a", "b"]}').read()
        until(server, 't2t_lite_target_tokens_total{model="m"} 14.0')
        until(server, 't2t_lite_source_tokens_total{model="m"} 22.0')


def test_an_access_log_that_cannot_be_written_costs_no_answer(tmp_path, capfd):
    save(tmp_path / "models" / "1")
    log = tmp_path / "logs" / "log"
    log.parent.mkdir()
    with serving(tmp_path / "models", access_log=log) as (server, _):
        url = f"http://127.0.0.1:{server.rest_api_port}/v1/models/m:predict"

        def ask():
            body = b'{"instances": ["a"]}'
            assert urllib.request.urlopen(url, body).status == 200

        ask()
        log.parent.rename(tmp_path / "away")
        ask()
        ask()
        log.parent.mkdir()
        ask()
    assert capfd.readouterr().err.count("Lines of the access log are lost") == 1
    assert len(log.read_text().splitlines()) == 1


def test_texts_are_logged_when_that_is_asked_for(tmp_path):
    save(tmp_path / "1")
    log = tmp_path / "log"
    with serving(tmp_path, access_log=log, log_texts=True) as (server, _):
        url = f"http://127.0.0.1:{server.rest_api_port}/v1/models/m:predict"
        urllib.request.urlopen(url, b'{"instances": ["a secret"]}').read()
    (line,) = map(json.loads, log.read_text().splitlines())
    assert line["inputs"] == {"inputs": ["a secret"]}
