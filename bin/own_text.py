"""The problem that the flags name, with the options of their text flags."""

import argparse
import pathlib
from typing import TYPE_CHECKING

from t2t_lite.bin import flags
from t2t_lite.errors import UsageError, nearest

if TYPE_CHECKING:
    from t2t_lite.problem import Problem


def problem_and_data(
    args: argparse.Namespace,
) -> tuple["Problem", pathlib.Path]:
    """The problem of `--problem`, and where its data is.

    Its options are those of the flags. Where these name no files, they are
    those of the data that is in `--data_dir`, or of the run in `--output_dir`,
    whose data is meant where `--data_dir` was not given.

    Raises:
      UsageError: no such problem, flags that it does not take, or no files and
        no data.
    """
    from t2t_lite import registry
    from t2t_lite.text_files import TextFiles

    problem = registry.problem(args.problem)
    data_dir = flags.folder(args.data_dir)
    options = flags.text_options(args)
    if not isinstance(problem, TextFiles):
        _refuse_options(args, options)
        return problem, data_dir
    if args.raw_dir:
        raise UsageError(
            f"{args.problem} reads the files that --source, --target or "
            f"--pairs name: leave --raw_dir out; got {args.raw_dir}."
        )
    name = options.get("name")
    if name in set(registry.problem_names()) - {problem.base_name}:
        raise UsageError(
            f"--name must not be that of another problem; got {name!r}."
        )
    if options.keys() <= {"name"}:
        options, data_dir = _kept_options(args, problem, data_dir, name)
    return registry.problem(args.problem, options), data_dir


def _refuse_options(args, options):
    for name, value in options.items():
        flag = f"--{name}"
        if value is False:
            flag = "--separate_vocabularies"
        raise UsageError(
            f"{flag} goes with --problem=text; got --problem={args.problem}."
        )


def _kept_options(args, problem, data_dir, name):
    """The options of data or of a run that is there, and the data folder."""
    from t2t_lite.manifest import Manifest, find_data

    options, run_data_dir = _options_of_run(args, problem, name)
    if options and args.data_dir == flags.DATA_DIR:
        return options, flags.folder(run_data_dir)
    names = find_data(data_dir, problem)
    default = name or problem.base_name
    if default in names or (len(names) == 1 and not name):
        chosen = default if default in names else names[0]
        named = problem.with_options({"name": chosen})
        return Manifest.load(data_dir, named).options, data_dir
    if options:
        return options, data_dir
    if names and not name:
        raise UsageError(
            f"{data_dir} holds the data of {', '.join(names)}: name one with "
            "--name, or give the files of another."
        )
    raise UsageError(
        f"{data_dir} holds no data of {default}: give its files with --source "
        "and --target, or --pairs, or name another --data_dir."
        f"{nearest(default, names)}"
    )


def _options_of_run(args, problem, name):
    """The options and the data folder of the run in `--output_dir`."""
    from t2t_lite.run_config import CONFIG, problem_options, read_config

    output_dir = flags.folder(getattr(args, "output_dir", None))
    if not output_dir or not (output_dir / CONFIG).exists():
        return None, None
    config = read_config(output_dir)
    options = problem_options(config)
    is_same = config["problem"].removesuffix("_rev") == type(problem).name
    is_named = name in (None, options.get("name", problem.base_name))
    if not (is_same and is_named):
        return None, None
    return options, config["data"]["dir"]
