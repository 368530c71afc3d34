"""Averages the weights of a run's last checkpoints.

Decoding then uses the average, unless --checkpoint says otherwise.
"""

import argparse

from t2t_lite.bin.cli import command, flags, runs


def make_parser() -> flags.Parser:
    """The flags of `t2t-lite-average`."""
    parser = flags.Parser("t2t-lite-average", __doc__)
    flags.add_run_flags(parser)
    told = "how many of the newest (default: the run's average_checkpoints)"
    flags.add(parser, {"--num_checkpoints=N": told}, flags.at_least(1))
    return parser


def average(args: argparse.Namespace) -> None:
    """Makes the average and prints its folder."""
    run = runs.open_run(args)
    from t2t_lite.training import checkpoint

    count = args.num_checkpoints or run.hparams.average_checkpoints
    made = checkpoint.average(run.checkpoints_dir, count)
    if made.averaged != count:
        command.note(f"There are only {made.averaged} checkpoints.")
    print(made.path)


def main(argv: list[str] | None = None) -> int:
    """Runs `t2t-lite-average`; returns its exit code."""
    return command.run(make_parser(), average, argv)


if __name__ == "__main__":
    raise SystemExit(main())
