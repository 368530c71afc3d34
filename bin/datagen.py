"""Turns a problem's corpus into a vocabulary and TFRecord shards."""

import argparse
import functools
import json
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from t2t_lite import recipe
from t2t_lite.bin.cli import (
    adoption,
    command,
    flags,
    inspection,
    own_text,
)
from t2t_lite.errors import UsageError
from t2t_lite.runtime import start_tensorflow

if TYPE_CHECKING:
    from t2t_lite.data.manifest import Manifest
    from t2t_lite.datagen.generate import Generation


def make_parser() -> flags.Parser:
    """The flags of `t2t-lite-datagen`."""
    parser = flags.Parser("t2t-lite-datagen", __doc__)
    told = "a registered problem; NAME_rev has the data of NAME"
    flags.add(parser, {"--problem=NAME": told})
    flags.add_corpus_flags(parser)
    flags.add_usr_dir(parser)
    told = " (default: that of the data which is there, else 1)"
    flags.add_seed(parser, None, told)
    told = "worker processes (default: one per CPU core)"
    flags.add(parser, {"--processes=N": told}, flags.at_least(1))
    switches = {
        "--overwrite": "generate the data again, from the start, even if it is "
        "there and fits",
        "--inspect": "generate nothing; report on the data that is there: "
        "counts, lengths, what was dropped, ten pairs at random",
    }
    flags.add(parser, switches)
    told = (
        "generate nothing; check the shards NAME-{train,dev,test}-* that "
        "tensor2tensor left in DIR, and make them data of --problem=NAME, "
        "where they lie; needs --vocabulary=FILE, or SOURCE,TARGET"
    )
    flags.add(parser, {"--adopt=DIR": told})
    flags.add_json(parser)
    flags.add_text_flags(parser)
    group = parser.add_argument_group(
        "more than one machine",
        "Apache Beam does the work: pip install "
        "'t2t-lite[beam]'. All machines must see the corpus and --data_dir "
        "under the same names, and have t2t-lite[beam].",
    )
    told = (
        "DirectRunner, DataflowRunner, FlinkRunner, SparkRunner or any other "
        "of Beam (default: this machine alone, without Beam)"
    )
    flags.add(group, {"--runner=RUNNER": told})
    group.add_argument(
        "beam_options",
        metavar="BEAM_OPTION",
        nargs="*",
        help="options for Beam itself, after --, as in -- "
        "--flink_master=localhost:8081 --parallelism=8",
    )
    return parser


def generate_data(args: argparse.Namespace) -> None:
    """Generates `--problem`, or inspects it, and prints what came out."""
    flags.require(args, "problem")
    if args.inspect:
        inspection.require_no_making(args)
    _refuse_what_beam_does_not_do(args)
    from t2t_lite import plugins

    plugins.load_plugins(args.usr_dir)
    if args.adopt:
        _print_report(args, adoption.adopt(args))
        return
    problem, data_dir = recipe.choose_problem(
        args.problem, own_text.given_options(args), args.data_dir
    )
    start_tensorflow(args.verbose)
    if args.inspect:
        inspection.inspect(args, problem, data_dir)
        return
    from t2t_lite.datagen.generate import Generation

    make = _on_beam(args) if args.runner else Generation
    manifest = make(
        problem,
        data_dir,
        raw_dir=flags.folder(args.raw_dir),
        tfds_dir=flags.folder(args.tfds_dir),
        seed=args.seed,
        processes=args.processes,
    ).run(args.overwrite)
    _print_report(args, manifest)


def _print_report(args: argparse.Namespace, manifest: "Manifest") -> None:
    """Print the counts of the data."""
    if args.json:
        print(json.dumps(_report(manifest)))
        return
    for split, record in manifest.splits.items():
        rows = f" in {record.records:,} packed rows" * record.is_packed
        dropped = "".join(
            f", {count} dropped: {reason}"
            for reason, count in record.dropped.items()
        )
        damaged = "".join(
            f", {count} with {what}" for what, count in record.damaged.items()
        )
        print(f"{split}: {record.examples:,} pairs{rows}{dropped}{damaged}")
    for told in manifest.told_corpora:
        print(f"train from {told}")


def _report(manifest: "Manifest") -> dict[str, Any]:
    """What came out, for `--json`."""
    splits = {
        split: {
            "examples": record.examples,
            "dropped": record.dropped,
            "damaged": record.damaged,
        }
        for split, record in manifest.splits.items()
    }
    corpora = {"corpora": manifest.corpora} if manifest.corpora else {}
    return {"problem": manifest.problem, "splits": splits, **corpora}


def _refuse_what_beam_does_not_do(args: argparse.Namespace) -> None:
    if not args.runner:
        if args.beam_options:
            raise UsageError(
                f"Unexpected argument {args.beam_options[0]!r}; flags look "
                "like --flag=value, and Beam's own come after --runner=RUNNER "
                "and --."
            )
        return
    if args.processes:
        raise UsageError(
            "--processes is for this machine alone; Beam's own options, after "
            "--, say how many workers --runner has."
        )
    for flag in ("data_dir", "raw_dir", "tfds_dir"):
        place = getattr(args, flag) or ""
        if "://" in place:
            raise UsageError(
                f"--{flag} must be a folder that all machines see, for example "
                f"on a network file system; got {place}."
            )


def _on_beam(args: argparse.Namespace) -> Callable[..., "Generation"]:
    """What makes a `Generation` by Apache Beam."""
    # Its messages are for developers; errors are told in one line.
    level = logging.INFO if args.verbose else logging.CRITICAL
    logging.basicConfig(level=level)
    logging.getLogger().setLevel(level)
    from t2t_lite.datagen.apache_beam import BeamGeneration

    return functools.partial(
        BeamGeneration, runner=args.runner, beam_options=args.beam_options
    )


def main(argv: list[str] | None = None) -> int:
    """Runs `t2t-lite-datagen`; returns its exit code."""
    return command.run(make_parser(), generate_data, argv)


if __name__ == "__main__":
    raise SystemExit(main())
