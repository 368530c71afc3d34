"""Checks that this machine, data and run are in order.

One line for each check: ok, or what to do. The exit code is 1 if something
must be done.
"""

import argparse
import json

from t2t_lite import plugins, recipe, registry
from t2t_lite.bin.cli import command, flags, habits
from t2t_lite.errors import T2TLiteError


def make_parser() -> flags.Parser:
    """The flags of `t2t-lite-doctor`."""
    parser = flags.Parser("t2t-lite-doctor", __doc__)
    parser.epilog = (
        "example: t2t-lite-doctor --problem=wmt_ende --hparams=transformer_big"
    )
    where = {
        "--problem=NAME": "also check its data",
        "--hparams=SET": "with --problem, the default --output_dir",
        "--output_dir=DIR": "also check this folder and the run in it",
    }
    flags.add(parser, where)
    told = "the TFRecord shards and the vocabulary"
    flags.add(parser, {"--data_dir=DIR": told}, default=recipe.DATA_DIR)
    flags.add_usr_dir(parser)
    told = "read all of data and checkpoint, however long that takes"
    flags.add(parser, {"--full": told})
    flags.add_json(parser)
    return parser


def examine(args: argparse.Namespace) -> None:
    """Prints what the checks found."""
    plugins.load_plugins(args.usr_dir)
    command.note_any(habits.rename_problem(args))
    output_dir, problem = recipe.absolute(args.output_dir), None
    data_dir = recipe.absolute(args.data_dir)
    if args.hparams:
        registry.hparams(args.hparams)  # is there such a set?
    if args.problem and args.hparams and not output_dir:
        output_dir = recipe.default_output_dir(args.problem, args.hparams)
    if args.problem:
        problem, data_dir = recipe.choose_problem(
            args.problem, {}, args.data_dir, output_dir
        )
    from t2t_lite.doctor import checks
    from t2t_lite.doctor.finding import Asked
    from t2t_lite.runtime import start_tensorflow

    start_tensorflow(args.verbose)
    asked = Asked(
        data_dir=data_dir,
        output_dir=output_dir,
        problem=problem,
        usr_dir=args.usr_dir,
        seconds=None if args.full else Asked.seconds,
    )
    found = []
    for finding in checks.examine(asked):
        found.append(finding)
        if not args.json:
            mark = "ok" if finding.ok else "TO DO"
            text = " ".join(finding.text.split())
            print(f"{mark:6}{finding.name}: {text}", flush=True)
    to_do = sum(not finding.ok for finding in found)
    if args.json:
        listed = [finding._asdict() for finding in found]
        print(json.dumps({"ok": not to_do, "checks": listed}))
    if to_do:
        raise T2TLiteError(
            f"{to_do} of {len(found)} checks found something to do."
        )


def main(argv: list[str] | None = None) -> int:
    """Runs `t2t-lite-doctor`; returns its exit code."""
    return command.run(make_parser(), examine, argv)


if __name__ == "__main__":
    raise SystemExit(main())
