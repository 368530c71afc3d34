"""The messages of `PredictionService.Predict`, without TensorFlow.

The ones in tensorflow-serving-api import all of TensorFlow, which takes
seconds. These have the same bytes; fields that no text needs are left out.
"""

import array
import math
import sys
from collections.abc import Sequence
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError

from t2t_lite.serving.client.columns import Columns
from t2t_lite.serving.client.patience import Refused

METHOD = "/tensorflow.serving.PredictionService/Predict"
_PACKAGE = "t2t_lite.client"
# Fields of each message: number, type and, of "*", that it is repeated. A map
# is on the wire what repeated pairs of key and value are.
_MESSAGES = {
    "Dim": {"size": (1, "int64")},
    "Shape": {"dim": (2, "*Dim")},
    "Tensor": {
        "dtype": (1, "int32"),
        "tensor_shape": (2, "Shape"),
        "tensor_content": (4, "bytes"),
        "float_val": (5, "*float"),
        "string_val": (8, "*bytes"),
        "bool_val": (11, "*bool"),
    },
    "Named": {"key": (1, "string"), "value": (2, "Tensor")},
    "Int64Value": {"value": (1, "int64")},
    "ModelSpec": {
        "name": (1, "string"),
        "version": (2, "Int64Value"),
        "signature_name": (3, "string"),
    },
    "PredictRequest": {
        "model_spec": (1, "ModelSpec"),
        "inputs": (2, "*Named"),
    },
    "PredictResponse": {"outputs": (1, "*Named")},
}
_FLOAT, _STRING, _BOOL = 1, 7, 10  # of TensorFlow's DataType


def _classes() -> dict[str, Any]:
    """The class of each message."""
    field = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(
        name="t2t_lite_client.proto", package=_PACKAGE, syntax="proto3"
    )
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for field_name, (number, kind) in fields.items():
            made = message.field.add(name=field_name, number=number)
            made.label = (
                field.LABEL_REPEATED
                if kind.startswith("*")
                else field.LABEL_OPTIONAL
            )
            kind = kind.removeprefix("*")
            if kind in _MESSAGES:
                made.type = field.TYPE_MESSAGE
                made.type_name = f".{_PACKAGE}.{kind}"
            else:
                made.type = field.Type.Value(f"TYPE_{kind.upper()}")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {
        name: message_factory.GetMessageClass(
            pool.FindMessageTypeByName(f"{_PACKAGE}.{name}")
        )
        for name in _MESSAGES
    }


_CLASSES = _classes()


def request(
    model: str, version: int | None, signature: str, texts: Sequence[str]
) -> bytes:
    """A PredictRequest with one input, `inputs`."""
    made = _CLASSES["PredictRequest"]()
    made.model_spec.name = model
    made.model_spec.signature_name = signature
    if version is not None:
        made.model_spec.version.value = version
    tensor = made.inputs.add(key="inputs").value
    tensor.dtype = _STRING
    tensor.tensor_shape.dim.add(size=len(texts))
    tensor.string_val.extend(text.encode("utf-8") for text in texts)
    return made.SerializeToString()


def response(content: bytes) -> Columns:
    """The outputs of a PredictResponse: strings, floats and booleans.

    Raises:
      Refused: it is none.
    """
    try:
        found = _CLASSES["PredictResponse"].FromString(content)
    except DecodeError as error:
        raise Refused(f"The answer is no PredictResponse: {error}") from error
    columns = {
        each.key: _rows(each.value)
        for each in found.outputs
        if each.value.dtype in (_FLOAT, _STRING, _BOOL)
    }
    return {name: rows for name, rows in columns.items() if rows is not None}


def _rows(tensor: Any) -> list[Any] | None:
    """A tensor [B] or [B, K] as lists; None: it has another shape."""
    shape = [dim.size for dim in tensor.tensor_shape.dim]
    if len(shape) not in (1, 2):
        return None
    flat = _values(tensor)
    count = math.prod(shape)
    if flat and len(flat) < count:  # the last one stands for the rest
        flat += flat[-1:] * (count - len(flat))
    if len(flat) != count:
        raise Refused(f"A tensor of shape {shape} has {len(flat)} values.")
    if len(shape) == 1:
        return flat
    width = shape[1]
    return [flat[i * width : (i + 1) * width] for i in range(shape[0])]


def _values(tensor: Any) -> list[Any]:
    if tensor.dtype == _STRING:
        return [text.decode("utf-8", "replace") for text in tensor.string_val]
    if tensor.dtype == _BOOL:
        return [bool(each) for each in tensor.tensor_content or tensor.bool_val]
    if not tensor.tensor_content:
        return list(tensor.float_val)
    numbers = array.array("f", tensor.tensor_content)  # little-endian
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers.tolist()
