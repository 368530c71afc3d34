"""Opens the run that the flags name, for commands that use a trained model."""

import argparse
from typing import TYPE_CHECKING

from t2t_lite.bin.cli import command, flags
from t2t_lite.errors import UsageError
from t2t_lite.runtime import start_tensorflow

if TYPE_CHECKING:
    from t2t_lite.decoding.translator import Translator
    from t2t_lite.training.run import Run


def open_run(args: argparse.Namespace) -> "Run":
    """The `Run` of `--output_dir`, or of `--problem` and `--hparams`.

    Imports TensorFlow.

    Raises:
      UsageError: the flags name no run, or not the problem that is there.
      T2TLiteError: there is no run, or it is damaged.
    """
    output_dir = flags.output_dir(args)
    start_tensorflow(args.verbose)
    from t2t_lite.training.run import Run

    run = Run.open(output_dir, args.usr_dir)
    names = (run.problem.name, run.problem.registered_name)
    if args.problem and args.problem not in names:
        raise UsageError(
            f"--problem={args.problem} is not what {output_dir} was trained "
            f"on, which is {run.problem.name}."
        )
    return run


def make_translator(run: "Run", args: argparse.Namespace) -> "Translator":
    """A translator with the weights and the search that the flags ask for.

    Says on stderr which weights it took.
    """
    model, found = run.load_model(args.checkpoint)
    command.note(f"Weights: {found} ({found.path}).")
    return run.translator(
        model,
        beam_size=args.beam_size,
        alpha=args.alpha,
        constrained=args.constrained,
    )
