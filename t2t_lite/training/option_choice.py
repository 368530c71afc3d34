"""Which options a problem goes by: those given, or those kept.

Data keeps the options of its problem in its manifest and a run keeps them in
its config, so that a later command need not be given them again.
"""

import os
import pathlib
from collections.abc import Mapping
from typing import Any

from t2t_lite import registry
from t2t_lite.data.manifest import Manifest, find_data
from t2t_lite.errors import UsageError, nearest
from t2t_lite.problem import Problem
from t2t_lite.problem.own_text import OwnText
from t2t_lite.training.config import CONFIG, problem_options, read_config


def choose_options(
    problem: Problem,
    given: Mapping[str, Any],
    data_dir: str | os.PathLike,
    output_dir: str | os.PathLike | None = None,
    *,
    data_dir_given: bool = True,
) -> tuple[Problem, pathlib.Path]:
    """The problem with its options, and where its data is.

    Options that are given stand for themselves. Otherwise they are those of a
    run in `output_dir` where `data_dir` was not given, then those of the data
    in `data_dir`, if there is any.

    Args: as of `choose_text`, for a problem whose data has one name.

    Raises:
      UsageError: an option is unknown or bad.
      T2TLiteError: the manifest or the config cannot be read.
    """
    data_dir = pathlib.Path(data_dir)
    if given:
        return problem.with_options(given), data_dir
    if not problem.known_options:
        return problem, data_dir
    options, run_data_dir = _options_of_run(problem, None, output_dir)
    if options is not None and not data_dir_given:
        return problem.with_options(options), run_data_dir
    if Manifest.path(data_dir, problem).exists():
        options = Manifest.load(data_dir, problem).options
    return problem.with_options(options or {}), data_dir


def choose_text(
    problem: OwnText,
    given: Mapping[str, Any],
    data_dir: str | os.PathLike,
    output_dir: str | os.PathLike | None = None,
    *,
    data_dir_given: bool = True,
) -> tuple[OwnText, pathlib.Path]:
    """The problem with its options, and where its data is.

    Options that are more than a name stand for themselves. Otherwise they are
    those of a run in `output_dir` where `data_dir` was not given, then those of
    the data in `data_dir`, then those of the run.

    Args:
      problem: in either direction, without options.
      given: options, see `OwnText`; `{}` or a `name` asks for kept ones.
      data_dir: where data is, or will be.
      output_dir: where a run is, or will be.
      data_dir_given: False where `data_dir` is a default; the data of the run
        is then meant rather than what happens to lie there.

    Raises:
      UsageError: the name is that of another problem; or nothing is given and
        nothing kept; or several are kept and none is named.
      T2TLiteError: the manifest or the config cannot be read.
    """
    data_dir = pathlib.Path(data_dir)
    name = given.get("name")
    others = set(registry.problem_names()) - {problem.base_name}
    if name in others:
        raise UsageError(
            f"--name must not be that of another problem; got {name!r}."
        )
    if not given.keys() <= {"name"}:
        return problem.with_options(given), data_dir
    options, run_data_dir = _options_of_run(problem, name, output_dir)
    if options and not data_dir_given:
        return problem.with_options(options), run_data_dir
    kept = _options_of_data(problem, name, data_dir, needed=not options)
    return problem.with_options(kept or options), data_dir


def _options_of_data(problem, name, data_dir, needed):
    """The options of the data that is there, or None."""
    names = find_data(data_dir, problem)
    default = name or problem.base_name
    if default in names or (len(names) == 1 and not name):
        chosen = default if default in names else names[0]
        named = problem.with_options({"name": chosen})
        return Manifest.load(data_dir, named).options
    if not needed:
        return None
    if names and not name:
        raise UsageError(
            f"{data_dir} holds the data of {', '.join(names)}: name one with "
            "--name, or give the files of another."
        )
    raise UsageError(
        f"{data_dir} holds no data of {default}: give its files with --source "
        "and --target, or --pairs, to t2t-lite-datagen or t2t-lite-trainer, or "
        "name another --data_dir."
        f"{nearest(default, names)}"
    )


def _options_of_run(problem, name, output_dir):
    """The options and the data folder of a run of this problem, or None."""
    if not output_dir or not (pathlib.Path(output_dir) / CONFIG).exists():
        return None, None
    config = read_config(pathlib.Path(output_dir))
    options = problem_options(config)
    is_same = config["problem"].removesuffix("_rev") == type(problem).name
    is_named = name in (None, options.get("name", problem.base_name))
    if not (is_same and is_named):
        return None, None
    return options, pathlib.Path(config["data"]["dir"])
