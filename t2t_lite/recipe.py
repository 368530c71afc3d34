"""`t2t_lite.train`: from the name of a problem to a trained run."""

import dataclasses
import os
import pathlib
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, overload

from t2t_lite import plugins, registry
from t2t_lite.errors import UsageError, nearest
from t2t_lite.hparam import HParams
from t2t_lite.problem import Problem
from t2t_lite.training.config import (
    read_config,
    require_fitting_vocabularies,
)
from t2t_lite.training.options import StartOptions, TrainingOptions
from t2t_lite.training_job import TrainingJob

if TYPE_CHECKING:
    from t2t_lite.training.fit.dry_run import DryRun
    from t2t_lite.training.run import Run

# Where data and runs are, unless something else is said.
DATA_DIR = "~/t2t-lite/data"
RUNS_DIR = "~/t2t-lite/runs"

_Path = str | os.PathLike


def train(
    problem: str | Problem | None = None,
    hparams: str | HParams | None = None,
    *,
    hparams_override: str = "",
    problem_options: Mapping[str, Any] | None = None,
    usr_dir: _Path | None = None,
    data_dir: _Path = DATA_DIR,
    raw_dir: _Path | None = None,
    tfds_dir: _Path | None = None,
    output_dir: _Path | None = None,
    init_from: _Path | None = None,
    init_vocabulary: str = "same",
    freeze: str = "",
    seed: int = 1,
    workers: str | None = None,
    worker: int | None = None,
    cluster_timeout: float = 600,
    sustained_tflops: float | None = None,
    dry_run: bool = False,
    verbose: bool = False,
    **options: Any,
) -> "Run | DryRun":
    """Trains a run, as the command `t2t-lite-trainer` does.

    It generates the data if it is missing, trains, evaluates and saves; the
    same call again goes on where it stopped. In the main thread, Ctrl-C and
    SIGTERM save before they raise `Interrupted`; SIGUSR1 saves and goes on.

    Args:
      problem: what to learn: the name of a problem or the problem itself; None:
        what the run in `output_dir` learns.
      hparams: the name of a set, or hyperparameters; None: those of that run.
      hparams_override: `key=value,...`: values that replace those of the set.
      problem_options: the options of the problem. Those of own text are the
        trainer's flags, as in `{"source": "a.en", "target": "a.de"}`.
      usr_dir: a folder or package with your own problems and sets.
      data_dir: the TFRecord shards and the vocabulary.
      raw_dir: a folder that holds the corpus files; None downloads them.
      tfds_dir: a TensorFlow Datasets data folder.
      output_dir: the run; None takes `~/t2t-lite/runs/PROBLEM/SET`.
      init_from: a run, or one of its checkpoints: a new run begins with its
        weights, and with an optimizer and a step of its own. Its sizes must be
        the same. A run takes what decodes by default.
      init_vocabulary: "same": its vocabulary must be the same, too; "map": the
        rows of the pieces that both have are taken over, by their text.
      freeze: what does not train: "encoder", "decoder", "embeddings", or
        patterns of the names of weights, joined by commas.
      seed: of everything random; the same seed gives the same result.
      workers: `host:port,host:port,...` of all processes that train together,
        the chief's first; None reads `TF_CONFIG` or SLURM's variables. See
        docs/clusters.md.
      worker: index of this process among them, from 0.
      cluster_timeout: seconds to wait for the other workers to start.
      sustained_tflops: of one device, for the cost as in the paper's table 2;
        None takes the paper's, of the devices that are in it.
      dry_run: check names, data and model, measure one pass over the largest
        batch, save nothing.
      verbose: show TensorFlow's messages.
      options: the fields of `training.options.TrainingOptions`.

    Returns:
      The run; `run.reached` says what came of it. Of a dry run, its report.

    Raises:
      UsageError: an unknown name, key or option, or values that do not fit.
      Interrupted: a signal came; everything is saved.
      T2TLiteError: something is wrong; the message says what to do.
    """
    known = [field.name for field in dataclasses.fields(TrainingOptions)]
    for name in options:
        if name not in known:
            raise UsageError(
                f"train has no option {name!r}.{nearest(name, known)}"
            )
    training = TrainingOptions(**options)
    if (workers is None) != (worker is None):
        raise UsageError(
            "workers and worker require each other: the addresses of all "
            "workers, and the index of this one, from 0."
        )
    usr_dir = str(usr_dir) if usr_dir else None
    plugins.load_plugins(usr_dir)
    problem, values, set_name = _choose(problem, hparams, output_dir)
    values = values.override(hparams_override)
    # The default folder of own text follows from the name it is given.
    known_name = problem if isinstance(problem, str) else problem.name
    task, data_folder = choose_problem(
        problem,
        problem_options or {},
        data_dir,
        output_dir or (set_name and default_output_dir(known_name, set_name)),
    )
    _require_metrics(training, task)
    _require_one_of("init_vocabulary", init_vocabulary, ("same", "map"))
    training.slices(values.micro_batches)  # refuses what does not fit them
    require_fitting_vocabularies(task, values)
    job = TrainingJob(
        problem=task,
        hparams=values,
        hparams_set=set_name,
        usr_dir=usr_dir,
        data_dir=data_folder,
        raw_dir=absolute(raw_dir),
        tfds_dir=absolute(tfds_dir),
        output_dir=_run_folder(output_dir, task.name, set_name),
        seed=seed,
        begin=StartOptions(
            str(absolute(init_from)) if init_from else None,
            init_vocabulary,
            freeze,
        ),
        options=training,
        workers=workers,
        worker=worker,
        cluster_timeout=cluster_timeout,
        verbose=verbose,
    )
    return job.try_update() if dry_run else job.train(sustained_tflops)


def choose_problem(
    problem: str | Problem,
    options: Mapping[str, Any],
    data_dir: _Path = DATA_DIR,
    output_dir: _Path | None = None,
) -> tuple[Problem, pathlib.Path]:
    """A problem with its options, and where its data is.

    Options that are not given are those of the data or of the run that is
    there, see `training.problem_choice`.

    Args:
      problem: its name, with or without `_rev`, or the problem itself.
      options: those that are given.
      data_dir: where the data is, or will be.
      output_dir: where the run is, or will be.

    Raises:
      UsageError: no such problem or option, or no files and no data.
    """
    from t2t_lite.training.problem_choice import choose_options

    if isinstance(problem, str):
        problem = registry.problem(problem)
    elif problem.base_name not in registry.problem_names():
        raise UsageError(
            "A run finds its problem by name: put @register_problem before "
            f"{type(problem).__name__}."
        )
    return choose_options(
        problem,
        {**problem.options, **options},
        absolute(data_dir),
        absolute(output_dir),
        data_dir_given=data_dir != DATA_DIR,
    )


def _require_metrics(options: TrainingOptions, problem: Problem) -> None:
    metric, where = problem.metric, f" for {problem.name}"
    best, stop = ("auto", "loss"), ("dev_loss", "dev_perplexity")
    _require_one_of("best_metric", options.best_metric, (*best, metric), where)
    _require_one_of(
        "stop_on", options.stop_metric, (*stop, f"dev_{metric}"), where
    )


def _require_one_of(
    name: str, value: str, known: Collection[str], where: str = ""
) -> None:
    if value not in known:
        raise UsageError(
            f"{name} is one of {', '.join(known)}{where}; got {value!r}."
        )


def _choose(
    problem: str | Problem | None,
    hparams: str | HParams | None,
    output_dir: _Path | None,
) -> tuple[str | Problem, HParams, str | None]:
    """What to train, from the run that is there where it is not given.

    Returns: the problem, the values, and their set's name if they are from one.
    """
    config = {}
    if problem is None or hparams is None:
        config = _config_there(output_dir)
    if problem is None:
        problem = config["problem"]
    if hparams is None:
        values = HParams.from_dict(config["hparams"])
        return problem, values, config.get("hparams_set")
    if isinstance(hparams, HParams):
        return problem, hparams, None
    return problem, registry.hparams(hparams), hparams


def _config_there(output_dir: _Path | None) -> dict[str, Any]:
    """The config of the run that is to go on."""
    if output_dir is None:
        raise UsageError(
            "problem and hparams are required, unless output_dir is that of a "
            "run."
        )
    return read_config(absolute(output_dir))


@overload
def absolute(path: _Path) -> pathlib.Path: ...
@overload
def absolute(path: None) -> None: ...
def absolute(path: _Path | None) -> pathlib.Path | None:
    """An absolute path, `~` expanded; None stays None.

    Raises:
      UsageError: its name is no UTF-8, in which configs and reports tell it.
    """
    if not path:
        return None
    found = pathlib.Path(path).expanduser().absolute()
    try:
        str(found).encode("utf-8")
    except UnicodeEncodeError as error:
        raise UsageError(
            f"The name of a folder must be UTF-8; got {bytes(found)!r}."
        ) from error
    return found


def default_output_dir(problem_name: str, hparams_set: str) -> pathlib.Path:
    """Where the run of a problem with a set is, if nothing else is said."""
    return absolute(f"{RUNS_DIR}/{problem_name}/{hparams_set}")


def _run_folder(
    output_dir: _Path | None, problem_name: str, hparams_set: str | None
) -> pathlib.Path:
    if output_dir:
        return absolute(output_dir)
    if hparams_set:
        return default_output_dir(problem_name, hparams_set)
    raise UsageError(
        "output_dir is required, since hyperparameters without the name of a "
        "set have no default one."
    )
