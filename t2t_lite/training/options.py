"""`TrainingOptions`: every option of training, declared once.

The declaration makes the trainer's flags, the keywords of `t2t_lite.train` and
their documentation.
"""

import dataclasses
import functools
import os
import pathlib
from collections.abc import Mapping
from typing import Annotated, Any

from t2t_lite.errors import UsageError
from t2t_lite.validators import (
    Validator,
    folder,
    integer,
    parse_key_values,
    real,
    setting,
    texts,
    validate,
)

# The default folders of data and runs.
DATA_DIR = "~/t2t-lite/data"
RUNS_DIR = "~/t2t-lite/runs"


def default_output_dir(problem_name: str, hparams_set: str) -> pathlib.Path:
    """Return the default folder of a run."""
    return folder(f"{RUNS_DIR}/{problem_name}/{hparams_set}")


def _parse_options(value):
    if isinstance(value, Mapping):
        return dict(value)
    return parse_key_values(value, "problem_options")


_Count = Annotated[int, integer(1)]
_Minutes = Annotated[float, real(at_least=0)]
_Folder = Annotated[pathlib.Path, folder]
_KeyValues = Annotated[str, Validator("key=value,...", str, "KEY=VALUE,...")]
_Options = Annotated[
    Mapping[str, Any],
    Validator("key=value,...", _parse_options, "KEY=VALUE,..."),
]
_Place = Annotated[str, Validator("a folder or package", os.fspath, "DIR")]

_data = functools.partial(setting, group="folders and data")
_start = functools.partial(setting, group="the start of a new run")
_loop = functools.partial(setting, group="training")
_checkpoints = functools.partial(setting, group="checkpoints")
_devices = functools.partial(setting, group="devices")
_machines = functools.partial(setting, group="several machines")


@dataclasses.dataclass(frozen=True)
class TrainingOptions:
    """The options of training; each is a keyword and a flag.

    Raises:
      UsageError: a value breaks its rule, or two conflict.
    """

    hparams_override: _KeyValues = setting(
        "", "values that replace those of the set"
    )
    problem_options: _Options | None = _data(
        None,
        "options of the problem, see t2t-lite-registry NAME; the data and the "
        "run remember them",
    )
    usr_dir: _Place | None = _data(
        None, "a folder or package with your own problems and hparams sets"
    )
    data_dir: _Folder | None = _data(
        None,
        f"the TFRecord shards and the vocabulary (default: {DATA_DIR}, or the "
        "data of the run)",
    )
    raw_dir: _Folder | None = _data(
        None, "a folder that holds the corpus files (default: download them)"
    )
    tfds_dir: _Folder | None = _data(None, "a TensorFlow Datasets data folder")
    init_from: _Folder | None = _start(
        None,
        "a run, or a checkpoint of one, whose weights a new run takes; its "
        "sizes and its vocabulary must be the same",
        "RUN",
    )
    freeze: Annotated[tuple[str, ...], texts] = _start(
        (),
        "weights that do not train: encoder, decoder, embeddings, or patterns "
        "such as encoder_layer_0/*",
        "PATTERN,...",
    )
    train_steps: _Count | None = _loop(
        None, "optimizer updates in total (default: the set's)"
    )
    eval_steps_every: _Count = _loop(
        1000, "updates between evaluations on the dev split"
    )
    max_minutes: _Minutes | None = _loop(
        None,
        "minutes of the process, before which it saves and exits with 75 "
        "(default: no limit)",
    )
    hang_timeout_minutes: _Minutes = _loop(
        30,
        "minutes without an update until the stacks of all threads go to "
        "stderr; 0: never",
    )
    log_steps: _Count = _loop(100, "updates between records of metrics.jsonl")
    early_stopping_patience: _Count | None = _loop(
        None,
        "evaluations without a better best_metric until training ends "
        "(default: never)",
    )
    deterministic: bool = _loop(
        False, "the same result, bit for bit, each time; slower"
    )
    check_numerics: bool = _loop(
        False,
        "fail at the operation that produces the first NaN or Inf; slower",
    )
    seed: Annotated[int, integer(0, 2**63 - 1)] = _loop(
        1, "seed of everything random; the same seed gives the same result"
    )
    save_minutes: _Minutes = _checkpoints(10, "minutes between checkpoints")
    save_steps: _Count | None = _checkpoints(
        None, "updates between checkpoints, instead of minutes"
    )
    keep_checkpoints: _Count = _checkpoints(
        20, "newest checkpoints to keep, besides the best"
    )
    keep_best: _Count = _checkpoints(1, "best checkpoints to keep", "K")
    best_metric: str = _checkpoints(
        "auto",
        "metric of the best checkpoint: loss, the problem's metric (bleu, f1), "
        "or auto: the loss on dev until the score reaches 1, then the score",
        "NAME",
    )
    gradient_checkpointing: bool = _devices(
        False,
        "recompute activations within layers in the backward pass: less "
        "memory, more time, the same result",
    )
    replicas: _Count | None = _devices(
        None,
        "logical CPU devices to train on (default: all GPUs, else one CPU)",
    )
    sustained_tflops: Annotated[float, real(above=0)] | None = _devices(
        None,
        "sustained TFLOP/s of one device, for a training cost as in the "
        "paper's table 2 (default: the paper's, on a K80, K40, M40 or P100)",
    )
    workers: str | None = _machines(
        None,
        "the processes that train together, the same list on all; the first "
        "is the chief (default: TF_CONFIG or SLURM's variables)",
        "HOST:PORT,...",
    )
    worker: Annotated[int, integer(0)] | None = _machines(
        None, "index of this process among the workers, from 0"
    )
    cluster_timeout: Annotated[float, real(at_least=1)] = _machines(
        600, "seconds to wait for the other workers to start"
    )
    dry_run: bool = _devices(
        False,
        "only check flags, data and model, and measure one pass over the "
        "largest batch; save nothing",
    )
    verbose: bool = setting(False, "show TensorFlow's messages")

    def __post_init__(self) -> None:
        validate(self)
        if (self.workers is None) != (self.worker is None):
            raise UsageError("workers and worker require each other.")
        if self.workers and self.dry_run:
            raise UsageError("workers conflicts with dry_run.")
