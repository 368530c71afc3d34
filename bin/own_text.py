"""The problem that the flags name, with the options of their text flags."""

import argparse
import pathlib
from typing import TYPE_CHECKING

from t2t_lite.bin import flags
from t2t_lite.errors import UsageError

if TYPE_CHECKING:
    from t2t_lite.problem import Problem


def problem_and_data(
    args: argparse.Namespace,
) -> tuple["Problem", pathlib.Path]:
    """The problem of `--problem`, and where its data is.

    Own text without the flags that name files is that of the data or of the run
    that is there, see `choose_text`.

    Raises:
      UsageError: no such problem, flags that it does not take, or no files and
        no data.
    """
    from t2t_lite import registry
    from t2t_lite.text_choice import choose_text
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
    return choose_text(
        problem,
        options,
        data_dir,
        flags.folder(getattr(args, "output_dir", None)),
        data_dir_given=args.data_dir != flags.DATA_DIR,
    )


def _refuse_options(args, options):
    for name, value in options.items():
        flag = f"--{name}"
        if value is False:
            flag = "--separate_vocabularies"
        raise UsageError(
            f"{flag} goes with --problem=text; got --problem={args.problem}."
        )
