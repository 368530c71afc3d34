"""TensorProtos to tensors and back."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.core.framework import tensor_pb2, tensor_shape_pb2

from t2t_lite.serving.server.batching import Tensors
from t2t_lite.serving.server.refusal import invalid
from t2t_lite.serving.server.signature import TensorSpec

# The fields that the stock server fills, by kinds and sizes of numpy's types.
_FIELDS = {
    "O": "string_val",
    "b": "bool_val",
    "f4": "float_val",
    "f8": "double_val",
    "i8": "int64_val",
    "u4": "uint32_val",
    "u8": "uint64_val",
    "i": "int_val",
    "u": "int_val",
}


def tensors_of(
    protos: Mapping[str, Any], specs: Mapping[str, TensorSpec], most: int
) -> Tensors:
    """The inputs of a request.

    Args:
      protos: TensorProtos by name.
      specs: the inputs of the signature by name.
      most: elements of a tensor. A proto of few bytes may claim any number.

    Raises:
      Refusal: they are not what the signature takes.
    """
    if protos.keys() != specs.keys():
        extra = ",".join(sorted(protos.keys() - specs.keys()))
        missing = ",".join(sorted(specs.keys() - protos.keys()))
        raise invalid(
            f"input size does not match signature: {len(protos)}!="
            f"{len(specs)}. Sent extra: {{{extra}}}. Missing but required: "
            f"{{{missing}}}."
        )
    return {
        name: _tensor(name, protos[name], spec, most)
        for name, spec in specs.items()
    }


def _tensor(name: str, proto: Any, spec: TensorSpec, most: int) -> np.ndarray:
    sizes = [dim.size for dim in proto.tensor_shape.dim]
    known = min(sizes, default=0) >= 0 and not proto.tensor_shape.unknown_rank
    if not known or math.prod(sizes) > most:
        raise invalid(f"Input {name}: its shape cannot be held.")
    spec.check_shape(name, tuple(sizes))
    try:
        dtype = tf.as_dtype(proto.dtype)
    except TypeError as error:
        raise invalid(f"Input {name}: it has no type.") from error
    if dtype.as_numpy_dtype != spec.dtype:
        raise invalid(
            f"Input {name}: Expects it to be {_name(spec.dtype)} but "
            f"{dtype.name} is provided."
        )
    try:
        return tf.make_ndarray(proto)
    except (ValueError, TypeError, IndexError) as error:
        raise invalid(f"Input {name}: {error}") from error


def _name(dtype: np.dtype) -> str:
    return tf.as_dtype(dtype).name


def proto_of(tensor: np.ndarray) -> tensor_pb2.TensorProto:
    """A tensor as the stock server sends it: in the field of its type."""
    kind = tensor.dtype.kind
    field = _FIELDS.get(f"{kind}{tensor.dtype.itemsize}", _FIELDS.get(kind))
    if field is None:  # small floats
        return tf.make_tensor_proto(tensor)
    dims = [tensor_shape_pb2.TensorShapeProto.Dim(size=n) for n in tensor.shape]
    proto = tensor_pb2.TensorProto(
        dtype=tf.as_dtype(tensor.dtype).as_datatype_enum,
        tensor_shape=tensor_shape_pb2.TensorShapeProto(dim=dims),
    )
    getattr(proto, field).extend(tensor.ravel().tolist())
    return proto
