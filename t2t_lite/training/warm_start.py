"""Warm start: initial weights from another run, and frozen weights.

`config.json` records both as `initialized_from` and `freeze`.
"""

from pathlib import Path
from typing import Any

from t2t_lite.errors import T2TLiteError, UsageError
from t2t_lite.hparam import HParams
from t2t_lite.model.layers import skip_init
from t2t_lite.model.transformer import Transformer
from t2t_lite.progress import log
from t2t_lite.training import checkpoints
from t2t_lite.training.checkpoints import Checkpoint
from t2t_lite.training.config import CONFIG
from t2t_lite.training.optimizers import frozen_paths
from t2t_lite.training.problem_choice import Job
from t2t_lite.training.run import Run

SOURCE = "initialized_from"  # key in `config.json`
# Hparams that change neither the shape nor the meaning of weights.
_MAY_DIFFER = (
    *("num_hidden_layers", "attention_window", "shift_across_segments"),
    *("residual_dropout", "attention_dropout", "relu_dropout"),
)


def check_warm_start(job: Job) -> dict[str, Any]:
    """Check the warm start of a run; return its keys of `config.json`.

    Vocabularies are compared if the data is generated. An existing run keeps
    its source, and needs it only until its first checkpoint.
    """
    options, hparams, config = job.options, job.hparams, job.config
    facts: dict[str, Any] = {}
    if options.freeze:
        # The paths of weights do not depend on the sizes of vocabularies.
        with skip_init():
            model = Transformer.from_hparams(hparams, 2, 2).build_weights()
        paths = [variable.path for variable in model.trainable_variables]
        frozen_paths(paths, options.freeze)
        facts["freeze"] = sorted(set(options.freeze))
    if not options.init_from:
        return facts
    if config:
        source = config.get(SOURCE, {}).get("given")
        if str(options.init_from) != source:
            raise T2TLiteError(
                "`init_from` cannot change: the run in output_dir has "
                f"{source or 'no init_from'} (got {options.init_from}). Choose "
                "another `output_dir`."
            )
        return facts
    run, found = _find(options.init_from)
    sizes, sizes_here = _sizes(run.hparams), _sizes(hparams)
    if differences := [
        f"{name} is {value} in that run and {sizes_here[name]} in this one"
        for name, value in sizes.items()
        if value != sizes_here[name]
    ]:
        raise UsageError(
            "init_from requires a model of the same sizes; "
            f"{'; '.join(differences)}."
        )
    load = job.problem.load_encoders
    encoders = load(job.data_dir) if job.has_data() else {}
    for side, encoder in encoders.items():
        if encoder.sha256 != run.encoders[side].sha256:
            raise UsageError(
                f"init_from requires the vocabulary of {run.output_dir}: "
                "generate the data with `vocabulary=FILE`."
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
    """Load the initial weights that the config of a run names, if any."""
    source = run.config.get(SOURCE)
    if not source:
        return
    path = Path(source["checkpoint"])
    found = checkpoints.checkpoint_at(path)
    if not found or not path.is_dir() or found.checksum != source["checksum"]:
        raise T2TLiteError(
            f"{path}, the initial checkpoint of {run.output_dir}, is missing "
            "or has changed: restore it, or choose another `output_dir`."
        )
    log(f"Initializing from {found} of {source['run']}.")
    checkpoints.restore(path, checkpoints.model_tensors(model))


def _find(path: Path) -> tuple[Run, Checkpoint]:
    """Return the run and the checkpoint, given the folder of either."""
    if (path / CONFIG).is_file():
        run = Run.open(path, to_decode=True)
        return run, checkpoints.resolve(run.checkpoints_dir, "default")
    found = checkpoints.checkpoint_at(path) if path.is_dir() else None
    runs = [folder for folder in path.parents if (folder / CONFIG).is_file()]
    if not found or not runs:
        raise UsageError(
            "init_from must be the folder of a run, or of a checkpoint in a "
            f"run; got {path}."
        )
    return Run.open(runs[0], to_decode=True), found


def _sizes(hparams: HParams) -> dict[str, Any]:
    """Return the hparams that determine the shape or meaning of weights."""
    values = hparams.model_kwargs()
    for name in ("key_depth", "value_depth"):
        values[name] = values[name] or hparams.hidden_size // hparams.num_heads
    stacks = ("num_encoder_layers", "num_decoder_layers")
    values |= dict(zip(stacks, hparams.num_layers, strict=True))
    if hparams.position_encoding != "learned":
        del values["max_length"]
    return {k: v for k, v in values.items() if k not in _MAY_DIFFER}
