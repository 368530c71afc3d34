"""The options of a problem that the flags give."""

import argparse
from typing import Any

from t2t_lite import registry
from t2t_lite.errors import UsageError
from t2t_lite.problem.own_text import OwnText
from t2t_lite.problem.own_text_options import OPTIONS
from t2t_lite.values import parse_key_values


def given_options(args: argparse.Namespace) -> dict[str, Any]:
    """The options that are given for `--problem`, by name.

    Raises:
      UsageError: no such problem, or flags that it does not take.
    """
    problem = registry.problem(args.problem)
    flags = {option.name: getattr(args, option.name) for option in OPTIONS}
    options = {
        name: value for name, value in flags.items() if value is not None
    }
    if not isinstance(problem, OwnText):
        for option in OPTIONS:
            if option.name in options:
                raise UsageError(
                    f"{option.flag} goes with --problem=text; got "
                    f"--problem={args.problem}."
                )
        return parse_key_values(args.problem_options, "--problem_options")
    if args.problem_options:
        raise UsageError(
            f"{args.problem} has flags for its options, such as --source; "
            f"leave --problem_options out; got {args.problem_options}."
        )
    return options
