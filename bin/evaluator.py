"""Translate a split of a run's problem and print its metric."""

import argparse
import signal

from t2t_lite.bin.cli import backend, command, flags, runs
from t2t_lite.bin.cli.output import print_report


def make_parser() -> flags.Parser:
    """Return the parser of `t2t-lite-evaluator`."""
    parser = flags.Parser("t2t-lite-evaluator", __doc__)
    flags.add_run_flags(parser)
    about = "dev or test, or another split of the problem"
    flags.add(parser, {"--split=NAME": about}, default="dev")
    about = "the TFRecord shards (default: where the run had them)"
    flags.add(parser, {"--data_dir=DIR": about})
    flags.add_search_flags(parser)
    backend.add_flags(parser)
    flags.add_json(parser)
    return parser


def evaluate(args: argparse.Namespace) -> None:
    """Print the report of the split."""
    backend.check(args)
    run = runs.open_run(args, to_decode=False)
    if args.data_dir:
        run.data.folder = flags.folder(args.data_dir)
    sources, references = run.data.texts(args.split)
    from t2t_lite.training import checkpoints, config

    weights = checkpoints.resolve(run.checkpoints_dir, args.checkpoint)
    args.checkpoint = str(weights.path)  # a trainer may be running
    replicas = backend.make_replicas(run, args)
    command.note(f"Translating {len(sources)} sentences of {args.split}.")
    from t2t_lite.decoding.stream import best_translations
    from t2t_lite.training.model_card import write_card

    with (
        command.LineNotes(args.verbose) as note,
        command.ended_at_once_by("t2t-lite-evaluator", signal.SIGINT),
    ):
        hypotheses = best_translations(
            replicas,
            sources,
            batch_size=args.batch_size,
            batch_tokens=args.batch_tokens,
            note=note,
        )
    report = run.problem.evaluate(sources, references, hypotheses)
    translator = replicas[0].translator
    report |= {
        "problem": run.problem.name,
        "split": args.split,
        "beam_size": translator.settings.beam_size,
        "alpha": translator.settings.alpha,
        **translator.settings.changed(),
    }
    if args.backend != "tensorflow":
        report["backend"] = args.backend
        report["quantization"] = backend.quantization(args, "backend")
    if translator.form is not None:
        report["constrained"] = translator.settings.constrained
    if args.backend == "tensorflow" and not args.ensemble:
        record = {"checkpoint": str(weights), **report}
        config.add_evaluation(
            run.output_dir, weights.step, weights.checksum, record
        )
        write_card(run)
    print_report(report, args.json)


def main(argv: list[str] | None = None) -> int:
    """Run `t2t-lite-evaluator`; return its exit code."""
    return command.run(make_parser(), evaluate, argv)


if __name__ == "__main__":
    raise SystemExit(main())
