"""`export_run`: a run of ours becomes a folder that tensor2tensor decodes."""

import pathlib
import shutil
from collections.abc import Mapping
from typing import Any

import numpy as np

from t2t_lite import files
from t2t_lite.errors import T2TLiteError, UsageError, in_words
from t2t_lite.hparam import HParams
from t2t_lite.interop.tensor2tensor.names import (
    EMBEDDINGS,
    POSITIONS,
    SOURCE_VECTOR,
    TARGET_SPACES,
    names_of_weights,
)
from t2t_lite.interop.tensor2tensor.sets import values_of_set
from t2t_lite.model.layers.position import position_signal
from t2t_lite.text.encoder import read_vocabulary
from t2t_lite.text.subword_encoder import subwords_of
from t2t_lite.training.checkpoints.checkpoint import Checkpoint
from t2t_lite.training.run import Run

_SET = "transformer_base"  # which hparams.json changes
_PIECES = 16  # of an embedding
_SPACES = 32  # rows of the table of target spaces
_NORMS = {"post": ("none", "dan"), "pre": ("n", "da")}


def export_run(
    run: Run, which: str | int, t2t_dir: pathlib.Path, problem: str | None
) -> Checkpoint:
    """Writes what tensor2tensor's decoder reads: weights, hparams, vocabulary.

    There is no state of the optimizer: the original does not train on.

    Args:
      run: of what, with a subword vocabulary of tensor2tensor.
      which: checkpoint, see `checkpoint_choice.resolve`.
      t2t_dir: a new folder.
      problem: what the original calls it; None: as the run does.

    Returns: the checkpoint that the weights are from.

    Raises:
      UsageError: the original has no such model or vocabulary, or the folder is
        there.
      T2TLiteError: a part of the run is damaged, or it cannot be written.
    """
    if t2t_dir.exists():
        raise UsageError(f"t2t_dir must be a new folder; {t2t_dir} is there.")
    problem = problem or run.problem.name
    vocabularies = _vocabularies(run, problem)
    values = values_of(run.hparams)
    space = (run.config.get("imported_from") or {}).get("target_space") or 0
    model, found = run.load_model(which)
    variables = variables_of(
        run.hparams,
        {v.path.partition("/")[2]: np.asarray(v) for v in model.weights},
        space,
    )
    variables["global_step"] = np.array(found.step, np.int64)
    checkpoint = f"model.ckpt-{found.step}"
    flags = {"problem": problem, "model": "transformer", "hparams_set": _SET}
    try:
        with files.write_folder(t2t_dir, replace=False) as folder:
            _save(folder / checkpoint, variables)
            (folder / "checkpoint").write_text(
                f'model_checkpoint_path: "{checkpoint}"\n'
                f'all_model_checkpoint_paths: "{checkpoint}"\n'
            )
            files.write_json(folder / "hparams.json", values)
            (folder / "flags.txt").write_text(
                "\n".join(f"--{flag}={value}" for flag, value in flags.items())
            )
            for name, path in vocabularies.items():
                shutil.copyfile(path, folder / name)
    except OSError as error:
        raise T2TLiteError(
            f"{t2t_dir} cannot be written: {in_words(error)}."
        ) from error
    return found


def values_of(hparams: HParams) -> dict[str, Any]:
    """tensor2tensor's hparams of the same model, by name.

    The paper's position signal, which the original does not have, becomes a
    table of learned positions.

    Raises:
      UsageError: the original has no such model.
    """
    if hparams.attention_window is not None:
        raise UsageError(
            "tensor2tensor's model has no attention_window; got "
            f"{hparams.attention_window}."
        )
    first, last = _NORMS[hparams.norm_placement]
    relative = hparams.max_relative_position
    return {
        **values_of_set(_SET),
        "hidden_size": hparams.hidden_size,
        "filter_size": hparams.filter_size,
        "num_heads": hparams.num_heads,
        "attention_key_channels": (hparams.key_depth or 0) * hparams.num_heads,
        "attention_value_channels": (
            (hparams.value_depth or 0) * hparams.num_heads
        ),
        "num_hidden_layers": hparams.num_hidden_layers,
        "num_encoder_layers": hparams.num_encoder_layers or 0,
        "num_decoder_layers": hparams.num_decoder_layers or 0,
        "shared_embedding_and_softmax_weights": hparams.shared_embedding,
        "symbol_modality_num_shards": _PIECES,
        "multiply_embedding_mode": hparams.embedding_scale,
        "layer_preprocess_sequence": first,
        "layer_postprocess_sequence": last,
        "norm_epsilon": hparams.norm_epsilon,
        "pos": {"concatenated": "timing", "none": "none"}.get(
            hparams.position_encoding, "emb"
        ),
        "self_attention_type": (
            "dot_product_relative" if relative else "dot_product"
        ),
        "max_relative_position": relative or 0,
        "use_target_space_embedding": hparams.source_vector,
        "vocab_divisor": hparams.vocab_divisor,
        "max_length": _positions(hparams),
        "layer_prepostprocess_dropout": hparams.residual_dropout,
        "attention_dropout": hparams.attention_dropout,
        "relu_dropout": hparams.relu_dropout,
        "label_smoothing": hparams.label_smoothing,
    }


def variables_of(
    hparams: HParams, weights: Mapping[str, np.ndarray], space: int = 0
) -> dict[str, np.ndarray]:
    """tensor2tensor's variables by name.

    Args:
      hparams: of the model.
      weights: by our names without the model's.
      space: the row of the target space that the source vector becomes; all
        others are 0.
    """
    named = names_of_weights(hparams)
    variables = {named[n]: value for n, value in weights.items() if n in named}
    for name, scope in EMBEDDINGS.items():
        if name in weights:
            variables |= _pieces(weights[name], scope)
    if hparams.source_vector:
        spaces = np.zeros((_SPACES, hparams.hidden_size), np.float32)
        spaces[space] = weights[SOURCE_VECTOR]
        variables[TARGET_SPACES] = spaces
    if hparams.position_encoding == "interleaved":
        count, size = _positions(hparams), hparams.hidden_size
        table = np.asarray(position_signal(np.arange(count), size))
        variables |= dict.fromkeys(POSITIONS.values(), table)
    return variables


def _positions(hparams):
    """How many positions there are, where they are a table."""
    if hparams.position_encoding != "interleaved":
        return hparams.max_length
    longest = max(hparams.max_length, hparams.longest_source or 0)
    return longest + hparams.extra_decode_length


def _pieces(table, scope):
    """An embedding, cut by rows; the first pieces have one row more."""
    rows, size = table.shape
    place = f"transformer/symbol_modality_{rows}_{size}/{scope}/weights_"
    pieces = np.array_split(table, _PIECES)
    return {f"{place}{number}": each for number, each in enumerate(pieces)}


def _vocabularies(run, problem):
    """The run's files, by the names that the original looks for."""
    encoders = list(dict.fromkeys(run.encoders.values()))
    sides = ("",) if len(encoders) == 1 else (".source", ".target")
    found = {}
    for encoder, side in zip(encoders, sides, strict=True):
        if not subwords_of(read_vocabulary(encoder.path)):
            raise UsageError(
                "tensor2tensor reads a vocabulary of its own subwords; "
                f"{encoder.path} is of another kind."
            )
        name = f"vocab.{problem}.{encoder.vocab_size}{side}.subwords"
        found[name] = encoder.path
    return found


def _save(path, variables):
    """Writes a checkpoint in the format of TensorFlow 1."""
    import tensorflow as tf

    names = sorted(variables)
    tf.raw_ops.SaveV2(
        prefix=str(path),
        tensor_names=names,
        shape_and_slices=[""] * len(names),
        tensors=[tf.constant(variables[name]) for name in names],
    )
