"""Turn a problem's corpus into a vocabulary and TFRecord shards."""

import argparse
import dataclasses
import functools
import itertools
import logging
import pathlib
from collections.abc import Callable
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

_ADOPTS = ("vocabulary", "imported")
_GENERATES = ("overwrite", "raw_dir", "tfds_dir", "processes")
_CONFLICTS = (
    ("inspect", "seed", *_GENERATES),
    ("import_shards", "inspect", *_GENERATES, "runner", "problem_options"),
    *(
        ("import_shards", f.name)
        for f in dataclasses.fields(TextOptions)
        if f.name not in _ADOPTS
    ),
    # Beam's own options say how many workers it has.
    ("runner", "processes"),
)
_SHOWN_PAIRS, _SHOWN_CHARACTERS = 10, 300


def _add_flags(parser: flags.Parser) -> None:
    about = "a registered problem; NAME_rev has the data of NAME"
    flags.add(parser, {"--problem=NAME": about})
    names = ("data_dir", "raw_dir", "tfds_dir", "problem_options", "usr_dir")
    flags.add_settings(parser, TrainingOptions, names)
    about = "of everything random (default: that of the data there, else 1)"
    flags.add(parser, {"--seed=N": about}, integer(0, 2**63 - 1))
    about = "worker processes (default: one per CPU core)"
    flags.add(parser, {"--processes=N": about}, integer(1))
    modes = {
        "--overwrite": "generate the data again, from the start, even if it is "
        "there and fits",
        "--inspect": "generate nothing; check the data that is there, and show "
        "its counts and ten pairs of train, with their tokens",
        "--import_shards=DIR": "generate nothing; check the shards "
        "NAME-{train,dev,test}-* that tensor2tensor left in DIR, and make them "
        "data of --problem=NAME, where they lie; needs --vocabulary=FILE, or "
        "SOURCE,TARGET",
    }
    flags.add(parser, modes)
    flags.add_json(parser)
    flags.add_text_flags(parser)
    group = parser.add_argument_group(
        "more than one machine",
        "Apache Beam does the work: pip install "
        "'t2t-lite[beam]'. All machines must see the corpus, --data_dir and "
        "--usr_dir under the same names, and have t2t-lite[beam].",
    )
    about = (
        "DirectRunner, DataflowRunner, FlinkRunner, SparkRunner or any other "
        "of Beam (default: this machine alone, without Beam)"
    )
    flags.add(group, {"--runner=RUNNER": about})
    group.add_argument(
        "beam_options",
        metavar="BEAM_OPTION",
        nargs="*",
        help="options for Beam itself, after --, as in -- "
        "--flink_master=localhost:8081 --parallelism=8",
    )


def generate_data(args: argparse.Namespace) -> None:
    """Generate, inspect or adopt the data of `--problem`; print a report."""
    flags.require(args, "problem")
    flags.check_together(args, _CONFLICTS, {"beam_options": "runner"})
    plugins.load_plugins(args.usr_dir)
    if args.import_shards:
        _print_counts(args, _adopt(args))
        return
    problem, data_dir = choose_problem(
        args.problem, flags.given_problem_options(args), args.data_dir
    )
    start_tensorflow(args.verbose)
    if args.inspect:
        _inspect(args, problem, data_dir)
        return
    from t2t_lite.datagen.generate import DataGenerator

    generation: Callable[..., DataGenerator] = DataGenerator
    if args.runner:
        # Beam's messages are for developers; an error is one line of ours.
        level = logging.INFO if args.verbose else logging.CRITICAL
        logging.basicConfig(level=level)
        logging.getLogger().setLevel(level)
        from t2t_lite.datagen.apache_beam import BeamGeneration

        generation = functools.partial(
            BeamGeneration, runner=args.runner, beam_options=args.beam_options
        )
    manifest = generation(
        problem,
        data_dir,
        raw_dir=args.raw_dir,
        tfds_dir=args.tfds_dir,
        seed=args.seed,
        processes=args.processes,
    ).run(args.overwrite)
    _print_counts(args, manifest)


def _adopt(args: argparse.Namespace) -> "Manifest":
    """Adopt the shards in `--import_shards` and return their manifest."""
    flags.require(args, "vocabulary")
    folder = flags.folder(args.import_shards)
    if args.data_dir not in (None, folder):
        raise UsageError(
            "--import_shards conflicts with --data_dir: it is the folder of "
            f"the data (got {args.data_dir})."
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
        command.note(f"{name} becomes own text: --problem=text --name={name}.")
    start_tensorflow(args.verbose)
    from t2t_lite.interop.tensor2tensor import shards

    return shards.import_shards(folder, problem, vocabulary)


def _print_counts(args: argparse.Namespace, manifest: "Manifest") -> None:
    """Print how many pairs the data has, and what was dropped."""
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
    for told in manifest.corpus_summary:
        print(f"train from {told}")


def _inspect(
    args: argparse.Namespace, problem: Problem, data_dir: pathlib.Path
) -> None:
    """Check the data; print its counts and the first pairs of train."""
    from t2t_lite.data import manifest, pipeline

    found = manifest.Manifest.load(data_dir, problem)
    manifest.check_data(data_dir, problem, found)
    manifest.check_shards(data_dir, problem, found)
    _print_counts(args, found)
    if args.json:
        return
    encoders = problem.load_encoders(data_dir).values()
    pairs = pipeline.read_pairs(data_dir, problem, found, "train")
    for pair in itertools.islice(pairs, _SHOWN_PAIRS):
        print()
        for encoder, ids in zip(encoders, pair, strict=True):
            (text,) = encoder.decode([ids.tolist()])
            # On one line, without control characters.
            shown = "".join(
                c if c.isprintable() else ascii(c)[1:-1]
                for c in text[:_SHOWN_CHARACTERS]
            )
            print(f"{len(ids):>4} tokens: {shown}")


main = Command("t2t-lite-datagen", __doc__, _add_flags, generate_data)
