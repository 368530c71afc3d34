"""SavedModels that the stock TensorFlow Serving can run."""

import hashlib
import os
import pathlib
import re
from collections.abc import Iterator, Mapping
from typing import Any

import tensorflow as tf

from t2t_lite.errors import T2TLiteError

# Ops of TensorFlow that the stock server cannot run: they call Python or a
# compiler that it does not link, or they need this machine's processor.
_FORBIDDEN_OPS = re.compile(r"Xla|PyFunc|EagerPyFunc|_Mkl|Tpu|TPU|Nccl")
# The ops of TF Text that we use; the server links them too.
_TEXT_OPS = {
    "SentencepieceOp",
    "SentencepieceTokenizeOp",
    "SentencepieceDetokenizeOp",
    "FastBertNormalize",
    "FastWordpieceTokenizeWithOffsets",
}
# A floating-point constant of this size is a weight that should have stayed a
# variable. Vocabularies may be larger, but hold no floats.
_LARGEST_CONSTANT = 1 << 20  # bytes


def save(
    module: tf.Module, folder: pathlib.Path, signatures: Mapping[str, Any]
) -> None:
    """Saves a module for serving: equal ones, made by new processes, alike."""
    # Without what only training needs, a tenth of the graph.
    for_serving = tf.saved_model.SaveOptions(
        experimental_custom_gradients=False
    )
    tf.saved_model.save(module, str(folder), dict(signatures), for_serving)
    _name_by_content(folder / "fingerprint.pb")


def _name_by_content(path: pathlib.Path) -> None:
    """Replaces the random name in a fingerprint by one of its checksums."""
    from tensorflow.core.protobuf import fingerprint_pb2

    fingerprint = fingerprint_pb2.FingerprintDef.FromString(path.read_bytes())
    fingerprint.ClearField("uuid")
    digest = hashlib.sha256(fingerprint.SerializeToString(deterministic=True))
    # TensorFlow writes 128 random bits in decimal.
    fingerprint.uuid = str(int.from_bytes(digest.digest()[:16]))
    path.write_bytes(fingerprint.SerializeToString(deterministic=True))


def check_servable(saved_model: str | os.PathLike) -> list[str]:
    """Refuses a SavedModel that the stock server could not run.

    Returns:
      the ops it uses, by name.

    Raises:
      T2TLiteError: an op is not linked there, or a weight became a constant.
    """
    ops = set()
    for node in _nodes(saved_model):
        if not _is_linked(node.op):
            raise T2TLiteError(
                "An export may use only ops that TensorFlow Serving links; "
                f"got {node.op} ({node.name}). Report this as a bug."
            )
        value = node.attr["value"].tensor
        is_real = node.op == "Const" and tf.as_dtype(value.dtype).is_floating
        if is_real and value.ByteSize() > _LARGEST_CONSTANT:
            raise T2TLiteError(
                "An export keeps weights as variables; got a constant of "
                f"{value.ByteSize()} bytes ({node.name}). Report this as a bug."
            )
        ops.add(node.op)
    return sorted(ops)


def _is_linked(op: str) -> bool:
    """Whether the stock server links an op, by its name."""
    if op in _TEXT_OPS:
        return True
    # tf.raw_ops has the ops of TensorFlow, not those of loaded libraries.
    return hasattr(tf.raw_ops, op) and not _FORBIDDEN_OPS.match(op)


def _nodes(saved_model: str | os.PathLike) -> Iterator[Any]:
    """Every node of a SavedModel: of its main graph and of its functions."""
    from tensorflow.core.protobuf import saved_model_pb2

    proto = saved_model_pb2.SavedModel.FromString(
        (pathlib.Path(saved_model) / "saved_model.pb").read_bytes()
    )
    for meta_graph in proto.meta_graphs:
        yield from meta_graph.graph_def.node
        for function in meta_graph.graph_def.library.function:
            yield from function.node_def
