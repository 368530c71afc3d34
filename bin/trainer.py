"""Train a problem with an hparams set, from corpus to checkpoints.

The same command resumes a stopped run.
"""

import argparse
import shlex
import signal
from typing import TYPE_CHECKING

from t2t_lite import api, plugins, registry
from t2t_lite.bin.cli import command, flags
from t2t_lite.bin.cli.command import Command
from t2t_lite.training.options import RUNS_DIR, TrainingOptions

if TYPE_CHECKING:
    from t2t_lite.training.run import Run


def _add_flags(parser: flags.Parser) -> None:
    parser.epilog = (
        "example: t2t-lite-trainer --problem=spellout_ende "
        "--hparams=transformer_quickstart"
    )
    group = parser.add_argument_group("Model")
    table = {
        "--problem=NAME": "registered problem, see t2t-lite-registry",
        "--hparams=SET": "registered hparams set, see t2t-lite-registry",
        "--output_dir=DIR": "folder of the run (default: "
        f"{RUNS_DIR}/PROBLEM/SET)",
        "--print_hparams": "print all hparams with their values and exit",
    }
    flags.add(group, table)
    flags.add_override(group)
    skip = ("hparams_override", "verbose")  # added elsewhere
    flags.add_settings(parser, TrainingOptions, skip=skip)
    flags.add_text_flags(parser)


def train(args: argparse.Namespace) -> None:
    """Train a run, or print the report of a dry run or the hparams."""
    # SIGUSR1 saves during training; before, it must not end the process.
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    if args.print_hparams:
        flags.require(args, "hparams")
        plugins.load_plugins(args.usr_dir)
        hparams = registry.hparams(args.hparams)
        print(hparams.override(args.hparams_override))
        return
    options = flags.given_settings(args, TrainingOptions)
    options["problem_options"] = flags.given_problem_options(args)
    trained = api.train(args.problem, args.hparams, args.output_dir, **options)
    from t2t_lite.training.run import Run

    if isinstance(trained, Run):
        _print_progress(trained)
        _print_next(trained)
    else:
        print(flags.options_to_flags(trained))


def _print_progress(run: "Run") -> None:
    progress = run.progress
    print(f"output_dir: {run.output_dir}")
    print(f"step: {progress.step}")
    if progress.best:
        print(f"best: {progress.best_text}")
    if progress.average:
        print(f"average: {progress.average}")
    cost = run.config["training_cost"]
    print(
        f"training_cost: {cost['flops_counted']:.3g} FLOPs counted from the "
        f"model; {cost['seconds']:.0f} s on {cost['devices']} device(s)"
    )
    if cost["flops_as_table_2"]:
        rate = cost["sustained_flops_per_second"] / 1e12
        print(
            f"training_cost_as_table_2: {cost['flops_as_table_2']:.3g} FLOPs "
            f"(time x devices x {rate:g} TFLOP/s)"
        )


def _print_next(run: "Run") -> None:
    folder = f"--output_dir={shlex.quote(str(run.output_dir))}"
    if run.config["usr_dir"]:
        folder += f" --usr_dir={shlex.quote(run.config['usr_dir'])}"
    command.note(
        "Next:\n"
        f"  t2t-lite-decoder {folder} --interactive\n"
        f"  t2t-lite-evaluator {folder} --split=test\n"
        f"  t2t-lite-exporter {folder}"
    )


main = Command("t2t-lite-trainer", __doc__, _add_flags, train)
