"""A translator as a SavedModel for the stock TensorFlow Serving.

Or as a folder of CTranslate2, which `interop` writes.
"""

import contextlib
import os
import pathlib
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import tensorflow as tf

from t2t_lite.decoding.translator import COLUMNS, Translator
from t2t_lite.errors import T2TLiteError, UsageError, in_words
from t2t_lite.interop.ctranslate2_model import (
    require_runnable,
    write_ctranslate2,
)
from t2t_lite.interop.quantization import Quantization
from t2t_lite.serving.versions import CTRANSLATE2, SAVED_MODEL, write_version

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


class ServedTranslator(tf.Module):
    """What an export holds: weights, vocabularies, two signatures or three.

    `serving_default`: `inputs` string [batch] to `outputs` string [batch] and
    `scores` float32 [batch]. `nbest`: the same input to `outputs` and
    `scores` [batch, beam]. `prefixed`, if it was asked for: as
    `serving_default`, of translations that begin with `prefix` string [batch].
    All say `cut`, bool [batch]: the text was longer than the model takes, and
    its end was left out. The batch of every output is the batch of the inputs,
    and every score is a number, as batching servers and strict JSON readers
    need.

    Where the answers have a form, they are written in it: trees in brackets.

    Args:
      translator: what to serve.
      prefixed: whether to have that signature.

    Raises:
      UsageError: the answers have a form that an unconstrained search may
        miss, or the translator samples or cannot begin with a prefix.
    """

    def __init__(self, translator: Translator, prefixed: bool = False):
        super().__init__(name="served_translator")
        if translator.settings.sample:
            raise UsageError("An export searches: leave out sample.")
        self.form = translator.form
        if self.form is not None and not translator.settings.constrained:
            raise UsageError(
                "A server cannot repair answers, so its search must be "
                "constrained to their form. Export with --constrained=true."
            )
        # The export holds only the weights of the model: its other variables
        # are for training, and the server does not know its classes.
        self.weights = [weight.value for weight in translator.model.weights]
        self.encoders = [translator.source_encoder, translator.target_encoder]
        best, all_of_them = 1, translator.settings.beam_size
        self.answers = {
            "serving_default": self._signature(translator.graph(best), True),
            "nbest": self._signature(translator.graph(all_of_them), False),
        }
        if prefixed:
            columns = ("prefix",)
            self.answers["prefixed"] = self._signature(
                translator.graph(best, columns), True, columns
            )

    def _signature(
        self, graph: Callable, best_only: bool, columns: tuple[str, ...] = ()
    ) -> Callable:
        inputs = [tf.TensorSpec([None], tf.string, name="inputs")]

        @tf.function(
            input_signature=inputs + [COLUMNS[name] for name in columns],
            autograph=False,
        )
        def answer(inputs, *asked):
            answers = graph(inputs, *asked)
            served = {
                "outputs": self._written(inputs, answers),
                "scores": answers["scores"],
            }
            if best_only:
                served = {name: value[:, 0] for name, value in served.items()}
            return {**served, "cut": answers["cut"]}

        return answer

    def _written(
        self, inputs: tf.Tensor, answers: Mapping[str, tf.Tensor]
    ) -> tf.Tensor:
        if self.form is None:
            return answers["outputs"]
        return self.form.write(self.form.prepare(inputs), answers["tokens"])


def export_saved_model(
    translator: Translator,
    export_dir: str | os.PathLike,
    version: int | None = None,
    prefixed: bool = False,
) -> pathlib.Path:
    """Writes a SavedModel to `EXPORT_DIR/<version>/`; see `write_version`.

    Args:
      translator: what to serve.
      export_dir: made if it is missing.
      version: a positive integer; by default one more than the largest there.
      prefixed: see `ServedTranslator`.

    Returns:
      the folder of the version.

    Raises:
      T2TLiteError: the version exists, the folder cannot be written, or the
        graph holds what the stock server does not run.
    """
    served = ServedTranslator(translator, prefixed)

    def write(folder: pathlib.Path) -> None:
        tf.saved_model.save(served, str(folder), dict(served.answers))
        check_servable(folder)

    with _in_words(export_dir):
        return write_version(export_dir, SAVED_MODEL, write, version)


def export_ctranslate2(
    translator: Translator,
    export_dir: str | os.PathLike,
    quantization: Quantization = "float32",
    version: int | None = None,
) -> pathlib.Path:
    """Writes a folder of CTranslate2 to `EXPORT_DIR/<version>/`.

    Args:
      translator: what to export.
      export_dir: made if it is missing.
      quantization: the type of the weights.
      version: as in `export_saved_model`.

    Returns:
      the folder of the version.

    Raises:
      UsageError: CTranslate2 cannot run the model or its search.
      T2TLiteError: it is not installed, the version exists, or the folder
        cannot be written.
    """
    require_runnable(translator)
    if translator.form is not None:
        raise UsageError(
            "An export repairs no answers, and CTranslate2 cannot search for "
            "those of the right form only: export trees with "
            "--format=saved_model."
        )
    with _in_words(export_dir):
        return write_version(
            export_dir,
            CTRANSLATE2,
            lambda folder: write_ctranslate2(translator, folder, quantization),
            version,
        )


@contextlib.contextmanager
def _in_words(export_dir: str | os.PathLike) -> Iterator[None]:
    """Says of an export that cannot be written, in one line, why."""
    try:
        yield
    except (OSError, tf.errors.OpError) as error:
        raise T2TLiteError(
            f"Cannot write the export to {export_dir}: {in_words(error)}."
        ) from error


def check_servable(saved_model: str | os.PathLike) -> None:
    """Refuses a SavedModel that the stock server could not run.

    Raises:
      T2TLiteError: an op is not linked there, or a weight became a constant.
    """
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
