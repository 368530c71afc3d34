"""`import_run`: a checkpoint of tensor2tensor becomes a run of ours."""

import dataclasses
import pathlib
import shutil
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from t2t_lite import files
from t2t_lite.data.manifest import Manifest
from t2t_lite.errors import T2TLiteError, UsageError, in_words
from t2t_lite.interop.tensor2tensor.hparams import hparams_of
from t2t_lite.interop.tensor2tensor.train_dir import TrainDir
from t2t_lite.interop.tensor2tensor.variables import (
    Variables,
    require_shapes,
    space_of,
)
from t2t_lite.model.layers import initial
from t2t_lite.model.transformer import Transformer
from t2t_lite.problem import Problem
from t2t_lite.text.encoder import TextEncoder
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

Check = Callable[[Run, Transformer], str]


@dataclasses.dataclass(frozen=True)
class Source:
    """What is imported.

    Attributes:
      train_dir: the original's folder.
      vocabulary: its file, or that of the source and that of the target.
      target_space: the number of the target space; None: the trained one, or
        0 where nothing tells.
      weights_only: take over the model alone, whatever trained it.
    """

    train_dir: TrainDir
    vocabulary: Sequence[pathlib.Path]
    target_space: int | None = None
    weights_only: bool = False


class Imported(NamedTuple):
    """What became of a checkpoint.

    Attributes:
      run: the new one.
      told: what people should know, a sentence each.
      left_out: the names of variables that nothing was read of.
    """

    run: Run
    told: list[str]
    left_out: list[str]


def import_run(
    source: Source,
    output_dir: pathlib.Path,
    problem: Problem,
    *,
    seed: int,
    data_dir: pathlib.Path | None = None,
    usr_dir: str | None = None,
    checks: Sequence[Check] = (),
) -> Imported:
    """Makes a run that decodes, trains on and is exported like any other.

    Everything is read and checked before anything is written.

    Args:
      source: what to import.
      output_dir: of the run; must not be there, or empty.
      problem: what it has learned, in its direction.
      seed: of training that goes on.
      data_dir: where data of the problem is, to train on; None: the first
        training says.
      usr_dir: where the code of the problem is.
      checks: each compares the model with the original, and says how.

    Raises:
      UsageError: the model is of another kind, or the vocabulary or the
        folder does not fit.
      T2TLiteError: something is damaged, or cannot be written.
    """
    _require_new(output_dir)
    train_dir = source.train_dir
    encoders = _encoders(problem, source.vocabulary)
    values = _values(train_dir, encoders)
    hparams = hparams_of(
        values, train_dir.flags, weights_only=source.weights_only
    )
    require_fitting_vocabularies(problem, hparams)
    variables = Variables(train_dir.checkpoint, hparams)
    step = variables.global_step(train_dir.step)
    space, told_space = space_of(variables, source.target_space)
    data = _data(problem, data_dir, vocabulary_hashes(problem, encoders))
    config = make_config(problem, hparams, seed, data, encoders, usr_dir)
    config["imported_from"] = {
        "toolkit": "tensor2tensor",
        "checkpoint": train_dir.checkpoint.name,
        "step": step,
        "target_space": space if hparams.source_vector else None,
        # Not as `hparams_set`: a set of that name may have other values here.
        "hparams_set": train_dir.flags.get("hparams_set"),
        "hparams": values,
    }
    config["has_checkpoints"] = True
    run = Run(output_dir, config, problem, encoders)
    told = [told_space] if hparams.source_vector else []
    with initial.unset():
        model = run.model()
    _fill(model, variables, space)
    told += [check(run, model) for check in checks]
    updater = Updater(model, hparams, choose_strategy(), seed)
    if source.weights_only:
        told.append("the weights alone were taken over")
    else:
        told.append(_fill_adam(run, model, updater.optimizer, variables, space))
    tensors = {**checkpoint.model_tensors(model), **updater.tensors()}
    _write(run, source.vocabulary, tensors, step)
    return Imported(run, told, variables.left_out)


def _require_new(folder: pathlib.Path) -> None:
    if folder.exists() and any(folder.iterdir()):
        raise UsageError(
            f"output_dir must be a new folder; there is something in {folder}."
        )


def _encoders(
    problem: Problem, paths: Sequence[pathlib.Path]
) -> dict[str, TextEncoder]:
    """Of `inputs` and `targets`; files are in the order of that direction."""
    count = len(set(problem.vocabulary_files().values()))
    if len(paths) != count:
        raise UsageError(
            f"{problem.name} has {count} vocabularies; got "
            f"{', '.join(map(str, paths))}."
        )
    inputs = open_vocabulary(paths[0])
    targets = open_vocabulary(paths[1]) if count > 1 else inputs
    return {"inputs": inputs, "targets": targets}


def _values(
    train_dir: TrainDir, encoders: Mapping[str, TextEncoder]
) -> dict[str, Any]:
    """The hyperparameters of the original, as they took effect."""
    values = dict(train_dir.values)
    if len({encoder.vocab_size for encoder in encoders.values()}) > 1:
        # tensor2tensor shares no matrix then, whatever the value says.
        values["shared_embedding_and_softmax_weights"] = False
    return values


def _data(
    problem: Problem,
    data_dir: pathlib.Path | None,
    vocabulary: Mapping[str, str],
) -> dict[str, Any]:
    """What the config says of the data to train on."""
    if data_dir is None:
        return {"dir": "", "fingerprint": ""}
    manifest = Manifest.load(data_dir, problem)
    there = {n: each["sha256"] for n, each in manifest.vocabulary.items()}
    if there != vocabulary:
        raise UsageError(
            f"data_dir: the data of {problem.name} in {data_dir} was made with "
            "another vocabulary than the one that is given."
        )
    return {
        "dir": str(data_dir),
        "fingerprint": manifest.digest,
        "seed": manifest.seed,
    }


def _fill(model: Transformer, variables: Variables, space: int) -> None:
    """Gives the model its weights."""
    expected = {_own_name(v.path): v.shape for v in model.weights}
    require_shapes(variables.checkpoint, variables.shapes, expected)
    values = variables.weights(space)
    for variable in model.weights:
        variable.assign(values[_own_name(variable.path)])


def _fill_adam(
    run: Run, model: Transformer, adam: Any, variables: Variables, space: int
) -> str:
    """Gives Adam what it knew, and says with what training goes on."""
    step = run.config["imported_from"]["step"]
    if not isinstance(adam, Adam) or not variables.has_slots:
        return (
            f"training goes on after update {step} with a fresh optimizer, of "
            "which the checkpoint has no state"
        )
    slots = variables.slots(space)
    for kept, values in zip((adam.means, adam.squares), slots, strict=True):
        for weight, slot in zip(model.trainable_variables, kept, strict=True):
            slot.assign(values[_own_name(weight.path)])
    adam.applied.assign(variables.applied(run.hparams.adam_beta2, step))
    return f"training goes on after update {step} with Adam as it was"


def _own_name(path: str) -> str:
    """A weight's name without the model's."""
    return path.partition("/")[2]


def _write(
    run: Run,
    vocabulary: Sequence[pathlib.Path],
    tensors: Mapping[str, Any],
    step: int,
) -> None:
    """Writes the folder of the run, complete or not at all."""
    state = {"step": step, "position": [0, 0, 0], "seed": run.seed}
    try:
        with files.write_folder(run.output_dir, replace=False) as folder:
            checkpoint.save(folder / checkpoint.FOLDER, tensors, state)
            names = run.config["vocabulary"]
            for name, path in zip(names, vocabulary, strict=True):
                shutil.copyfile(path, folder / name)
            files.write_json(folder / CONFIG, run.config)
    except OSError as error:
        raise T2TLiteError(
            f"{run.output_dir} cannot be written: {in_words(error)}. Or "
            "choose another --output_dir."
        ) from error
