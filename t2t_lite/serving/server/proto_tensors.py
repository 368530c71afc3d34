"""TensorProtos to tensors and back."""

import functools
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.core.framework import tensor_pb2

from t2t_lite.serving.server.batching import Tensors
from t2t_lite.serving.server.refusal import Refusal, invalid
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
    if proto.dtype != _enum(spec.dtype):
        raise _other_type(name, proto.dtype, spec)
    # The usual case, without what TensorFlow does for all others.
    if spec.dtype.kind == "O" and len(proto.string_val) == math.prod(sizes):
        return np.array(list(proto.string_val), object).reshape(sizes)
    try:
        return tf.make_ndarray(proto)
    except (ValueError, TypeError, IndexError) as error:
        raise invalid(f"Input {name}: {error}") from error


def _other_type(name: str, number: int, spec: TensorSpec) -> Refusal:
    try:
        given = tf.as_dtype(number).name
    except TypeError:
        return invalid(f"Input {name}: it has no type.")
    wanted = tf.as_dtype(spec.dtype).name
    return invalid(
        f"Input {name}: Expects it to be {wanted} but {given} is provided."
    )


@functools.cache
def _enum(dtype: np.dtype) -> int:
    """The number of a type in a TensorProto."""
    return tf.as_dtype(dtype).as_datatype_enum


def fill(proto: tensor_pb2.TensorProto, tensor: np.ndarray) -> None:
    """Writes a tensor as the stock server sends it: in the field of its type.

    Args:
      proto: an empty one, filled in place, as a copy costs as much again.
      tensor: what it will hold.
    """
    kind = tensor.dtype.kind
    field = _FIELDS.get(f"{kind}{tensor.dtype.itemsize}", _FIELDS.get(kind))
    if field is None:  # small floats
        proto.CopyFrom(tf.make_tensor_proto(tensor))
        return
    proto.dtype = _enum(tensor.dtype)
    proto.tensor_shape.SetInParent()  # also of a scalar
    for size in tensor.shape:
        proto.tensor_shape.dim.add(size=size)
    getattr(proto, field).extend(tensor.ravel().tolist())
