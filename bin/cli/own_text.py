"""The problem that the flags name, with the options that they give."""

import argparse
import pathlib
from collections.abc import Mapping
from typing import TYPE_CHECKING

from t2t_lite.bin.cli import flags
from t2t_lite.errors import UsageError
from t2t_lite.key_values import parse_key_values
from t2t_lite.problem.own_text import OwnText
from t2t_lite.problem.own_text_options import OPTIONS

if TYPE_CHECKING:
    from t2t_lite.problem import Problem


def problem_and_data(
    args: argparse.Namespace,
) -> tuple["Problem", pathlib.Path]:
    """The problem of `--problem`, and where its data is.

    Options that are not given are those of the data or of the run that is
    there, see `training.option_choice`.

    Raises:
      UsageError: no such problem, flags that it does not take, or no files and
        no data.
    """
    from t2t_lite import registry
    from t2t_lite.training.option_choice import choose_options, choose_text

    problem = registry.problem(args.problem)
    options = flags.text_options(args)
    places = {
        "data_dir": flags.folder(args.data_dir),
        "output_dir": flags.folder(getattr(args, "output_dir", None)),
        "data_dir_given": args.data_dir != flags.DATA_DIR,
    }
    if not isinstance(problem, OwnText):
        _refuse_options(args, options)
        given = parse_key_values(args.problem_options, "--problem_options")
        return choose_options(problem, given, **places)
    if args.problem_options:
        raise UsageError(
            f"{args.problem} has flags for its options, such as --source; "
            f"leave --problem_options out; got {args.problem_options}."
        )
    if args.raw_dir:
        raise UsageError(
            f"{args.problem} reads the files that --source, --target or "
            f"--pairs name: leave --raw_dir out; got {args.raw_dir}."
        )
    return choose_text(problem, options, **places)


def _refuse_options(
    args: argparse.Namespace, options: Mapping[str, str | bool]
) -> None:
    for option in OPTIONS:
        if option.name in options:
            raise UsageError(
                f"{option.flag} goes with --problem=text; got "
                f"--problem={args.problem}."
            )
