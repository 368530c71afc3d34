"""Our messages have the bytes of the public ones."""

import json
import subprocess
import sys

import pytest

from t2t_lite.serving.client import messages
from t2t_lite.serving.client.patience import Refused

predict_pb2 = pytest.importorskip("tensorflow_serving.apis.predict_pb2")


@pytest.mark.parametrize("version", [None, 0, 3])
def test_a_request_is_what_the_public_message_reads(version):
    import tensorflow as tf

    texts = ["two dogs", "", "zwei Hünde"]
    read = predict_pb2.PredictRequest.FromString(
        messages.request("ende", version, "nbest", texts)
    )
    expected = predict_pb2.PredictRequest()
    expected.model_spec.name = "ende"
    expected.model_spec.signature_name = "nbest"
    if version is not None:
        expected.model_spec.version.value = version
    expected.inputs["inputs"].CopyFrom(tf.make_tensor_proto(texts))
    assert read == expected


@pytest.mark.parametrize("as_content", [False, True])
def test_a_response_is_read_as_the_public_message_wrote_it(as_content):
    import numpy as np
    import tensorflow as tf

    columns = {
        "outputs": [["ä", "b", "c"], ["d", "", "f"]],
        "scores": [[-0.5, -1.0, -1e9], [-2.0, -2.0, -2.0]],
        "cut": [True, False],
    }
    response = predict_pb2.PredictResponse()
    for name, rows in columns.items():
        if as_content and name != "outputs":  # numpy arrays become content
            rows = np.array(rows, np.float32 if name == "scores" else bool)
        response.outputs[name].CopyFrom(tf.make_tensor_proto(rows))
    response.outputs["long"].CopyFrom(tf.make_tensor_proto([1, 2]))
    assert messages.response(response.SerializeToString()) == columns


def test_the_last_value_stands_for_those_that_follow():
    response = predict_pb2.PredictResponse()
    tensor = response.outputs["scores"]
    tensor.dtype = 1
    tensor.tensor_shape.dim.add(size=4)
    tensor.float_val.extend([-1.0, -2.0])
    found = messages.response(response.SerializeToString())
    assert found == {"scores": [-1.0, -2.0, -2.0, -2.0]}


@pytest.mark.parametrize("content", [b"\xff", b"\x0a\x05abc"])
def test_what_is_no_response_is_refused(content):
    with pytest.raises(Refused, match="no PredictResponse"):
        messages.response(content)


def test_a_client_over_grpc_loads_no_tensorflow():
    code = (
        "import json, sys\n"
        "from t2t_lite.serving.client.address import Address\n"
        "from t2t_lite.serving.client.lines import connect\n"
        "connect(Address.parse('grpc://127.0.0.1:1'), 'a')\n"
        "print(json.dumps([m for m in ('grpc', 'tensorflow', 'numpy')"
        " if m in sys.modules]))\n"
    )
    out = subprocess.check_output([sys.executable, "-c", code], text=True)
    assert json.loads(out) == ["grpc"]
