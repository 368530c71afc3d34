"""`import_run`: convert a checkpoint of tensor2tensor to a run."""

import pathlib
import re
import shutil
import zipfile
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from t2t_lite import files
from t2t_lite.errors import T2TLiteError, UsageError, format_error
from t2t_lite.hparam import HParams
from t2t_lite.interop.tensor2tensor.checkpoint import Checkpoint
from t2t_lite.interop.tensor2tensor.hparams import TrainDir
from t2t_lite.model.layers import skip_init
from t2t_lite.model.transformer import Transformer
from t2t_lite.problem import Problem
from t2t_lite.tokenizers.vocabulary import open_vocabulary
from t2t_lite.training import checkpoints
from t2t_lite.training.config import (
    CONFIG,
    make_config,
    require_fitting_vocabularies,
)
from t2t_lite.training.devices import choose_strategy
from t2t_lite.training.optimizers import Adam
from t2t_lite.training.run import Run
from t2t_lite.training.update import Updater

# Of logits, relative to the largest one: float32 sums of the same numbers in
# another order.
_TOLERANCE = 1e-4


def import_run(
    train_dir: TrainDir,
    hparams: HParams,
    vocabulary: Sequence[pathlib.Path],
    output_dir: pathlib.Path,
    problem: Problem,
    *,
    seed: int,
    target_space: int | None = None,
    weights_only: bool = False,
    verify: pathlib.Path | None = None,
    data_dir: pathlib.Path | None = None,
    usr_dir: str | None = None,
) -> tuple[Run, list[str]]:
    """Make a run that decodes, resumes training and exports like any other.

    Everything is read and checked before anything is written.

    Args:
      train_dir: the original.
      hparams: of the original, see `hparams.hparams_of`.
      vocabulary: its file, or the files of source and target.
      output_dir: the folder of the run; must be missing or empty.
      problem: the problem of the original, in its direction.
      seed: of later training.
      target_space: which of the 32 rows becomes the source vector; None takes
        the trained one, or 0 if the optimizer's state is missing.
      weights_only: import the weights without the optimizer's state.
      verify: an `.npz` with `inputs`, `targets` and `logits` of the original,
        see `_compare_logits`.
      data_dir: data of the problem to train on; None: the first training run
        chooses it.
      usr_dir: the folder with the code of the problem.

    Returns:
      The run, and remarks for the user.

    Raises:
      UsageError: the vocabulary or the folder does not match.
      T2TLiteError: a file is damaged, or the logits differ.
    """
    if output_dir.exists() and any(output_dir.iterdir()):
        raise UsageError(f"output_dir must be a new folder; got {output_dir}.")
    encoders = _open_vocabularies(problem, vocabulary)
    if len({each.vocab_size for each in encoders.values()}) > 1:
        # tensor2tensor ignores the hparam if the sizes differ.
        hparams = hparams.replace(shared_embedding=False)
    require_fitting_vocabularies(problem, hparams)
    variables = Checkpoint(train_dir.checkpoint)
    step = variables.global_step(train_dir.step)
    space, remarks = 0, []
    if hparams.target_space_embedding:
        space, remark = variables.choose_space(target_space)
        remarks.append(remark)
    data = {"dir": str(data_dir or ""), "fingerprint": ""}
    config = make_config(problem, hparams, seed, data, encoders, usr_dir)
    config["imported_from"] = {
        "toolkit": "tensor2tensor",
        "checkpoint": train_dir.checkpoint.name,
        "step": step,
        "target_space": space if hparams.target_space_embedding else None,
    }
    config["has_checkpoints"] = True
    run = Run(output_dir, config, problem, encoders)
    if data_dir:
        found = run.data.manifest  # of the same vocabulary
        config["data"] |= {"fingerprint": found.digest, "seed": found.seed}
    model = _import_weights(run, variables, space)
    if verify:
        remarks.append(_compare_logits(model, verify))
    updater = Updater(model, hparams, choose_strategy(), seed)
    how = "a fresh optimizer"
    if not weights_only:
        updates = variables.count_updates(hparams.adam_beta2, step)
        how = _import_adam(updater, model, variables.slots(space), updates)
    remarks.append(f"training resumes after update {step} with {how}")
    tensors = {**checkpoints.model_tensors(model), **updater.tensors()}
    state = {"step": step, "position": [0, 0, 0], "seed": seed}
    _write_run(output_dir, config, vocabulary, tensors, state)
    return run, remarks


def _write_run(output_dir, config, vocabulary, tensors, state):
    """Write the folder of a run, completely or not at all."""
    with files.write_folder(output_dir, replace=False) as folder:
        checkpoints.save(folder / checkpoints.FOLDER, tensors, state)
        for name, path in zip(config["vocabulary"], vocabulary, strict=True):
            shutil.copyfile(path, folder / name)
        files.write_json(folder / CONFIG, config)


def _open_vocabularies(problem, paths):
    """Return the tokenizer of each side, from one file or two."""
    count = len(set(problem.vocabulary_files().values()))
    if len(paths) != count:
        raise UsageError(
            f"{problem.name} has {count} vocabularies; got {len(paths)}."
        )
    opened = [open_vocabulary(path) for path in paths]
    return {"inputs": opened[0], "targets": opened[-1]}


def _import_weights(run, variables, space):
    """Return the model of a run with the weights of the checkpoint."""
    with skip_init():
        model = run.model()
    shapes = {_name(weight): weight.shape for weight in model.weights}
    values = variables.weights(space, shapes)
    for weight in model.weights:
        weight.assign(values[_name(weight)])
    return model


def _import_adam(updater, model, slots, updates):
    """Set the state of Adam if there is one; return what training has."""
    adam = updater.optimizer
    if not isinstance(adam, Adam) or not slots:
        return "a fresh optimizer, because the checkpoint has no state of Adam"
    for part, values in zip(("mean", "square"), slots, strict=True):
        for weight, state in zip(
            model.trainable_variables, adam.state, strict=True
        ):
            state[part].assign(values[_name(weight)])
    adam.applied.assign(updates)
    return "Adam's state"


def _name(weight: Any) -> str:
    """Return a weight's name without the model's name."""
    return weight.path.partition("/")[2]


def _compare_logits(model: Transformer, path: pathlib.Path) -> str:
    """Return a sentence with the largest difference to tensor2tensor's logits.

    The file has `inputs` int [B, S], `targets` int [B, T] and `logits` float
    [B, T, V]; or several of these, `inputs_0`, `targets_0`, `logits_0`, ...
    Other dimensions of 1 are dropped.

    Raises:
      T2TLiteError: they differ, or the file is missing or has other content.
    """
    tokens, gaps, largest = 0, [0.0], [1.0]
    for inputs, targets, expected in _cases(path):
        inputs, targets = (x.reshape(x.shape[:2]) for x in (inputs, targets))
        real = targets != 0
        logits = np.asarray(model({"inputs": inputs, "targets": targets}))
        if logits.size != expected.size:
            raise T2TLiteError(
                f"{path} must have logits of {logits.shape[-1]} tokens of the "
                f"vocabulary; got {expected.shape[-1]}."
            )
        expected = expected.reshape(logits.shape)
        tokens += int(real.sum())
        gaps.append(np.abs(logits - expected)[real].max(initial=0))
        largest.append(np.abs(expected[real]).max(initial=0))
    difference = np.max(gaps)  # NaN if there is one
    if not difference <= _TOLERANCE * np.max(largest):
        raise T2TLiteError(
            f"The logits differ from those in {path} by up to "
            f"{difference:.3g}: check the hparams, the target space and the "
            "vocabulary of the checkpoint."
        )
    return f"the logits of {tokens:,} tokens agree to {difference:.1e}"


def _cases(path: pathlib.Path) -> Iterator[tuple[np.ndarray, ...]]:
    """Yield the (inputs, targets, logits) of each case in an `.npz`."""
    try:
        with np.load(path) as arrays:
            matches = [re.fullmatch(r"inputs(_\d+)?", name) for name in arrays]
            endings = [match[1] or "" for match in matches if match]
            if not endings:
                raise ValueError("it has none of these")
            for ending in endings:
                names = (
                    f"{x}{ending}" for x in ("inputs", "targets", "logits")
                )
                yield tuple(arrays[name] for name in names)
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as e:
        raise T2TLiteError(
            f"verify must name an .npz with inputs, targets, logits; got "
            f"{path}: {format_error(e, place=False)}."
        ) from e
