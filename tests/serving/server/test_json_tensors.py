import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from t2t_lite.serving.server import json_tensors
from t2t_lite.serving.server.refusal import Refusal
from t2t_lite.serving.server.signature import TensorSpec

TEXT = TensorSpec(np.dtype(object), (None,))
# The example of TensorFlow Serving's documentation.
THREE = {
    "tag": TEXT,
    "signal": TensorSpec(np.dtype(np.int64), (None, 5)),
    "sensor": TensorSpec(np.dtype(np.float32), (None, 2, 2)),
}


def inputs_of(request, specs):
    found = json_tensors.tensors_of(
        json_tensors.parse(json.dumps(request).encode()), specs
    )
    return {name: tensor.tolist() for name, tensor in found.items()}


def test_one_input_in_rows_and_columns_is_the_same_tensor():
    for key in ("instances", "inputs"):
        found = inputs_of({key: ["foo", "bär"]}, {"x": TEXT})
        assert found == {"x": [b"foo", "bär".encode()]}
    named = inputs_of({"inputs": {"x": ["foo"]}}, {"x": TEXT})
    rows = inputs_of({"instances": [{"x": "foo"}]}, {"x": TEXT})
    assert named == rows == {"x": [b"foo"]}


def test_several_inputs_are_read_as_the_documentation_shows_them():
    columns = {
        "tag": ["foo", "bar"],
        "signal": [[1, 2, 3, 4, 5], [3, 4, 1, 2, 5]],
        "sensor": [[[1, 2], [3, 4]], [[4, 5], [6, 8]]],
    }
    rows = [
        {"tag": "foo", "signal": [1, 2, 3, 4, 5], "sensor": [[1, 2], [3, 4]]},
        {"tag": "bar", "signal": [3, 4, 1, 2, 5], "sensor": [[4, 5], [6, 8]]},
    ]
    expected = columns | {"tag": [b"foo", b"bar"]}
    assert inputs_of({"inputs": columns}, THREE) == expected
    assert inputs_of({"instances": rows}, THREE) == expected


def test_bytes_come_and_go_as_base64():
    sent = {"instances": [{"b64": "/w=="}, "a"]}
    assert inputs_of(sent, {"x": TEXT}) == {"x": [b"\xff", b"a"]}
    outputs = {"image_bytes": np.array([b"\xff"], object)}
    assert json.loads(json_tensors.json_of(outputs, True)) == {
        "predictions": [{"b64": "/w=="}]
    }


def test_the_only_output_has_no_name_and_several_have():
    one = {"y": np.array([1.5, 2.0], np.float32)}
    two = one | {"z": np.array([b"a", b"b"], object)}
    for outputs, in_rows, expected in (
        (one, True, {"predictions": [1.5, 2.0]}),
        (one, False, {"outputs": [1.5, 2.0]}),
        (
            two,
            True,
            {"predictions": [{"y": 1.5, "z": "a"}, {"y": 2.0, "z": "b"}]},
        ),
        (two, False, {"outputs": {"y": [1.5, 2.0], "z": ["a", "b"]}}),
    ):
        assert json.loads(json_tensors.json_of(outputs, in_rows)) == expected


def test_numbers_are_the_shortest_of_their_precision():
    outputs = {"y": np.array([0.2, -0.1778081], np.float32)}
    assert json_tensors.json_of(outputs, False) == (
        b'{"outputs": [0.2, -0.1778081]}'
    )


@given(st.lists(st.text()))
def test_texts_come_back_as_they_went(texts):
    body = json.dumps({"inputs": texts}).encode()
    try:
        inputs = json_tensors.tensors_of(json_tensors.parse(body), {"x": TEXT})
    except Refusal as refusal:  # half of a surrogate pair
        assert "surrogates" in refusal.message
        return
    answer = json.loads(json_tensors.json_of(inputs, False))
    assert answer == {"outputs": texts}


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"", "The document is empty"),
        (b"{", "JSON Parse error"),
        (b"\xff", "JSON Parse error"),
        (b"[" * 100_000, "JSON Parse error"),
        (b"[1]", "Is not object"),
        (b'{"signature_name": 1}', "'signature_name' key must be a string"),
        (b"{}", "Missing 'inputs' or 'instances' key"),
        (b'{"inputs": ["a"], "instances": ["a"]}', "only one of"),
        (b'{"instances": "a"}', "to be an list/array"),
        (b'{"instances": []}', "No values in 'instances' array"),
        (b'{"instances": [1]}', "not of expected type: string"),
        (b'{"instances": [null]}', "not of expected type: string"),
        (b'{"instances": [{"b64": "?"}]}', "unable to base64 decode"),
        (b'{"instances": ["a", {"x": "a"}]}', "got object at item 1"),
        (b'{"instances": [{"x": "a"}, "a"]}', "got list at item 1"),
        (b'{"instances": [{"y": "a"}]}', "keys must be equal to: x"),
        (b'{"instances": [["a"]]}', r"shape \[\?\]; got \[1, 1\]"),
        (b'{"inputs": "a"}', r"shape \[\?\]; got \[\]"),
        (b'{"inputs": {"y": ["a"]}}', "Missing named input: x"),
        (b'{"inputs": ["a", ["b"]]}', "not of expected type"),
    ],
)
def test_what_is_no_request_is_refused_in_one_line(body, reason):
    with pytest.raises(Refusal, match=reason) as found:
        json_tensors.tensors_of(json_tensors.parse(body), {"x": TEXT})
    assert found.value.status.http == 400
    assert "\n" not in found.value.message


@pytest.mark.parametrize(
    ("dtype", "value"),
    [
        (np.int8, 128),
        (np.int32, 1.5),
        (np.uint8, -1),
        (np.int64, True),
        (np.float32, 1e39),
        (np.float32, "1"),
        (bool, 1),
        (np.complex64, 1),
    ],
)
def test_numbers_that_a_type_does_not_hold_are_refused(dtype, value):
    spec = TensorSpec(np.dtype(dtype), (None,))
    with pytest.raises(Refusal, match="Input x"):
        inputs_of({"inputs": [value]}, {"x": spec})


def test_lists_of_different_sizes_are_refused():
    spec = TensorSpec(np.dtype(np.int32), None)
    with pytest.raises(Refusal, match="unexpected size: 1 expected size: 2"):
        inputs_of({"inputs": [[1, 2], [3]]}, {"x": spec})


def test_outputs_without_common_rows_cannot_be_rows():
    outputs = {"y": np.zeros(2), "z": np.zeros(3)}
    with pytest.raises(Refusal, match="inconsistent batch size"):
        json_tensors.json_of(outputs, True)
    assert json_tensors.json_of(outputs, False)
