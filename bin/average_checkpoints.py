"""Average the weights of a run's last checkpoints.

Decoding then uses the average, unless --checkpoint says otherwise.
"""

import argparse

from t2t_lite.bin.cli import command, flags, runs
from t2t_lite.bin.cli.command import Command
from t2t_lite.hparam import HParams
from t2t_lite.tf_setup import start_tensorflow
from t2t_lite.validators import integer


def _add_flags(parser: flags.Parser) -> None:
    flags.add_run_flags(parser)
    told = "how many of the newest (default: the run's average_checkpoints)"
    flags.add(parser, {"--num_checkpoints=N": told}, integer(1))


def average(args: argparse.Namespace) -> None:
    """Make the average and print its folder."""
    output_dir, config = runs.find_run(args)
    hparams = HParams.from_dict(config["hparams"])
    count = args.num_checkpoints or hparams.average_checkpoints
    start_tensorflow(args.verbose)
    from t2t_lite.training.checkpoints import FOLDER, average_checkpoints

    made = average_checkpoints(output_dir / FOLDER, count)
    if made.averaged != count:
        command.note(f"There are only {made.averaged} checkpoints.")
    print(made.path)


main = Command("t2t-lite-average", __doc__, _add_flags, average)
