"""Makes of a run a folder that tensor2tensor decodes with.

It holds a TensorFlow 1 checkpoint, hparams.json, flags.txt and the vocabulary.
The run must have a vocabulary of tensor2tensor's subwords.
"""

import argparse

from t2t_lite.bin.cli import command, flags
from t2t_lite.runtime import start_tensorflow


def make_parser() -> flags.Parser:
    """The flags of `t2t-lite-export-t2t`."""
    parser = flags.Parser("t2t-lite-export-t2t", __doc__)
    parser.epilog = (
        "example: t2t-lite-export-t2t runs/base --t2t_dir=t2t_train/base "
        "--problem=translate_ende_wmt32k"
    )
    parser.add_argument("run", metavar="RUN", help="the folder of a run")
    told = {
        "--t2t_dir=DIR": "what to write, a new folder",
        "--problem=NAME": "what tensor2tensor calls the problem (default: as "
        "the run does)",
    }
    flags.add(parser, told)
    flags.add_checkpoint_flag(parser)
    flags.add_usr_dir(parser)
    return parser


def export(args: argparse.Namespace) -> None:
    """Writes the folder and prints it."""
    flags.require(args, "t2t_dir")
    start_tensorflow(args.verbose)
    from t2t_lite.interop.tensor2tensor.exporting import export_run
    from t2t_lite.training.run import Run

    run = Run.open(flags.folder(args.run), args.usr_dir, to_decode=True)
    t2t_dir = flags.folder(args.t2t_dir)
    found = export_run(run, args.checkpoint, t2t_dir, args.problem)
    command.note(f"Weights: {found} ({found.path}).")
    print(t2t_dir)


def main(argv: list[str] | None = None) -> int:
    """Runs `t2t-lite-export-t2t`; returns its exit code."""
    return command.run(make_parser(), export, argv)


if __name__ == "__main__":
    raise SystemExit(main())
