"""`t2t_lite.train`: from the name of a problem to a trained run."""

import os
import pathlib
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, overload

from t2t_lite import plugins, registry
from t2t_lite.errors import UsageError
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
    train_steps: int | None = None,
    eval_steps_every: int = 1000,
    save_minutes: float = 10,
    save_steps: int | None = None,
    save_retries: int = 3,
    max_minutes: float | None = None,
    stall_minutes: float = 30,
    keep_checkpoints: int = 20,
    strict_checkpoints: bool = False,
    best_metric: str = "auto",
    keep_best: int = 1,
    stop_after: int | None = None,
    stop_on: str | None = None,
    log_steps: int = 100,
    seed: int = 1,
    deterministic: bool = False,
    check_numerics: bool = False,
    jit: bool = False,
    recompute: bool = False,
    micro_batches: int | str | None = None,
    replicas: int | None = None,
    workers: str | None = None,
    worker: int | None = None,
    cluster_timeout: float = 600,
    sustained_tflops: float | None = None,
    dry_run: bool = False,
    verbose: bool = False,
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
      train_steps: optimizer updates in total; None takes the set's.
      eval_steps_every: updates between evaluations on the dev split.
      save_minutes: minutes between checkpoints.
      save_steps: updates between checkpoints, instead of minutes.
      save_retries: how often to try again in a row, each time that a checkpoint
        is due, when one cannot be saved, before training fails.
      max_minutes: save and raise `Interrupted` before this process has run for
        so many, as a queue may demand.
      stall_minutes: without an update, after which the stacks of all threads go
        to stderr; 0 turns it off.
      keep_checkpoints: how many of the newest to keep, besides the best.
      strict_checkpoints: refuse to go on if the newest checkpoint is damaged;
        by default it is set aside, and training goes on from the one before.
      best_metric: what tells the best checkpoint: "loss" on dev, the problem's
        metric, or "auto": the loss until the score reaches 1, then the score.
      keep_best: how many of the best checkpoints to keep.
      stop_after: ends training when so many evaluations in a row gave no
        better `stop_on`; None never does.
      stop_on: "dev_loss", "dev_perplexity" or the score in `metrics.jsonl`,
        such as "dev_bleu"; None takes the loss.
      log_steps: updates between lines of `metrics.jsonl`.
      seed: of everything random; the same seed gives the same result.
      deterministic: the same result to the bit each time; slower. It stays on
        for the whole process.
      check_numerics: raise an error that names the operation which produces the
        first NaN or Inf; slower. It stays on for the whole process.
      micro_batches: passes of an update, a multiple of the hparam, to take less
        memory; "auto" finds the fewest that fit. It changes nothing else.
      jit: compile the passes by XLA, once for each shape of batches; packing
        keeps these few.
      recompute: keep no activations within layers, and compute them again in
        the backward pass: less memory, more time, the same result.
      replicas: logical CPU devices to train on; None takes all GPUs, else
        one CPU.
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

    Returns:
      The run; `run.reached` says what came of it. Of a dry run, its report.

    Raises:
      UsageError: an unknown name, key or option, or values that do not fit.
      Interrupted: a signal came; everything is saved.
      T2TLiteError: something is wrong; the message says what to do.
    """
    options = TrainingOptions(
        train_steps=train_steps,
        eval_steps_every=eval_steps_every,
        save_minutes=save_minutes,
        save_steps=save_steps,
        save_retries=save_retries,
        max_minutes=max_minutes,
        stall_minutes=stall_minutes,
        keep_checkpoints=keep_checkpoints,
        strict_checkpoints=strict_checkpoints,
        log_steps=log_steps,
        best_metric=best_metric,
        keep_best=keep_best,
        stop_after=stop_after,
        stop_on=stop_on or "dev_loss",
        micro_batches=micro_batches,
        replicas=replicas,
        deterministic=deterministic,
        check_numerics=check_numerics,
        jit=jit,
        recompute=recompute,
    )
    options.require_positive()
    if stop_on and stop_after is None:
        raise UsageError("stop_on needs stop_after, a number of evaluations.")
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
    _require_metrics(options, task)
    _require_one_of("init_vocabulary", init_vocabulary, ("same", "map"))
    options.slices(values.micro_batches)  # refuses what does not fit them
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
        options=options,
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
    _require_one_of("stop_on", options.stop_on, (*stop, f"dev_{metric}"), where)


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
