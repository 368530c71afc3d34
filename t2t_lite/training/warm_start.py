"""The start of a new run: weights of another run, and frozen weights.

`config.json` records it as `initialized_from` and `freeze`.
"""

import pathlib
from collections.abc import Mapping
from typing import Any

from t2t_lite.errors import T2TLiteError, UsageError
from t2t_lite.hparam import HParams
from t2t_lite.model.transformer import Transformer
from t2t_lite.problem import Problem
from t2t_lite.progress import log
from t2t_lite.training import checkpoints
from t2t_lite.training.checkpoints import Checkpoint
from t2t_lite.training.config import CONFIG
from t2t_lite.training.optimizers import frozen_paths
from t2t_lite.training.options import TrainingOptions
from t2t_lite.training.run import Run

SOURCE = "initialized_from"  # in `config.json`
# Hparams that neither shape the weights nor change their meaning.
_FREE = (
    *("num_hidden_layers", "attention_window", "shift_across_segments"),
    *("residual_dropout", "attention_dropout", "relu_dropout"),
)


def facts_of_start(
    options: TrainingOptions,
    problem: Problem,
    hparams: HParams,
    data_dir: pathlib.Path,
    config: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return the checked facts on the start of a run, for its `config.json`.

    The vocabulary of its data is in `data_dir`. A run that is there, with that
    `config`, keeps its own start, so that it needs the other run only until its
    first checkpoint.

    Raises:
      UsageError: sizes or vocabularies that differ, a pattern that matches no
        weight, a path that is not of a run.
      T2TLiteError: the run that is there started from something else.
    """
    facts: dict[str, Any] = {}
    if options.freeze:
        # Paths do not depend on how large a model is.
        smallest = hparams.replace(
            hidden_size=2,
            filter_size=1,
            num_heads=1,
            key_depth=None,
            value_depth=None,
            vocab_divisor=1,
            max_length=1,
        )
        model = Transformer.from_hparams(smallest, 2, 2).build_weights()
        paths = [variable.path for variable in model.trainable_variables]
        frozen_paths(paths, options.freeze)
        facts["freeze"] = sorted(set(options.freeze))
    if config:
        there = config.get(SOURCE, {}).get("given")
        if options.init_from and str(options.init_from) != there:
            raise T2TLiteError(
                f"The run in output_dir started from {there or 'no other run'};"
                f" got `init_from={options.init_from}`. Choose another "
                "`output_dir`."
            )
        return facts
    if not options.init_from:
        return facts
    run, found = _find(options.init_from)
    sizes, sizes_here = _sizes(run.hparams), _sizes(hparams)
    if differences := [
        f"{name} is {value} there and {sizes_here[name]} here"
        for name, value in sizes.items()
        if value != sizes_here[name]
    ]:
        raise UsageError(
            "init_from requires a model of the same sizes; "
            f"{'; '.join(differences)}."
        )
    for side, encoder in problem.load_encoders(data_dir).items():
        if encoder.sha256 != run.encoders[side].sha256:
            raise UsageError(
                f"init_from: the vocabulary of {run.output_dir} differs: make "
                "the data with that one, by `vocabulary=FILE`."
            )
    facts[SOURCE] = {
        "given": str(options.init_from),
        "run": str(run.output_dir),
        "checkpoint": str(found.path),
        "step": found.step,
        "checksum": found.checksum,
    }
    return facts


def load_initial_weights(run: Run, model: Any) -> None:
    """Give the fresh model of a new run the weights that its config names.

    Raises:
      T2TLiteError: they are gone, damaged or have changed.
    """
    source = run.config.get(SOURCE)
    if not source:
        return
    path = pathlib.Path(source["checkpoint"])
    found = checkpoints.checkpoint_at(path)
    if not found or not path.is_dir() or found.checksum != source["checksum"]:
        raise T2TLiteError(
            f"{path}, which the run in {run.output_dir} begins with, is gone "
            "or has changed: put it back, or choose another `output_dir`."
        )
    log(f"Beginning with {found} of {source['run']}.")
    checkpoints.restore(path, checkpoints.model_tensors(model))


def _find(given: pathlib.Path) -> tuple[Run, Checkpoint]:
    """Return the run and the checkpoint of a folder of either."""
    if (given / CONFIG).is_file():
        run = Run.open(given, to_decode=True)
        return run, checkpoints.resolve(run.checkpoints_dir, "default")
    found = checkpoints.checkpoint_at(given) if given.is_dir() else None
    runs = [folder for folder in given.parents if (folder / CONFIG).is_file()]
    if not found or not runs:
        raise UsageError(
            "init_from is the folder of a run, or of a checkpoint in one; got "
            f"{given}."
        )
    return Run.open(runs[0], to_decode=True), found


def _sizes(hparams: HParams) -> dict[str, Any]:
    """Return the hparams that give weights their shape or meaning."""
    values = hparams.model_kwargs()
    for name in ("key_depth", "value_depth"):
        values[name] = values[name] or hparams.hidden_size // hparams.num_heads
    stacks = ("num_encoder_layers", "num_decoder_layers")
    values |= dict(zip(stacks, hparams.layers, strict=True))
    if hparams.position_encoding != "learned":
        del values["max_length"]
    return {k: v for k, v in values.items() if k not in _FREE}
