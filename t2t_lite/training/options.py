"""`TrainingOptions`: the declaration of every training option.

The trainer's flags, the keywords of `t2t_lite.train` and their documentation
are generated from this dataclass.
"""

import dataclasses
import functools
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from t2t_lite import validators
from t2t_lite.errors import UsageError
from t2t_lite.validators import Validator, folder, integer, real, setting

# Default folders of data and runs.
DATA_DIR = "~/t2t-lite/data"
RUNS_DIR = "~/t2t-lite/runs"


def default_output_dir(problem_name: str, hparams_set: str) -> Path:
    """Return the default folder of a run."""
    return folder(f"{RUNS_DIR}/{problem_name}/{hparams_set}")


def _parse_options(value):
    if isinstance(value, Mapping):
        return dict(value)
    return validators.parse_key_values(value, "problem_options")


_Count = Annotated[int, integer(1)]
_Minutes = Annotated[float, real(at_least=0)]
_Folder = Annotated[Path, folder]
_KeyValues = Annotated[str, Validator("key=value,...", str, "KEY=VALUE,...")]
_options = Validator("key=value,...", _parse_options, "KEY=VALUE,...")
_Options = Annotated[Mapping[str, Any], _options]
_CodePath = Annotated[str, Validator("a folder or package", os.fspath, "DIR")]

_data = functools.partial(setting, group="Data")
_training = functools.partial(setting, group="Training")
_evaluation = functools.partial(setting, group="Evaluation")
_checkpoints = functools.partial(setting, group="Checkpoints")
_devices = functools.partial(setting, group="Devices")
_distributed = functools.partial(setting, group="Distributed training")


@dataclasses.dataclass(frozen=True)
class TrainingOptions:
    """Training options; each one is a keyword and a flag.

    Raises:
      UsageError: a value is not valid, or two options conflict.
    """

    hparams_override: _KeyValues = setting("", "hparams that replace the set's")
    problem_options: _Options | None = _data(
        None,
        "options of the problem, listed by t2t-lite-registry NAME; stored with "
        "the data and the run",
    )
    usr_dir: _CodePath | None = _data(
        None, "folder or package with your own problems and hparams sets"
    )
    data_dir: _Folder | None = _data(
        None,
        "folder of the TFRecord shards and the vocabulary (default: "
        f"{DATA_DIR}, or the data of the run)",
    )
    raw_dir: _Folder | None = _data(
        None, "folder of the corpus files (default: download them)"
    )
    tfds_dir: _Folder | None = _data(None, "TensorFlow Datasets data folder")
    init_from: _Folder | None = _training(
        None,
        "run, or checkpoint of a run, with the initial weights of a new run; "
        "requires the same model sizes and vocabulary",
        "RUN",
    )
    freeze: Annotated[tuple[str, ...], validators.texts] = _training(
        (),
        "weights to freeze: encoder, decoder, embeddings, or patterns such as "
        "encoder_layer_0/*",
        "PATTERN,...",
    )
    train_steps: _Count | None = _training(
        None, "optimizer updates in total (default: the set's)"
    )
    eval_steps_every: _Count = _evaluation(
        1000, "updates between evaluations on the dev split"
    )
    max_minutes: _Minutes | None = _training(
        None,
        "time limit of the process in minutes; it saves before the limit and "
        "exits with code 75 (default: no limit)",
    )
    hang_timeout_minutes: _Minutes = _training(
        30,
        "minutes without an update until the watchdog writes the stacks of all "
        "threads to stderr; 0: never",
    )
    log_steps: _Count = _training(100, "updates per record of metrics.jsonl")
    early_stopping_patience: _Count | None = _evaluation(
        None,
        "evaluations without a better best_metric until training stops "
        "(default: no early stopping)",
    )
    deterministic: bool = _training(False, "bit-for-bit reproducible; slower")
    check_numerics: bool = _training(
        False,
        "fail at the operation that produces the first NaN or Inf; slower",
    )
    seed: Annotated[int, integer(0, 2**63 - 1)] | None = _training(
        None, "seed of all random numbers of training (default: the run's or 1)"
    )
    save_minutes: _Minutes = _checkpoints(10, "minutes between checkpoints")
    save_steps: _Count | None = _checkpoints(
        None, "updates between checkpoints, instead of minutes"
    )
    keep_checkpoints: _Count = _checkpoints(
        20, "newest checkpoints to keep, in addition to the best"
    )
    keep_best: _Count = _checkpoints(1, "best checkpoints to keep", "K")
    best_metric: str = _evaluation(
        "auto",
        "metric of the best checkpoint: loss, the problem's metrics (bleu, "
        "chrf; f1), or auto: the dev loss until the score (bleu, f1) reaches "
        "1, then the score",
        "NAME",
    )
    gradient_checkpointing: bool = _devices(
        False,
        "recompute the activations of a layer in the backward pass: less "
        "memory, more time, the same result",
    )
    replicas: _Count | None = _devices(
        None,
        "logical CPU devices to train on (default: all GPUs, else one CPU)",
    )
    sustained_tflops: Annotated[float, real(above=0)] | None = _devices(
        None,
        "sustained TFLOP/s of one device, for the training cost as in the "
        "paper's table 2 (default: the paper's, on a K80, K40, M40 or P100)",
    )
    workers: str | None = _distributed(
        None,
        "addresses of all worker processes, the chief first; the same list on "
        "each worker (default: TF_CONFIG or SLURM's variables)",
        "HOST:PORT,...",
    )
    worker: Annotated[int, integer(0)] | None = _distributed(
        None, "index of this process among the workers, from 0"
    )
    cluster_timeout: Annotated[float, real(at_least=1)] = _distributed(
        600, "seconds to wait for the other workers to start"
    )
    dry_run: bool = _devices(
        False,
        "check flags, data and model, measure one pass over the largest batch, "
        "and save nothing",
    )
    verbose: bool = setting(False, "show TensorFlow's messages")

    def __post_init__(self) -> None:
        validators.validate(self)
        if (self.workers is None) != (self.worker is None):
            raise UsageError("`workers` and `worker` require each other.")
        if self.workers and self.dry_run:
            raise UsageError("`workers` conflicts with `dry_run`.")
