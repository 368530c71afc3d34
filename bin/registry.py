"""Lists the problems and the hparams sets, or shows one of them in full."""

import argparse
import inspect
import json

from t2t_lite.bin import command, flags
from t2t_lite.errors import UsageError, nearest

LIST_EXAMPLE = "t2t-lite-registry transformer_base --vocab_size=32000"


def make_parser() -> flags.Parser:
    """The flags of `t2t-lite-registry`."""
    parser = flags.Parser("t2t-lite-registry", __doc__)
    parser.epilog = f"example: {LIST_EXAMPLE}"
    parser.add_argument(
        "name", metavar="NAME", nargs="?", help="a problem or an hparams set"
    )
    parser.add_argument(
        "--vocab_size",
        type=flags.at_least(2),
        metavar="V",
        help="tokens of the vocabulary: counts the parameters of a set, V a "
        "side",
    )
    flags.add_override(parser)
    flags.add_usr_dir(parser)
    flags.add_json(parser)
    return parser


def show(args: argparse.Namespace) -> None:
    """Prints the registries, or one entry."""
    from t2t_lite import plugins, registry

    plugins.load_plugins(args.usr_dir)
    if not args.name:
        _list(registry, args.json)
        return
    sets = registry.hparams_names()
    problems = registry.problem_names()
    if args.name in sets:
        _show_set(registry, args)
        return
    if args.name.removesuffix("_rev") not in problems:
        raise UsageError(
            f"Unknown problem or hparams set {args.name!r}."
            f"{nearest(args.name, sets + problems)} t2t-lite-registry lists "
            "them all; your own need --usr_dir."
        )
    if args.vocab_size or args.hparams_override:
        raise UsageError(
            "--vocab_size and --hparams_override go with an hparams set; "
            f"{args.name!r} is a problem."
        )
    _show_problem(registry.problem(args.name), args.json)


def _list(registry, as_json):
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


def _show_set(registry, args):
    hparams = registry.hparams(args.name).override(args.hparams_override)
    report = {"name": args.name} | hparams.to_dict()
    if args.vocab_size:
        command.start_tensorflow(args.verbose)
        report["parameters"] = count_parameters(hparams, args.vocab_size)
    if args.json:
        print(json.dumps(report))
        return
    print(f"# {args.name}: {registry.describe(args.name)}")
    print(hparams)
    if args.vocab_size:
        print(f"parameters={report['parameters']}")


def count_parameters(hparams, vocab_size: int) -> int:
    """The parameters of the real model with `vocab_size` tokens a side."""
    from t2t_lite.transformer import Transformer

    model = Transformer.from_hparams(hparams, vocab_size, vocab_size)
    model.build_weights()
    return int(model.count_params())


def _show_problem(problem, as_json):
    report = {
        "name": problem.name,
        "description": inspect.getdoc(type(problem)) or "",
        "metric": problem.metric,
        "splits": list(problem.splits),
        "vocab_size": problem.vocab_size,
        "vocabulary": problem.vocabulary_files(),
        "files": [file.name for file in problem.files],
        "fingerprint": problem.fingerprint(),
    }
    if as_json:
        print(json.dumps(report, ensure_ascii=False))
        return
    for key, value in report.items():
        print(f"{key}: {value}")


def main(argv: list[str] | None = None) -> int:
    """Runs `t2t-lite-registry`; returns its exit code."""
    return command.run(make_parser(), show, argv)


if __name__ == "__main__":
    raise SystemExit(main())
