"""Fuzzing of requests: a result or an error of the protocol."""

import contextlib
import http.client
import json

import grpc
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st
from tensorflow_serving.apis import (
    get_model_metadata_pb2,
    get_model_status_pb2,
    predict_pb2,
)

from support.mutations import hostile, mutated_json
from support.served_model import predict_request, save, serving
from t2t_lite.decoding.requests import Pair, Request
from t2t_lite.decoding.search.settings import SearchSettings
from t2t_lite.decoding.stream import translate_lines
from t2t_lite.tokenizers.base import EOS_ID

BODIES = (
    {"inputs": ["a", {"b64": "w6Q="}]},
    {"inputs": {"inputs": ["a"]}, "signature_name": "serving_default"},
    {"instances": ["a", "b"], "signature_name": "letters"},
    {"inputs": {"inputs": ["a"], "targets": ["b"]}, "signature_name": "both"},
)


def as_bytes(record):
    return mutated_json(record).map(lambda x: json.dumps(x).encode())


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    save(folder / "1")
    with serving(folder) as server:
        yield server


@given(data=st.data())
def test_rest_bodies(server, data):
    body = data.draw(
        st.sampled_from(BODIES).flatmap(as_bytes)
        | hostile(*(json.dumps(body).encode() for body in BODIES))
    )
    connection = http.client.HTTPConnection("127.0.0.1", server.rest_api_port)
    with contextlib.closing(connection):
        connection.request("POST", "/v1/models/m:predict", body)
        response = connection.getresponse()
        answer = json.loads(response.read())
    assert response.status in (200, 400, 404, 413), (response.status, answer)
    if response.status != 200:
        assert isinstance(answer["error"], str)
    else:
        request = json.loads(body)
        texts = request.get("instances", request.get("inputs"))
        texts = next(iter(texts.values())) if isinstance(texts, dict) else texts
        (found,) = answer.values()
        found = next(iter(found.values())) if isinstance(found, dict) else found
        assert len(found) == len(texts)


def grpc_requests():
    """Return valid requests by method."""
    metadata = get_model_metadata_pb2.GetModelMetadataRequest()
    metadata.metadata_field.append("signature_def")
    status = get_model_status_pb2.GetModelStatusRequest()
    for each in (metadata, status):
        each.model_spec.name = "m"
        each.model_spec.version.value = 1
    predict = predict_request(["a", "é"], "m")
    predict.output_filter.append("outputs")
    pair = {"targets": np.array(["b"], object)}
    return {
        "PredictionService/Predict": predict,
        "PredictionService/Predict ": predict_request(
            ["a"], "m", "both", **pair
        ),
        "PredictionService/GetModelMetadata": metadata,
        "ModelService/GetModelStatus": status,
    }


REFUSED = ("INVALID_ARGUMENT", "NOT_FOUND", "FAILED_PRECONDITION")


@given(data=st.data())
def test_grpc_bodies(server, data):
    method, valid = data.draw(st.sampled_from([*grpc_requests().items()]))
    method, body = method.strip(), data.draw(hostile(valid.SerializeToString()))
    with grpc.insecure_channel(f"127.0.0.1:{server.port}") as channel:
        call = channel.unary_unary(f"/tensorflow.serving.{method}")
        try:
            response = call(body, timeout=30)
        except grpc.RpcError as error:
            assert error.code().name in REFUSED, (method, body, error)
            return
    if method.endswith("/Predict"):
        inputs = predict_pb2.PredictRequest.FromString(body).inputs.values()
        found = predict_pb2.PredictResponse.FromString(response).outputs
        counts = {len(each.string_val) for each in inputs}
        assert {x.tensor_shape.dim[0].size for x in found.values()} == counts


class Echo:
    """An engine whose translations are the sources, without a model."""

    settings = SearchSettings()
    max_length = 99
    constraint = target_encoder = source_encoder = None

    def check_supported(self, options):
        self.settings.check_supported(options)

    def translate(self, texts, num_hypotheses=1, options=None):
        shape = (len(texts), num_hypotheses)
        return {
            "outputs": tf.repeat(texts[:, None], num_hypotheses, axis=1),
            "scores": tf.zeros(shape),
            "tokens": tf.fill([*shape, 1], EOS_ID),
            "cut": tf.fill(shape[:1], False),
        }


REQUEST = {"text": "a b", "id": 7, "tag": "2de", "prefix": "x"}
REQUEST |= {"constraints": ["y", "z"], "bad_phrases": ["no"]}


@given(
    st.lists(as_bytes(REQUEST) | hostile(json.dumps(REQUEST).encode())),
    st.integers(1, 4),
)
def test_decoder_requests(lines, count):
    results = translate_lines(
        Echo(),
        map(Request.parse, lines),
        num_hypotheses=count,
        rerank=True,
        tags=["<2de>"],
        note=lambda *note: None,
    )
    for number, result in zip(range(1, len(lines) + 1), results, strict=True):
        record = json.loads(result.to_json())
        assert record["line"] == number
        assert ("error" in record) != bool(result.hypotheses)
        assert "\n" not in result.to_json() + result.to_text(2)
    for line in lines:
        assert {type(Pair.parse(line)), type(Pair.split(line))} == {Pair}
