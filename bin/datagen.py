"""Convert a problem's corpus to a vocabulary and TFRecord shards."""

import argparse
import dataclasses
import functools
import itertools
import logging
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from t2t_lite import plugins, registry
from t2t_lite.bin.cli import command, flags
from t2t_lite.bin.cli.command import Command
from t2t_lite.bin.cli.output import print_json
from t2t_lite.errors import UsageError
from t2t_lite.problem import Problem
from t2t_lite.problem.text_files import TextOptions
from t2t_lite.tf_setup import start_tensorflow
from t2t_lite.training.options import TrainingOptions
from t2t_lite.training.problem_choice import choose_problem
from t2t_lite.validators import integer

if TYPE_CHECKING:
    from t2t_lite.data.manifest import Manifest

_IMPORT_OPTIONS = ("vocabulary", "imported")
_GENERATION_FLAGS = ("overwrite", "raw_dir", "tfds_dir", "processes")
# The first flag conflicts with all others of its row.
_CONFLICTS = (
    ("inspect", "seed", *_GENERATION_FLAGS),
    ("import_shards", "inspect", *_GENERATION_FLAGS),
    ("import_shards", "runner", "problem_options"),
    *(
        ("import_shards", f.name)
        for f in dataclasses.fields(TextOptions)
        if f.name not in _IMPORT_OPTIONS
    ),
    # The options of Beam set the number of workers.
    ("runner", "processes"),
)
_MAX_PAIRS, _MAX_CHARACTERS = 10, 300  # printed by --inspect


def _add_flags(parser: flags.Parser) -> None:
    names = ("data_dir", "raw_dir", "tfds_dir", "problem_options", "usr_dir")
    flags.add_settings(parser, TrainingOptions, names)
    help_text = "seed of all random numbers (default: existing data's, or 1)"
    flags.add(parser, {"--seed=N": help_text}, integer(0, 2**63 - 1))
    table = {
        "--problem=NAME": "registered problem; NAME_rev has the data of NAME",
        "--processes=N": "number of worker processes (default: one per CPU "
        "core)",
        "--overwrite": "generate the data from the start, even if valid data "
        "exists",
        "--inspect": "check existing data, and print its counts and ten pairs "
        "of train with their numbers of tokens",
        "--import_shards=DIR": "check the shards NAME-{train,dev,test}-* of "
        "tensor2tensor in DIR, and use them in place as the data of "
        "--problem=NAME; requires --vocabulary=FILE or SOURCE,TARGET",
    }
    flags.add(parser, table)
    flags.add_json(parser)
    flags.add_text_flags(parser)
    group = parser.add_argument_group(
        "Distributed generation with Apache Beam",
        "Requires t2t-lite[beam] on all machines, and the corpus, --data_dir "
        "and --usr_dir under the same paths on all machines.",
    )
    help_text = (
        "DirectRunner, DataflowRunner, FlinkRunner, SparkRunner or another "
        "runner of Beam (default: this machine, without Beam)"
    )
    flags.add(group, {"--runner=RUNNER": help_text})
    group.add_argument(
        "beam_options",
        metavar="BEAM_OPTION",
        nargs="*",
        help="options of Beam after --, such as -- "
        "--flink_master=localhost:8081 --parallelism=8",
    )


def generate_data(args: argparse.Namespace) -> None:
    """Generate, inspect or import the data of `--problem`; print a report."""
    flags.require(args, "problem")
    flags.check_together(args, _CONFLICTS, {})
    if args.beam_options and not args.runner:
        raise UsageError(
            f"Unexpected argument {args.beam_options[0]!r}: join files with "
            "commas. Options of Beam require --runner."
        )
    plugins.load_plugins(args.usr_dir)
    if args.import_shards:
        _print_counts(args, _import_shards(args))
        return
    problem, data_dir = choose_problem(
        args.problem, flags.given_problem_options(args), args.data_dir
    )
    start_tensorflow(args.verbose)
    if args.inspect:
        _inspect(args, problem, data_dir)
        return
    from t2t_lite.datagen.generate import DataGenerator

    make_generator: Callable[..., DataGenerator] = DataGenerator
    if args.runner:
        # The log messages of Beam are for developers.
        level = logging.INFO if args.verbose else logging.CRITICAL
        logging.basicConfig(level=level)
        logging.getLogger().setLevel(level)
        from t2t_lite.datagen.apache_beam import BeamGeneration

        make_generator = functools.partial(
            BeamGeneration, runner=args.runner, beam_options=args.beam_options
        )
    manifest = make_generator(
        problem,
        data_dir,
        raw_dir=args.raw_dir,
        tfds_dir=args.tfds_dir,
        seed=args.seed,
        processes=args.processes,
    ).run(args.overwrite)
    _print_counts(args, manifest)


def _import_shards(args: argparse.Namespace) -> "Manifest":
    flags.require(args, "vocabulary")
    folder = flags.folder(args.import_shards)
    if args.data_dir not in (None, folder):
        raise UsageError(
            "--import_shards is the data folder: remove --data_dir "
            f"(got {args.data_dir})."
        )
    if not folder.is_dir():
        raise UsageError(f"--import_shards must be a folder; got {folder}.")
    vocabulary = [flags.folder(name) for name in args.vocabulary.split(",")]
    name = args.problem.removesuffix(registry.REVERSED_SUFFIX)
    if name in registry.problem_names():
        problem = registry.problem(name)
    else:
        files = ",".join(path.name for path in vocabulary)
        problem = registry.problem("text", {"name": name, "imported": files})
        command.note(f"Importing {name} as --problem=text --name={name}.")
    start_tensorflow(args.verbose)
    from t2t_lite.interop.tensor2tensor import shards

    return shards.import_shards(folder, problem, vocabulary)


def _print_counts(args: argparse.Namespace, manifest: "Manifest") -> None:
    if args.json:
        names = ("examples", "dropped", "damaged")
        splits = {
            split: {name: getattr(record, name) for name in names}
            for split, record in manifest.splits.items()
        }
        corpora = {"corpora": manifest.corpora} if manifest.corpora else {}
        print_json({"problem": manifest.problem, "splits": splits, **corpora})
        return
    for split, record in manifest.splits.items():
        rows = f" in {record.records:,} packed rows" * record.is_packed
        print(f"{split}: {record.examples:,} pairs{rows}, {record.summary}")
    for corpus in manifest.corpus_summary:
        print(f"train from {corpus}")


def _inspect(args: argparse.Namespace, problem: Problem, folder: Path) -> None:
    from t2t_lite.data import manifest, pipeline

    stored = manifest.Manifest.load(folder, problem)
    manifest.check_data(folder, problem, stored)
    manifest.check_shards(folder, problem, stored)
    _print_counts(args, stored)
    if args.json:
        return
    encoders = problem.load_encoders(folder).values()
    pairs = pipeline.read_pairs(folder, problem, stored, "train")
    for pair in itertools.islice(pairs, _MAX_PAIRS):
        print()
        for encoder, ids in zip(encoders, pair, strict=True):
            (text,) = encoder.decode([ids.tolist()])
            printable = "".join(
                c if c.isprintable() else ascii(c)[1:-1]
                for c in text[:_MAX_CHARACTERS]
            )
            print(f"{len(ids):>4} tokens: {printable}")


main = Command("t2t-lite-datagen", __doc__, _add_flags, generate_data)
