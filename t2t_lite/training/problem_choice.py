"""Which problem a command works on: by what is given and what was kept.

Data keeps the options of its problem in its manifest and a run keeps them in
its config, so that a later command need not be given them again. A run also
says where the code of its problem is, and whether decoding needs it.
"""

import os
import pathlib
from collections.abc import Mapping
from typing import Any

from t2t_lite import plugins, registry
from t2t_lite.data.manifest import Manifest, find_data
from t2t_lite.data.remedies import how_to_adopt
from t2t_lite.errors import T2TLiteError, UsageError, nearest
from t2t_lite.problem import Problem
from t2t_lite.problem.own_text import OwnText
from t2t_lite.training.config import (
    CONFIG,
    has_data,
    problem_options,
    read_config,
)


def choose_options(
    problem: Problem,
    given: Mapping[str, Any],
    data_dir: str | os.PathLike,
    output_dir: str | os.PathLike | None = None,
    *,
    data_dir_given: bool = True,
) -> tuple[Problem, pathlib.Path]:
    """The problem with its options, and where its data is.

    Options that are more than a name stand for themselves. Otherwise they are
    those of a run in `output_dir` where `data_dir` was not given, then those of
    the data in `data_dir`, then those of the run.

    Args:
      problem: in either direction, without options.
      given: its options; `{}`, or the `name` of own text, asks for kept ones.
      data_dir: where data is, or will be.
      output_dir: where a run is, or will be.
      data_dir_given: False where `data_dir` is a default; the data of the run
        is then meant rather than what happens to lie there.

    Raises:
      UsageError: an option is unknown or bad. Of own text: the name is that of
        another problem; nothing is given and nothing kept; or several are kept
        and none is named.
      T2TLiteError: the manifest or the config cannot be read.
    """
    data_dir = pathlib.Path(data_dir)
    is_own_text = isinstance(problem, OwnText)
    name = given.get("name") if is_own_text else None
    if name in set(registry.problem_names()) - {problem.base_name}:
        raise UsageError(
            f"--name must not be that of another problem; got {name!r}."
        )
    if given.keys() - ({"name"} if name else ()):
        return problem.with_options(given), data_dir
    options, run_data_dir = _options_of_run(problem, name, output_dir)
    if options is not None and not data_dir_given:
        problem = _with_options_of_run(problem, options, output_dir)
        return problem, _find_data(problem, run_data_dir, data_dir, output_dir)
    if not problem.known_options:
        return problem.with_options({}), data_dir
    if is_own_text:
        kept = _options_of_text(problem, name, data_dir, needed=not options)
    elif Manifest.path(data_dir, problem).exists():
        kept = Manifest.load(data_dir, problem).options
    else:
        kept = None
    if kept is None and options:
        return _with_options_of_run(problem, options, output_dir), data_dir
    return problem.with_options(kept or {}), data_dir


def _with_options_of_run(problem, options, output_dir):
    try:
        return problem.with_options(options)
    except UsageError as error:
        path = pathlib.Path(output_dir) / CONFIG
        raise T2TLiteError(f"{path}: problem_options: {error}") from error


def _find_data(problem, run_data_dir, default_dir, output_dir):
    """The folder that has the data of a run; it is not made elsewhere."""
    for folder in (run_data_dir, default_dir):
        if Manifest.path(folder, problem).exists():
            return folder
    raise T2TLiteError(
        f"{output_dir} was trained on data in {run_data_dir}, which holds no "
        f"data of {problem.base_name} now: put it back, or say with --data_dir "
        f"where it is. --data_dir={run_data_dir} makes it there again."
    )


def _options_of_text(problem, name, data_dir, needed):
    """The options of the own text whose data is there, or None."""
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
    way = how_to_adopt(data_dir, default) or (
        "give its files with --source and --target, or --pairs, to "
        "t2t-lite-datagen or t2t-lite-trainer, or name another --data_dir."
        f"{nearest(default, names)}"
    )
    raise UsageError(f"{data_dir} holds no data of {default}: {way}")


def _options_of_run(problem, name, output_dir):
    """The options and the data folder of a run of this problem, or None."""
    if not output_dir or not (pathlib.Path(output_dir) / CONFIG).exists():
        return None, None
    config = read_config(pathlib.Path(output_dir))
    options = problem_options(config)
    is_same = config["problem"].removesuffix("_rev") == type(problem).name
    is_named = name in (None, options.get("name", problem.base_name))
    if not (is_same and is_named and has_data(config)):
        return None, None
    return options, pathlib.Path(config["data"]["dir"])


def problem_of_run(
    output_dir: pathlib.Path,
    config: Mapping[str, Any],
    usr_dir: str | None = None,
    *,
    to_decode: bool = False,
) -> Problem:
    """The problem that a run was trained on.

    Problems of installed packages are registered already. Of a user's code only
    `usr_dir` is imported, never the folder that the config names.

    Args:
      output_dir: of the run.
      config: of the run.
      usr_dir: a folder or package with the code of the problem.
      to_decode: data and scores of the problem are not needed. If the config
        says that decoding needs only the vocabulary, no code is needed.

    Raises:
      UsageError: the problem is defined in a `usr_dir`, which is not given.
      T2TLiteError: the problem is unknown or has no such options.
    """
    plugins.load_plugins(usr_dir)
    name = config["problem"]
    base_name = name.removesuffix(registry.REVERSED_SUFFIX)
    if base_name not in registry.problem_names() and not usr_dir:
        if to_decode and config.get("decodes_alone"):
            return _Recorded(config)
        if config["usr_dir"]:
            raise UsageError(
                f"{output_dir / CONFIG}: the problem {name} is defined in "
                f"{config['usr_dir']}: if you trust this code, add "
                f"--usr_dir={config['usr_dir']}, or its new place."
            )
    try:
        problem = registry.problem(name)
    except UsageError as error:
        raise T2TLiteError(
            f"{output_dir / CONFIG}: problem: {error}"
        ) from error
    return _with_options_of_run(problem, problem_options(config), output_dir)


class _Recorded(Problem):
    """What the config of a run says of its problem: enough to decode."""

    def __init__(self, config: Mapping[str, Any]):
        self.name = config["problem"]
        self.base_name = self.name.removesuffix(registry.REVERSED_SUFFIX)
        self.reversed = self.name != self.base_name
        self.options = problem_options(config)
        self._vocabulary = list(config["vocabulary"])

    def vocabulary_files(self) -> dict[str, str]:
        inputs, targets = self._vocabulary[0], self._vocabulary[-1]
        source_side, target_side = self.directed(inputs, targets)
        return {"inputs": source_side, "targets": target_side}
