"""The problem of a command, from its arguments, the run and the data.

The manifest of the data and the config of a run store the options of the
problem, so later commands need no options.
"""

import dataclasses
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from t2t_lite import plugins, registry
from t2t_lite.data.manifest import Manifest, find_data, import_hint
from t2t_lite.errors import T2TLiteError, UsageError, did_you_mean
from t2t_lite.hparam import HParams
from t2t_lite.problem import Problem
from t2t_lite.problem.text_files import TextFiles
from t2t_lite.training import config as run_config
from t2t_lite.training.config import CONFIG, problem_options
from t2t_lite.training.options import (
    DATA_DIR,
    TrainingOptions,
    default_output_dir,
)
from t2t_lite.training.schedules import last_step
from t2t_lite.validators import check, folder


class Job(NamedTuple):
    """A run to create or to resume."""

    problem: Problem
    hparams: HParams
    hparams_set: str | None  # the name, if the hparams are from a set
    output_dir: Path
    data_dir: Path
    options: TrainingOptions
    config: Mapping[str, Any] | None  # of an existing run

    def has_data(self) -> bool:
        """Return whether the data is generated."""
        return Manifest.path(self.data_dir, self.problem).exists()


def choose_job(
    problem: str | Problem | None,
    hparams: str | HParams | None,
    output_dir: str | os.PathLike | None,
    options: TrainingOptions,
) -> Job:
    """Check the arguments of `t2t_lite.train`; take missing ones from a run."""
    plugins.load_plugins(options.usr_dir)
    run_dir = check("output_dir", output_dir, folder) if output_dir else None
    config = run_config.find_config(run_dir) if run_dir else None
    # Without hparams, the run in init_from provides them.
    has_hparams = hparams is not None or options.init_from
    if config is None and (problem is None or not has_hparams):
        raise UsageError(
            "problem and hparams are required, unless output_dir has a run "
            f"(got problem={problem}, hparams={hparams}, "
            f"output_dir={output_dir})."
        )
    values, set_name = _choose_hparams(hparams, options.init_from, config)
    values = values.override(options.hparams_override)
    if not run_dir and set_name and problem:
        name = problem if isinstance(problem, str) else problem.name
        run_dir = default_output_dir(name, set_name)
        config = None if options.data_dir else run_config.find_config(run_dir)
    given = options.problem_options or {}
    task, data_dir = choose_problem(
        problem, given, options.data_dir, run_dir, config
    )
    if not run_dir:
        raise UsageError(
            "output_dir is required with hyperparameters that are not a "
            "registered set."
        )
    if not output_dir:
        # The name of text files comes from their options or data.
        run_dir = default_output_dir(task.name, str(set_name))
        config = run_config.find_config(run_dir)
    task.check_metric()
    metrics = ("auto", "loss", task.metric, *task.other_metrics)
    if options.best_metric not in metrics:
        raise UsageError(
            f"best_metric must be one of {', '.join(metrics)} for {task.name}; "
            f"got {options.best_metric!r}."
        )
    run_config.require_fitting_vocabularies(task, values)
    last_step(values, options.train_steps)  # an error, if the rate reaches 0
    return Job(task, values, set_name, run_dir, data_dir, options, config)


def _choose_hparams(hparams, init_from, config):
    if isinstance(hparams, HParams):
        return hparams, None
    if hparams is not None:
        return registry.hparams(hparams), hparams
    start = init_from or Path()  # or RUN/checkpoints/NAME
    found = (x for x in (start, *start.parents) if (x / CONFIG).is_file())
    known = config or run_config.read_config(next(found, start))
    return HParams.from_dict(known["hparams"]), known.get("hparams_set")


def choose_problem(
    problem: str | Problem | None,
    given: Mapping[str, Any],
    data_dir: Path | None = None,
    output_dir: Path | None = None,
    config: Mapping[str, Any] | None = None,
) -> tuple[Problem, Path]:
    """Return the problem with its options, and the folder of its data.

    If `problem` is None, `config`, from the run in `output_dir`, names it.
    Without `given` options, except the `name` of text files, the options come
    from the run, else from the data. Without a `data_dir` the folder is the
    folder of the run's data, else the default.

    Raises:
      UsageError: the problem or an option is unknown; or text files are neither
        given nor found in `data_dir`, or several are found.
    """
    task: Any = problem
    if problem is None:
        task = _registered(config, output_dir)
    elif isinstance(problem, str):
        task = registry.problem(problem)
    if task.base_name not in registry.problem_names():
        raise UsageError(
            "A run requires a registered problem: put @register_problem before "
            f"{type(task).__name__}."
        )
    given = {**task.options, **given}
    search_dir = data_dir or folder(DATA_DIR)
    name = given.get("name") if isinstance(task, TextFiles) else None
    if name in set(registry.problem_names()) - {task.base_name}:
        raise UsageError(
            f"`name` must not be the name of another problem; got {name!r}."
        )
    if given.keys() - ({"name"} if name else ()):
        return task.with_options(given), search_dir
    # An imported run without data has no fingerprint.
    if output_dir and config and config["data"]["fingerprint"]:
        run_name = problem_options(config).get("name", task.base_name)
        trained = config["problem"].removesuffix(registry.REVERSED_SUFFIX)
        if trained == type(task).name and name in (None, run_name):
            task = _with_options_of_run(task, output_dir, config)
            if not data_dir:
                data_dir = _find_data(task, search_dir, output_dir, config)
            return task, data_dir
    if isinstance(task, TextFiles):
        task = _find_text_files(task, name, search_dir)
    options = {}
    has_options = dataclasses.fields(task.options_type)
    if has_options and Manifest.path(search_dir, task).exists():
        options = Manifest.load(search_dir, task).options
    return task.with_options(options), search_dir


def _with_options_of_run(problem, output_dir, config):
    try:
        return problem.with_options(problem_options(config))
    except UsageError as error:
        key = f"{output_dir / CONFIG}: problem_options"
        raise T2TLiteError(f"{key}: {error}") from error


def _find_data(problem, default_dir, output_dir, config):
    """Return the folder with the data of a run, which must exist."""
    run_data_dir = Path(config["data"]["dir"])
    for path in (run_data_dir, default_dir):
        if Manifest.path(path, problem).exists():
            return path
    raise T2TLiteError(
        f"{output_dir} was trained on data in {run_data_dir}, which has no "
        f"data of {problem.base_name} now: restore the data, or set `data_dir` "
        f"to its folder. `data_dir={run_data_dir}` generates the data again."
    )


def _find_text_files(problem, name, data_dir):
    """Return the text-files problem whose data is in the folder."""
    names = find_data(data_dir, problem)
    default = name or problem.base_name
    if len(names) == 1 and not name:
        default = names[0]
    if default in names:
        return problem.with_options({"name": default})
    if names and not name:
        raise UsageError(
            f"{data_dir} has the data of {', '.join(names)}: select one with "
            "`name`, or give other files."
        )
    fix = import_hint(data_dir, default) or (
        "give its files with `source` and `target`, or `pairs`, to "
        "t2t-lite-datagen or t2t-lite-trainer, or choose another `data_dir`."
        f"{did_you_mean(default, names)}"
    )
    raise UsageError(f"{data_dir} has no data of {default}: {fix}")


def problem_of_run(
    output_dir: Path,
    config: Mapping[str, Any],
    usr_dir: str | None = None,
    *,
    to_decode: bool = False,
) -> Problem:
    """Return the problem that a run was trained on.

    Only `usr_dir`, a folder or package, is imported, and never the folder named
    in the config, which may not be trusted. `to_decode` accepts an unknown
    problem if the config records that decoding works without its code.
    """
    plugins.load_plugins(usr_dir)
    base_name = config["problem"].removesuffix(registry.REVERSED_SUFFIX)
    is_known = usr_dir or base_name in registry.problem_names()
    if to_decode and config.get("decodes_alone") and not is_known:
        return _RecordedProblem(config)
    problem = _registered(config, output_dir, usr_dir)
    return _with_options_of_run(problem, output_dir, config)


def _registered(config, output_dir, usr_dir=None):
    name = config["problem"]
    try:
        return registry.problem(name)
    except UsageError as error:
        if config["usr_dir"] and not usr_dir:
            raise UsageError(
                f"{output_dir / CONFIG}: the problem {name} requires the code "
                f"in {config['usr_dir']}. If you trust the code, add "
                f"`usr_dir={config['usr_dir']}`, or its new path."
            ) from error
        key = f"{output_dir / CONFIG}: problem"
        raise T2TLiteError(f"{key}: {error}") from error


class _RecordedProblem(Problem):
    """A problem without code, restored from a config for decoding."""

    def __init__(self, config: Mapping[str, Any]):
        self.name = config["problem"]
        self.base_name = self.name.removesuffix(registry.REVERSED_SUFFIX)
        self.reversed = self.name != self.base_name
        self.options = problem_options(config)
        self._vocabulary = list(config["vocabulary"])

    def vocabulary_files(self) -> dict[str, str]:
        sides = self.swap_if_reversed(self._vocabulary[0], self._vocabulary[-1])
        return dict(zip(("inputs", "targets"), sides, strict=True))
