"""`import_run`: convert a checkpoint of tensor2tensor to a run."""

import pathlib
import shutil
from collections.abc import Mapping, Sequence
from typing import Any

from t2t_lite import files
from t2t_lite.data.manifest import Manifest
from t2t_lite.errors import UsageError
from t2t_lite.hparam import HParams
from t2t_lite.interop.tensor2tensor.train_dir import TrainDir
from t2t_lite.interop.tensor2tensor.variables import Variables
from t2t_lite.interop.tensor2tensor.verify import compare_logits
from t2t_lite.model.layers import initial
from t2t_lite.model.transformer import Transformer
from t2t_lite.problem import Problem
from t2t_lite.text.vocabulary import open_vocabulary
from t2t_lite.training.checkpoints import checkpoint
from t2t_lite.training.config import (
    CONFIG,
    make_config,
    require_fitting_vocabularies,
    vocabulary_hashes,
)
from t2t_lite.training.distribute import choose_strategy
from t2t_lite.training.optimizer.adam import Adam
from t2t_lite.training.optimizer.updates import Updater
from t2t_lite.training.run import Run


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
      verify: an `.npz` for `verify.compare_logits`.
      data_dir: data of the problem to train on; None: the first training run
        chooses it.
      usr_dir: the folder with the code of the problem.

    Returns:
      The run, and remarks for the user.

    Raises:
      UsageError: the vocabulary or the folder does not match.
      T2TLiteError: a file is damaged.
    """
    if output_dir.exists() and any(output_dir.iterdir()):
        raise UsageError(f"output_dir must be a new folder; got {output_dir}.")
    encoders = _open_encoders(problem, vocabulary)
    if encoders["inputs"].vocab_size != encoders["targets"].vocab_size:
        # tensor2tensor ignores the hparam if the sizes differ.
        hparams = hparams.replace(shared_embedding=False)
    require_fitting_vocabularies(problem, hparams)
    variables = Variables(train_dir.checkpoint)
    step = variables.global_step(train_dir.step)
    space, remarks = None, []
    if hparams.source_vector:
        space, remark = variables.choose_space(target_space)
        remarks.append(remark)
    data = {"dir": "", "fingerprint": ""}
    if data_dir:
        data = _data(problem, data_dir, vocabulary_hashes(problem, encoders))
    config = make_config(problem, hparams, seed, data, encoders, usr_dir)
    config["imported_from"] = {
        "toolkit": "tensor2tensor",
        "checkpoint": train_dir.checkpoint.name,
        "step": step,
        "target_space": space,
    }
    config["has_checkpoints"] = True
    run = Run(output_dir, config, problem, encoders)
    model = _model(run, variables, space or 0)
    if verify:
        remarks.append(compare_logits(model, verify))
    updater = Updater(model, hparams, choose_strategy(), seed)
    if weights_only:
        remarks.append("only the weights were imported")
    elif isinstance(updater.optimizer, Adam) and variables.has_slots:
        _assign_slots(updater.optimizer, model, variables, space or 0)
        updates = variables.count_updates(hparams.adam_beta2, step)
        updater.optimizer.applied.assign(updates)
        remarks.append(
            f"training resumes after update {step} with Adam's state"
        )
    else:
        remarks.append(
            f"training resumes after update {step} with a fresh optimizer, "
            "because the checkpoint has no state of Adam"
        )
    tensors = {**checkpoint.model_tensors(model), **updater.tensors()}
    _write(run, vocabulary, tensors, step)
    return run, remarks


def _open_encoders(
    problem: Problem, paths: Sequence[pathlib.Path]
) -> dict[str, Any]:
    """Return the encoders of `inputs` and `targets`."""
    count = len(set(problem.vocabulary_files().values()))
    if len(paths) != count:
        raise UsageError(
            f"{problem.name} has {count} vocabularies; got "
            f"{', '.join(map(str, paths))}."
        )
    inputs = open_vocabulary(paths[0])
    targets = open_vocabulary(paths[1]) if count > 1 else inputs
    return {"inputs": inputs, "targets": targets}


def _data(
    problem: Problem, data_dir: pathlib.Path, vocabulary: dict[str, str]
) -> dict[str, Any]:
    """Return the entry of the config for the data to train on."""
    manifest = Manifest.load(data_dir, problem)
    there = {n: each["sha256"] for n, each in manifest.vocabulary.items()}
    if there != vocabulary:
        raise UsageError(
            f"data_dir: the data of {problem.name} in {data_dir} has another "
            "vocabulary than the given one."
        )
    return {
        "dir": str(data_dir),
        "fingerprint": manifest.digest,
        "seed": manifest.seed,
    }


def _model(run: Run, variables: Variables, space: int) -> Transformer:
    """Return the run's model with the weights of the checkpoint."""
    with initial.unset():
        model = run.model()
    shapes = {_name(weight): weight.shape for weight in model.weights}
    values = variables.weights(space, shapes)
    for weight in model.weights:
        weight.assign(values[_name(weight)])
    return model


def _assign_slots(
    adam: Adam, model: Transformer, variables: Variables, space: int
) -> None:
    slots = variables.slots(space)
    for ours, values in zip((adam.means, adam.squares), slots, strict=True):
        for weight, slot in zip(model.trainable_variables, ours, strict=True):
            slot.assign(values[_name(weight)])


def _name(weight: Any) -> str:
    """Return a weight's name without the model's name."""
    return weight.path.partition("/")[2]


def _write(
    run: Run,
    vocabulary: Sequence[pathlib.Path],
    tensors: Mapping[str, Any],
    step: int,
) -> None:
    """Write the folder of the run, completely or not at all."""
    state = {"step": step, "position": [0, 0, 0], "seed": run.seed}
    names = run.config["vocabulary"]
    with files.write_folder(run.output_dir, replace=False) as folder:
        checkpoint.save(folder / checkpoint.FOLDER, tensors, state)
        for name, path in zip(names, vocabulary, strict=True):
            shutil.copyfile(path, folder / name)
        files.write_json(folder / CONFIG, run.config)
