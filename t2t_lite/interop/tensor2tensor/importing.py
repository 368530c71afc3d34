"""`import_run`: conversion of a tensor2tensor checkpoint to a run."""

import re
import shutil
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from t2t_lite import files
from t2t_lite.errors import T2TLiteError, UsageError, explain
from t2t_lite.hparam import HParams
from t2t_lite.interop.tensor2tensor.checkpoint import Checkpoint
from t2t_lite.interop.tensor2tensor.hparams import TrainDir
from t2t_lite.interop.tensor2tensor.shards import open_vocabularies
from t2t_lite.model.layers import skip_init
from t2t_lite.model.transformer import Transformer
from t2t_lite.problem import Problem
from t2t_lite.training import checkpoints
from t2t_lite.training import config as run_config
from t2t_lite.training.distribute import choose_strategy
from t2t_lite.training.optimizers import Adam
from t2t_lite.training.run import Run
from t2t_lite.training.update import Updater

# Tolerance of logits, relative to the largest logit. float32 sums depend on the
# order of additions.
_TOLERANCE = 1e-4


def import_run(
    train_dir: TrainDir,
    hparams: HParams,
    vocabulary: Sequence[Path],
    output_dir: Path,
    problem: Problem,
    *,
    seed: int,
    target_space: int | None = None,
    weights_only: bool = False,
    verify: Path | None = None,
    data_dir: Path | None = None,
    usr_dir: str | None = None,
) -> tuple[Run, list[str]]:
    """Convert a checkpoint to a run for decoding, training and export.

    All files are read and checked before any file is written.

    Args:
      train_dir: the checkpoint.
      hparams: hparams of the checkpoint, from `hparams.hparams_of`.
      vocabulary: the shared vocabulary file, or source and target vocabulary.
      output_dir: new or empty folder of the run.
      problem: problem of the checkpoint, in the same direction.
      seed: random seed of later training.
      target_space: see `Checkpoint.choose_space`.
      weights_only: import the weights without the optimizer's state.
      verify: see `_compare_logits`.
      data_dir: data folder for later training, if known.
      usr_dir: folder with the code of the problem.

    Returns:
      The run, and messages for the user.
    """
    require_empty(output_dir)
    tokenizers = open_vocabularies(problem, vocabulary)
    encoders = {"inputs": tokenizers[0], "targets": tokenizers[-1]}
    if len({each.vocab_size for each in encoders.values()}) > 1:
        # tensor2tensor ignores the hparam if the sizes differ.
        hparams = hparams.replace(shared_embedding=False)
    run_config.require_fitting_vocabularies(problem, hparams)
    variables = Checkpoint(train_dir.checkpoint)
    step = variables.global_step(train_dir.step)
    space, messages = 0, []
    if hparams.target_space_embedding:
        space, message = variables.choose_space(target_space)
        messages.append(message)
    data = {"dir": str(data_dir or ""), "fingerprint": ""}
    config = run_config.make_config(
        problem, hparams, seed, data, encoders, usr_dir
    )
    config["imported_from"] = {
        "toolkit": "tensor2tensor",
        "checkpoint": train_dir.checkpoint.name,
        "step": step,
        "target_space": space if hparams.target_space_embedding else None,
    }
    config["has_checkpoints"] = True
    run = Run(output_dir, config, problem, encoders)
    if data_dir:
        found = run.data.manifest  # has the same vocabulary
        config["data"] |= {"fingerprint": found.digest, "seed": found.seed}
    model = _import_weights(run, variables, space)
    if verify:
        messages.append(_compare_logits(model, verify))
    updater = Updater(model, hparams, choose_strategy(), seed)
    state_source = "a fresh optimizer"
    if not weights_only:
        updates = variables.count_updates(hparams.adam_beta2, step)
        slots = variables.slots(space)
        state_source = _import_adam(updater, model, slots, updates)
    messages.append(f"training resumes after update {step} with {state_source}")
    write_run(run, model, updater, vocabulary, step)
    return run, messages


def require_empty(output_dir: Path) -> None:
    """Raise UsageError if the folder of a new run has files."""
    if output_dir.exists() and any(output_dir.iterdir()):
        raise UsageError(
            f"output_dir must be a new or empty folder (got {output_dir})."
        )


def write_run(
    run: Run,
    model: Transformer,
    updater: Updater,
    vocabulary: Sequence[Path],
    step: int = 0,
) -> None:
    """Write the folder of an imported run atomically."""
    config, seed = run.config, run.config["seed"]
    tensors = checkpoints.model_tensors(model) | updater.tensors()
    state = {"step": step, "position": [0, 0, 0], "seed": seed}
    with files.write_folder(run.output_dir, replace=False) as folder:
        checkpoints.save(folder / checkpoints.FOLDER, tensors, state)
        for name, path in zip(config["vocabulary"], vocabulary, strict=True):
            shutil.copyfile(path, folder / name)
        files.write_json(folder / run_config.CONFIG, config)


def _import_weights(run, variables, space):
    with skip_init():
        model = run.model()
    weights = {w.path.partition("/")[2]: w for w in model.weights}
    shapes = {name: weight.shape for name, weight in weights.items()}
    for name, value in variables.weights(space, shapes).items():
        weights[name].assign(value)
    return model


def _import_adam(updater, model, slots, updates):
    """Set the state of Adam, if any; return a description of the state."""
    adam = updater.optimizer
    if not isinstance(adam, Adam) or not slots:
        return "a fresh optimizer, because the checkpoint has no state of Adam"
    for key, values in zip(("mean", "square"), slots, strict=True):
        states = zip(model.trainable_variables, adam.state, strict=True)
        for weight, state in states:
            state[key].assign(values[weight.path.partition("/")[2]])
    adam.applied.assign(updates)
    return "Adam's state"


def _compare_logits(model: Transformer, path: Path) -> str:
    """Compare the logits with tensor2tensor's; return a message.

    The file contains `inputs` int [B, S], `targets` int [B, T] and `logits`
    float [B, T, V]; or several cases, `inputs_0`, `targets_0`, `logits_0`, ...
    Additional dimensions of size 1 are dropped.
    """
    tokens, difference, largest = 0, 0.0, 1.0
    for inputs, targets, expected in _cases(path):
        inputs, targets = (x.reshape(x.shape[:2]) for x in (inputs, targets))
        real = targets != 0
        logits = np.asarray(model({"inputs": inputs, "targets": targets}))
        if logits.size != expected.size:
            raise T2TLiteError(
                f"{path} must have {logits.shape[-1]} logits per position, one "
                f"per vocabulary entry (got {expected.shape[-1]})."
            )
        expected = expected.reshape(logits.shape)
        tokens += int(real.sum())
        gaps = np.abs(logits - expected)[real]
        difference = gaps.max(initial=difference)  # keeps NaN
        largest = np.abs(expected[real]).max(initial=largest)
    if not difference <= _TOLERANCE * largest:
        raise T2TLiteError(
            f"The logits differ from the logits in {path} by up to "
            f"{difference:.3g}: check the hparams, the target space and the "
            "vocabulary of the checkpoint."
        )
    return f"the logits of {tokens:,} tokens agree to {difference:.1e}"


def _cases(path: Path) -> Iterator[tuple[np.ndarray, ...]]:
    """Yield (inputs, targets, logits) of each case in an `.npz` file."""
    rule = "verify must be an .npz file with inputs, targets and logits"
    causes = OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile
    with explain(f"{rule}; {path}", *causes), np.load(path) as arrays:
        matches = [re.fullmatch(r"inputs(_\d+)?", name) for name in arrays]
        names = [match[0] for match in matches if match]
        if not names:
            raise ValueError("no inputs found")
        for name in names:
            kinds = ("inputs", "targets", "logits")
            yield tuple(arrays[name.replace("inputs", x)] for x in kinds)
