"""Average the weights of a run's last checkpoints.

Decoding uses the newest and largest average by default.
"""

import argparse

from t2t_lite.bin.cli import command, flags, runs
from t2t_lite.bin.cli.command import Command
from t2t_lite.hparam import HParams
from t2t_lite.tf_setup import start_tensorflow


def _add_flags(parser: flags.Parser) -> None:
    flags.add_run_flags(parser)
    about = "newest checkpoints to use (default: the run's average_checkpoints)"
    flags.add(parser, {"--num_checkpoints=N": about})


def average(args: argparse.Namespace) -> None:
    """Save the average and print its folder."""
    output_dir, config = runs.find_run(args)
    hparams = HParams.from_dict(config["hparams"])
    count = args.num_checkpoints or hparams.average_checkpoints
    start_tensorflow(args.verbose)
    from t2t_lite.training import checkpoints

    folder = output_dir / checkpoints.FOLDER
    mean = checkpoints.average_checkpoints(folder, count)
    if mean.averaged != count:
        command.note(f"There are only {mean.averaged} checkpoints.")
    if checkpoints.resolve(folder, "default").path != mean.path:
        command.note(f"To decode with it, add --checkpoint={mean.path}.")
    print(mean.path)


main = Command("t2t-lite-average", __doc__, _add_flags, average)
