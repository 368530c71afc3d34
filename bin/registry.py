"""Lists problems and hparams sets, or shows one of them in full."""

import argparse
import inspect
import json
from collections.abc import Mapping
from typing import Any

from t2t_lite import plugins, recipe, registry
from t2t_lite.bin.cli import command, flags
from t2t_lite.errors import T2TLiteError, UsageError
from t2t_lite.hparam import HParams
from t2t_lite.problem import Problem

DEFAULT_LENGTH = 25  # tokens of an ordinary sentence of news
_RUNS = "~/t2t-lite"
# How the names of the parts begin that `--freeze` keeps from training.
_GROUPS = {
    "encoder": ("encoder ",),
    "decoder": ("decoder ",),
    "embeddings": ("embedding ", "source ", "target ", "softmax"),
}
LIST_EXAMPLE = "t2t-lite-registry transformer_base --vocab_size=32000"


def make_parser() -> flags.Parser:
    """The flags of `t2t-lite-registry`."""
    parser = flags.Parser("t2t-lite-registry", __doc__)
    parser.epilog = f"example: {LIST_EXAMPLE}"
    parser.add_argument(
        "name", metavar="NAME", nargs="?", help="a problem or an hparams set"
    )
    told = (
        "tokens of the vocabulary of each side: also print the parameters, "
        "FLOPs and memory of a set"
    )
    flags.add(parser, {"--vocab_size=V": told}, flags.at_least(2))
    told = (
        "with --vocab_size: tokens per sentence, for the FLOPs of attention "
        f"(default: {DEFAULT_LENGTH})"
    )
    flags.add(parser, {"--length=N": told}, flags.at_least(1))
    told = (
        f"with --vocab_size: count what is left to train; {', '.join(_GROUPS)}"
    )
    flags.add(parser, {"--freeze=PART,...": told})
    told = (
        "parameter counts of the models in the paper's table 3: ours beside "
        "the paper's"
    )
    flags.add(parser, {"--table3": told})
    parser.add_argument(
        "--runs",
        metavar="DIR",
        nargs="?",
        const=_RUNS,
        help="the runs in a folder and the folders in it, with step, last "
        f"score and date (default: {_RUNS})",
    )
    flags.add_override(parser)
    flags.add_usr_dir(parser)
    flags.add_json(parser)
    return parser


def show(args: argparse.Namespace) -> None:
    """Prints the registries, or one entry."""
    for name in ("length", "freeze"):
        if getattr(args, name) and not args.vocab_size:
            raise UsageError(f"--{name} goes with --vocab_size.")
    if args.runs:
        _list_runs(args.runs, args.json)
        return
    plugins.load_plugins(args.usr_dir)
    sets, problems = registry.hparams_names(), registry.problem_names()
    if args.table3:
        _show_table3(args.json)
    elif not args.name:
        _list(args.json)
    elif args.name in sets:
        _show_set(args)
    elif args.name.removesuffix("_rev") not in problems:
        kind = "problem or hparams set"
        raise registry.unknown_name(kind, args.name, sets + problems)
    elif args.vocab_size or args.hparams_override:
        raise UsageError(
            "--vocab_size and --hparams_override go with an hparams set; "
            f"{args.name!r} is a problem."
        )
    else:
        _show_problem(registry.problem(args.name), args.json)


def _list(as_json: bool) -> None:
    problems = {n: registry.describe(n) for n in registry.problem_names()}
    sets = {n: registry.describe(n) for n in registry.hparams_names()}
    if as_json:
        print(json.dumps({"problems": problems, "hparams": sets}))
        return
    width = max(map(len, [*problems, *sets]), default=0)
    print("Problems (NAME_rev is NAME in the other direction):")
    for name, doc in problems.items():
        print(f"  {name:{width}}  {doc}")
    print("Hparams sets:")
    for name, doc in sets.items():
        print(f"  {name:{width}}  {doc}")


def _list_runs(folder: str, as_json: bool) -> None:
    from t2t_lite.run_list import RunSummary, list_runs

    place = recipe.absolute(folder)
    if not place.is_dir():
        raise T2TLiteError(
            f"--runs: there is no folder {place}; name another with --runs=DIR."
        )
    runs = [run._asdict() for run in list_runs(place)]
    if as_json:
        print(json.dumps({"runs": runs}, ensure_ascii=False))
    elif runs:
        rows = [RunSummary._fields, *(map(str, run.values()) for run in runs)]
        columns = [list(column) for column in zip(*rows, strict=True)]
        widths = [max(map(len, column)) for column in columns]
        for row in zip(*columns, strict=True):
            cells = map(str.ljust, row, widths)
            print("  ".join(cells).rstrip())
    else:
        print(f"There is no run in {place}.")


def _show_set(args: argparse.Namespace) -> None:
    hparams = registry.hparams(args.name).override(args.hparams_override)
    numbers = _numbers(hparams, args) if args.vocab_size else {}
    if args.json:
        report = {"name": args.name, **hparams.to_dict(), **numbers}
        print(json.dumps(report))
        return
    print(f"# {args.name}: {registry.describe(args.name)}")
    print(hparams)
    if numbers:
        _print_numbers(hparams, numbers, args)


def _numbers(hparams: HParams, args: argparse.Namespace) -> dict[str, Any]:
    """What a set costs with a vocabulary, as the keys of a report."""
    from t2t_lite.model import costs

    size, length = args.vocab_size, args.length or DEFAULT_LENGTH
    parts = costs.count_parameters(hparams, size, size)
    source, target = costs.count_forward_flops(hparams, size, length, length)
    step = costs.count_step_flops(hparams, size, length)
    return {
        "vocab_size": size,
        "length": length,
        "parameters": sum(parts.values()),
        "parameters_by_part": parts,
        "trained_parameters": _trained(parts, args.freeze or ""),
        "flops": {
            "forward_per_source_token": source,
            "forward_per_target_token": target,
            "training_per_source_token": costs.TRAINING_PER_FORWARD * source,
            "training_per_target_token": costs.TRAINING_PER_FORWARD * target,
            "training_per_update": step,
            "training": step * hparams.train_steps,
        },
        "memory_bytes": costs.estimate_memory(hparams, size, size),
    }


def _trained(parts: Mapping[str, int], freeze: str) -> int:
    """The parameters of the parts that are not frozen."""
    groups = freeze.split(",") if freeze else []
    for group in groups:
        if group not in _GROUPS:
            raise UsageError(
                f"--freeze={group!r}: {', '.join(_GROUPS)} are counted here; "
                "t2t-lite-trainer --dry_run counts any pattern."
            )
    frozen = tuple(word for group in groups for word in _GROUPS[group])
    return sum(n for part, n in parts.items() if not part.startswith(frozen))


def _print_numbers(
    hparams: HParams, numbers: dict[str, Any], args: argparse.Namespace
) -> None:
    print(f"\nParameters, with {args.vocab_size:,} tokens a side")
    for part, count in numbers["parameters_by_part"].items():
        print(f"  {part:24} {count:>15,}")
    print(f"  {'in all':24} {numbers['parameters']:>15,}")
    if args.freeze:
        print(f"  {'trained':24} {numbers['trained_parameters']:>15,}")
    flops, length = numbers["flops"], numbers["length"]
    print(f"\nFLOPs of the matrix products, in sentences of {length} tokens")
    print(f"  {'':24} {'source token':>15} {'target token':>15}")
    for name in ("forward", "training"):
        source, target = (
            flops[f"{name}_per_{side}_token"] for side in ("source", "target")
        )
        print(f"  {name:24} {source:>15,.0f} {target:>15,.0f}")
    update = f"an update of {hparams.batch_tokens:,} + as many"
    print(f"  {update:40} {flops['training_per_update']:>15.3g}")
    updates = f"{hparams.train_steps:,} updates"
    print(f"  {updates:40} {flops['training']:>15.3g}")
    print("\nMemory of training on one device, MiB; activations are estimated")
    memory = numbers["memory_bytes"]
    for part, size in {**memory, "in all": sum(memory.values())}.items():
        print(f"  {part:24} {size / 2**20:>15,.0f}")


def _show_table3(as_json: bool) -> None:
    """Our sizes of the models of table 3, and the paper's."""
    from t2t_lite.hparams import table3
    from t2t_lite.model import costs

    vocab_size = table3.PAPER_VOCAB_SIZE
    rows: list[dict[str, Any]] = []
    for name, millions in table3.PAPER_MILLIONS.items():
        hparams = registry.hparams(name)
        parts = costs.count_parameters(hparams, vocab_size, vocab_size)
        count = sum(parts.values())
        rows.append(
            {"name": name, "parameters": count, "paper_millions": millions}
        )
    if as_json:
        print(json.dumps({"vocab_size": vocab_size, "sets": rows}))
        return
    print(
        f"Millions of parameters with {vocab_size:,} tokens on both sides; the "
        "paper has\nabout as many, and does not say what it counts."
    )
    print(f"{'':30} {'ours':>7} {'paper':>6}  what the set is")
    for row in rows:
        print(
            f"{row['name']:30} {row['parameters'] / 1e6:>7.1f} "
            f"{row['paper_millions']:>6}  {registry.describe(row['name'])}"
        )


def _show_problem(problem: Problem, as_json: bool) -> None:
    report: dict[str, Any] = {
        "name": problem.name,
        "description": inspect.getdoc(type(problem)) or "",
        "metric": problem.metric,
        "splits": list(problem.splits),
        "vocab_size": problem.vocab_size,
        "vocabulary": problem.vocabulary_files(),
        "files": [file.name for file in problem.files],
        "fingerprint": problem.fingerprint(),
    }
    options = [
        {
            "option": option.off_flag or option.name,
            "meaning": option.meaning,
            "default": option.default_text or "none",
            "example": "=".join(
                filter(None, (option.off_flag or option.name, option.example))
            ),
        }
        for option in problem.known_options
        if not option.flagless
    ]
    if as_json:
        if options:
            report["options"] = options
        print(json.dumps(report, ensure_ascii=False))
        return
    for key, value in report.items():
        print(f"{key}: {value}")
    if options:
        import rich
        from rich.table import Column, Table

        columns = [Column(name, overflow="fold") for name in options[0]]
        table = Table(*columns, box=None)
        for option in options:
            table.add_row(*option.values())
        rich.print("", table)


def main(argv: list[str] | None = None) -> int:
    """Runs `t2t-lite-registry`; returns its exit code."""
    return command.run(make_parser(), show, argv)


if __name__ == "__main__":
    raise SystemExit(main())
