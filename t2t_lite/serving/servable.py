"""Writes and checks SavedModels for the stock TensorFlow Serving."""

import hashlib
import os
import pathlib
import re
from collections.abc import Iterator, Mapping
from typing import Any

import tensorflow as tf

from t2t_lite.errors import T2TLiteError

# Ops of TensorFlow that the stock server cannot run: they need Python, a
# compiler that is not linked, or this machine's processor.
_FORBIDDEN_OPS = re.compile(r"Xla|PyFunc|EagerPyFunc|_Mkl|Tpu|TPU|Nccl")
# Ops of TF Text, which the server links.
_TEXT_OPS = {
    "SentencepieceOp",
    "SentencepieceTokenizeOp",
    "SentencepieceDetokenizeOp",
    "FastBertNormalize",
    "FastWordpieceTokenizeWithOffsets",
}
# A larger constant of floats is a weight that should be a variable.
_LARGEST_CONSTANT = 1 << 20  # bytes


def save(
    module: tf.Module, folder: pathlib.Path, signatures: Mapping[str, Any]
) -> None:
    """Save a module; two new processes write equal files for equal modules."""
    # A tenth of the graph is gradients.
    for_serving = tf.saved_model.SaveOptions(
        experimental_custom_gradients=False
    )
    tf.saved_model.save(module, str(folder), dict(signatures), for_serving)
    _name_by_content(folder / "fingerprint.pb")


def _name_by_content(path: pathlib.Path) -> None:
    """Replace the random UUID of a fingerprint by a checksum."""
    from tensorflow.core.protobuf import fingerprint_pb2

    fingerprint = fingerprint_pb2.FingerprintDef.FromString(path.read_bytes())
    fingerprint.ClearField("uuid")
    digest = hashlib.sha256(fingerprint.SerializeToString(deterministic=True))
    # TensorFlow writes 128 random bits in decimal.
    fingerprint.uuid = str(int.from_bytes(digest.digest()[:16]))
    path.write_bytes(fingerprint.SerializeToString(deterministic=True))


def check_servable(saved_model: str | os.PathLike) -> list[str]:
    """Check that the stock server can run a SavedModel.

    Returns:
      the names of its ops.

    Raises:
      T2TLiteError: the server does not link an op, or a weight is a constant.
    """
    ops = set()
    for node in _nodes(saved_model):
        if not _is_linked(node.op):
            raise T2TLiteError(
                f"TensorFlow Serving does not link the op {node.op} "
                f"({node.name}). Report this as a bug."
            )
        value = node.attr["value"].tensor
        is_real = node.op == "Const" and tf.as_dtype(value.dtype).is_floating
        if is_real and value.ByteSize() > _LARGEST_CONSTANT:
            raise T2TLiteError(
                "Weights must be variables; got a constant of "
                f"{value.ByteSize()} bytes ({node.name}). Report this as a bug."
            )
        ops.add(node.op)
    return sorted(ops)


def _is_linked(op: str) -> bool:
    # tf.raw_ops has the ops of TensorFlow, but not of loaded libraries.
    is_of_tensorflow = hasattr(tf.raw_ops, op) and not _FORBIDDEN_OPS.match(op)
    return op in _TEXT_OPS or is_of_tensorflow


def _nodes(saved_model: str | os.PathLike) -> Iterator[Any]:
    """Yield the nodes of the main graph and of all functions."""
    from tensorflow.core.protobuf import saved_model_pb2

    proto = saved_model_pb2.SavedModel.FromString(
        (pathlib.Path(saved_model) / "saved_model.pb").read_bytes()
    )
    for meta_graph in proto.meta_graphs:
        yield from meta_graph.graph_def.node
        for function in meta_graph.graph_def.library.function:
            yield from function.node_def
