"""List problems and hparams sets, or show one of them in detail."""

import argparse
import dataclasses
import inspect
from typing import Any

from t2t_lite import plugins, registry
from t2t_lite.bin.cli import flags
from t2t_lite.bin.cli.command import Command
from t2t_lite.bin.cli.output import print_json, print_rows, print_table
from t2t_lite.errors import T2TLiteError, UsageError
from t2t_lite.hparam import HParams
from t2t_lite.training.options import TrainingOptions

DEFAULT_LENGTH = 25  # tokens of a typical news sentence
_RUNS = "~/t2t-lite"


def _add_flags(parser: flags.Parser) -> None:
    parser.epilog = (
        "example: t2t-lite-registry transformer_base --vocab_size=32000"
    )
    parser.add_argument(
        "name", metavar="NAME", nargs="?", help="problem or hparams set"
    )
    table = {
        "--vocab_size=V": "vocabulary size of each side, to print the "
        "parameters and FLOPs of a set",
        "--length=N": "with --vocab_size: tokens per sentence, for the FLOPs "
        f"of attention (default: {DEFAULT_LENGTH})",
        "--table3": "compare the parameter counts with the paper's table 3 and "
        "exit",
    }
    flags.add(parser, table)
    parser.add_argument(
        "--runs",
        metavar="DIR",
        nargs="?",
        const=_RUNS,
        help="list the runs in a folder and its subfolders, with step, best "
        f"score and date (default: {_RUNS})",
    )
    flags.add_override(parser)
    flags.add_settings(parser, TrainingOptions, ["usr_dir"])
    flags.add_json(parser)


def show(args: argparse.Namespace) -> None:
    """Print the registries, or one entry."""
    flags.check_together(args, (), {"length": "vocab_size"})
    if args.runs:
        _list_runs(args)
        return
    plugins.load_plugins(args.usr_dir)
    sets, problems = registry.hparams_names(), registry.problem_names()
    if args.table3:
        _show_table3(args)
    elif not args.name:
        _list(args)
    elif args.name in sets:
        _show_set(args)
    elif args.name.removesuffix(registry.REVERSED_SUFFIX) not in problems:
        raise registry.unknown_name_error(
            "problem or hparams set", args.name, sets + problems
        )
    elif args.vocab_size or args.hparams_override:
        raise UsageError(
            "--vocab_size and --hparams_override require an hparams set; "
            f"{args.name!r} is a problem."
        )
    else:
        _show_problem(args)


def _list(args: argparse.Namespace) -> None:
    problems = {n: registry.describe(n) for n in registry.problem_names()}
    sets = {n: registry.describe(n) for n in registry.hparams_names()}
    if args.json:
        print_json({"problems": problems, "hparams": sets})
        return
    print("Problems (NAME_rev is NAME in the other direction):")
    print_table((f"  {name}", text) for name, text in problems.items())
    print("Hparams sets:")
    print_table((f"  {name}", text) for name, text in sets.items())


def _list_runs(args: argparse.Namespace) -> None:
    from t2t_lite.training.comparison import list_runs

    folder = flags.folder(args.runs)
    if not folder.is_dir():
        raise T2TLiteError(f"--runs: there is no folder {folder}.")
    runs = list_runs(folder)
    if args.json:
        print_json({"runs": runs})
    elif runs:
        print_rows(runs)
    else:
        print(f"There is no run in {folder}.")


def _show_set(args: argparse.Namespace) -> None:
    hparams = registry.hparams(args.name).override(args.hparams_override)
    size, length = args.vocab_size, args.length or DEFAULT_LENGTH
    costs = _costs(hparams, size, length) if size else {}
    if args.json:
        print_json({"name": args.name, **hparams.to_dict(), **costs})
        return
    print(f"# {args.name}: {registry.describe(args.name)}")
    print(hparams)
    if not costs:
        return
    counts = costs["parameters_by_part"] | {"total": costs["parameters"]}
    print(f"\nParameters, with {size:,} entries per vocabulary")
    print_table([(f"  {k}", f"{n:,}") for k, n in counts.items()], numbers=True)
    print(f"\nFLOPs of the matrix products, in sentences of {length} tokens")
    print_table([(f"  {k}", f"{n:.4g}") for k, n in costs["flops"].items()])


def _costs(hparams: HParams, size: int, length: int) -> dict[str, Any]:
    from t2t_lite.model import flops

    counts = flops.count_parameters(hparams, size, size)
    source, target = flops.count_forward_flops(hparams, size, length, length)
    step = flops.count_step_flops(hparams, size, length)
    return {
        "vocab_size": size,
        "length": length,
        "parameters": sum(counts.values()),
        "parameters_by_part": counts,
        "flops": {
            "forward_per_source_token": source,
            "forward_per_target_token": target,
            "training_per_source_token": flops.TRAINING_PER_FORWARD * source,
            "training_per_target_token": flops.TRAINING_PER_FORWARD * target,
            "training_per_update": step,
            "training": step * hparams.train_steps,
        },
    }


def _show_table3(args: argparse.Namespace) -> None:
    from t2t_lite.hparams import table3
    from t2t_lite.model import flops

    size = table3.PAPER_VOCAB_SIZE
    rows = []
    for name, paper in table3.PAPER_MILLIONS.items():
        counts = flops.count_parameters(registry.hparams(name), size, size)
        row = {"paper_millions": paper, "meaning": registry.describe(name)}
        rows.append({"name": name, "parameters": sum(counts.values()), **row})
    if args.json:
        print_json({"vocab_size": size, "sets": rows})
        return
    print(f"With {size:,} entries per vocabulary:")
    print_rows(rows)


def _show_problem(args: argparse.Namespace) -> None:
    problem = registry.problem(args.name)
    report: dict[str, Any] = {
        "name": problem.name,
        "description": inspect.getdoc(type(problem)) or "",
        "metric": problem.metric,
        "splits": list(problem.splits),
        "vocab_size": problem.expected_vocab_sizes()[0],
        "vocabulary": problem.vocabulary_files(),
        "files": [file.name for file in problem.files],
        "fingerprint": problem.fingerprint(),
    }
    options = []
    for field in dataclasses.fields(problem.options_type):
        default = str(field.default)
        if isinstance(field.default, bool | None):
            default = default.lower()  # as it is typed
        row = {"option": field.name, "meaning": field.metadata["help"]}
        options.append(row | {"default": default})
    if args.json:
        print_json(report | ({"options": options} if options else {}))
        return
    for key, value in report.items():
        print(f"{key}: {value}")
    for row in options:
        print("\n{option} (default: {default})\n  {meaning}".format(**row))


main = Command("t2t-lite-registry", __doc__, _add_flags, show)
