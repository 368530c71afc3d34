"""The problem of a command: from what is given and what was kept.

Data keeps the options of its problem in its manifest and a run keeps them in
its config, so that a later command need not be given them again.
"""

import dataclasses
import pathlib
from collections.abc import Mapping
from typing import Any

from t2t_lite import plugins, registry
from t2t_lite.data.manifest import Manifest, find_data, import_hint
from t2t_lite.errors import T2TLiteError, UsageError, did_you_mean
from t2t_lite.problem import Problem
from t2t_lite.problem.text_files import TextFiles
from t2t_lite.training.config import CONFIG, problem_options
from t2t_lite.training.options import DATA_DIR
from t2t_lite.validators import folder


def choose_problem(
    problem: str | Problem | None,
    given: Mapping[str, Any],
    data_dir: pathlib.Path | None = None,
    output_dir: pathlib.Path | None = None,
    config: Mapping[str, Any] | None = None,
) -> tuple[Problem, pathlib.Path]:
    """Return the problem with its options, and the folder of its data.

    Given options win, unless they are only the `name` of own text. Otherwise
    the options are those of the run, else those of the data in `data_dir`.

    Without a `problem` it is that of the run in `output_dir`, which has that
    `config`; without `data_dir` the folder of its data, or the default.

    Raises:
      UsageError: no such problem or option; or, of own text, no files are given
        and none or several are kept.
      T2TLiteError: a manifest or an option in the config is damaged.
    """
    task: Any = problem
    if problem is None:
        task = _registered(config, output_dir)
    elif isinstance(problem, str):
        task = registry.problem(problem)
    if task.base_name not in registry.problem_names():
        raise UsageError(
            "A run finds its problem by name: put @register_problem before "
            f"{type(task).__name__}."
        )
    given = {**task.options, **given}
    place = data_dir or folder(DATA_DIR)
    name = given.get("name") if isinstance(task, TextFiles) else None
    if name in set(registry.problem_names()) - {task.base_name}:
        raise UsageError(
            f"`name` must not be that of another problem; got {name!r}."
        )
    if given.keys() - ({"name"} if name else ()):
        return task.with_options(given), place
    # An imported run may not know its data.
    if output_dir and config and config["data"]["fingerprint"]:
        kept = problem_options(config).get("name", task.base_name)
        trained = config["problem"].removesuffix(registry.REVERSED_SUFFIX)
        if trained == type(task).name and name in (None, kept):
            task = _with_options_of_run(task, output_dir, config)
            there = data_dir or _find_data(task, place, output_dir, config)
            return task, there
    if isinstance(task, TextFiles):
        task = _data_of_text(task, name, place)
    has_options = dataclasses.fields(task.options_type)
    if has_options and Manifest.path(place, task).exists():
        return task.with_options(Manifest.load(place, task).options), place
    return task.with_options({}), place


def _with_options_of_run(problem, output_dir, config):
    try:
        return problem.with_options(problem_options(config))
    except UsageError as error:
        place = f"{output_dir / CONFIG}: problem_options"
        raise T2TLiteError(f"{place}: {error}") from error


def _find_data(problem, default_dir, output_dir, config):
    """Return the folder that has the data of a run; make it nowhere else."""
    run_data_dir = pathlib.Path(config["data"]["dir"])
    for place in (run_data_dir, default_dir):
        if Manifest.path(place, problem).exists():
            return place
    raise T2TLiteError(
        f"{output_dir} was trained on data in {run_data_dir}, which holds no "
        f"data of {problem.base_name} now: put it back, or say with `data_dir` "
        f"where it is. `data_dir={run_data_dir}` makes it there again."
    )


def _data_of_text(problem, name, data_dir):
    """Return the own text whose data is in the folder."""
    names = find_data(data_dir, problem)
    default = name or problem.base_name
    if len(names) == 1 and not name:
        default = names[0]
    if default in names:
        return problem.with_options({"name": default})
    if names and not name:
        raise UsageError(
            f"{data_dir} holds the data of {', '.join(names)}: name one with "
            "`name`, or give the files of another."
        )
    way = import_hint(data_dir, default) or (
        "give its files with `source` and `target`, or `pairs`, to "
        "t2t-lite-datagen or t2t-lite-trainer, or name another `data_dir`."
        f"{did_you_mean(default, names)}"
    )
    raise UsageError(f"{data_dir} holds no data of {default}: {way}")


def problem_of_run(
    output_dir: pathlib.Path,
    config: Mapping[str, Any],
    usr_dir: str | None = None,
    *,
    to_decode: bool = False,
) -> Problem:
    """Return the problem that a run was trained on.

    Of a user's code only `usr_dir`, a folder or package, is imported, never the
    one that the config names. `to_decode` requires no code, if the config says
    that decoding needs only the vocabulary.

    Raises:
      UsageError: the problem is defined in a `usr_dir`, which is not given.
      T2TLiteError: the problem is unknown or has no such options.
    """
    plugins.load_plugins(usr_dir)
    base_name = config["problem"].removesuffix(registry.REVERSED_SUFFIX)
    is_known = usr_dir or base_name in registry.problem_names()
    if to_decode and config.get("decodes_alone") and not is_known:
        return _Recorded(config)
    problem = _registered(config, output_dir, usr_dir)
    return _with_options_of_run(problem, output_dir, config)


def _registered(config, output_dir, usr_dir=None):
    """Return the problem that a config names, without options."""
    name = config["problem"]
    try:
        return registry.problem(name)
    except UsageError as error:
        if config["usr_dir"] and not usr_dir:
            raise UsageError(
                f"{output_dir / CONFIG}: the problem {name} is defined in "
                f"{config['usr_dir']}: if you trust this code, add "
                f"`usr_dir={config['usr_dir']}`, or its new place."
            ) from error
        place = f"{output_dir / CONFIG}: problem"
        raise T2TLiteError(f"{place}: {error}") from error


class _Recorded(Problem):
    """The problem of a run as its config records it: enough to decode."""

    def __init__(self, config: Mapping[str, Any]):
        self.name = config["problem"]
        self.base_name = self.name.removesuffix(registry.REVERSED_SUFFIX)
        self.reversed = self.name != self.base_name
        self.options = problem_options(config)
        self._vocabulary = list(config["vocabulary"])

    def vocabulary_files(self) -> dict[str, str]:
        sides = self.swap_if_reversed(self._vocabulary[0], self._vocabulary[-1])
        return dict(zip(("inputs", "targets"), sides, strict=True))
