"""Translate a split of a run's problem and print the metric."""

import argparse
import inspect
import signal
from collections.abc import Iterator
from typing import Any

from t2t_lite.bin.cli import command, flags, runs
from t2t_lite.bin.cli.command import Command
from t2t_lite.bin.cli.io_paths import read_aligned
from t2t_lite.bin.cli.output import print_report
from t2t_lite.decoding.batching import Batching
from t2t_lite.errors import UsageError
from t2t_lite.progress import Counter


def _add_flags(parser: flags.Parser) -> None:
    flags.add_run_flags(parser)
    help_text = "dev, test or another split of the problem"
    flags.add(parser, {"--split=NAME": help_text}, default="dev")
    help_text = "folder of the TFRecord shards (default: the run's data folder)"
    flags.add(parser, {"--data_dir=DIR": help_text})
    flags.add_search_flags(parser)
    runs.add_engine_flags(parser)
    flags.add_metric_flags(parser, "one per line, instead of the split's")
    flags.add_json(parser)


def evaluate(args: argparse.Namespace) -> None:
    """Evaluate the split and print the report."""
    flags.check_together(args, (), runs.REQUIRED)
    run = runs.open_run(args, to_decode=False)
    if args.data_dir:
        run.data.folder = flags.folder(args.data_dir)
    run.problem.check_metric(args.tokenize)
    names = [n for n in ("tokenize", "metrics", "reference") if vars(args)[n]]
    accepted = inspect.signature(run.problem.evaluate).parameters
    if names and "metrics" not in accepted:
        raise UsageError(f"{run.problem.name} does not support --{names[0]}.")
    scoring = {name: vars(args)[name] for name in names if name in accepted}
    sources, references = run.data.texts(args.split)
    count, split = len(sources), f"the split {args.split}"
    given: Any = [read_aligned(path, count, split) for path in args.reference]
    if run.encoders["targets"].unknown_id is not None and not given:
        command.note(
            "The references are decoded from tokens, which do not represent "
            "every text: give the original text as --reference."
        )
    from t2t_lite.training import checkpoints, config

    weights = checkpoints.resolve(run.checkpoints_dir, args.checkpoint)
    args.checkpoint = str(weights.path)  # a running trainer may add newer ones
    replicas = runs.make_replicas(run, args)
    command.note(f"Translating {count} sentences of {args.split}.")
    from t2t_lite.decoding.stream import translate_lines
    from t2t_lite.training.model_card import write_card

    batching = Batching(args.batch_size, args.batch_tokens, flush_early=False)

    def translate() -> Iterator[str]:
        with (
            command.line_notes(args.verbose) as note,
            Counter("translating", "sentences", total=count) as counter,
        ):
            options: Any = {"batching": batching, "note": note}
            for result in translate_lines(replicas, sources, **options):
                yield result.hypotheses[0].text
                counter.advance(1)

    outputs = command.interruptible(lambda: [*translate()], signal.SIGINT)
    report = run.problem.evaluate(
        sources, given or references, outputs, **scoring
    )
    translator = replicas[0].translator
    report |= {
        "problem": run.problem.name,
        "split": args.split,
        "beam_size": translator.settings.beam_size,
        "alpha": translator.settings.alpha,
        **translator.settings.changed(),
    }
    if args.reference:
        report["references"] = list(args.reference)
    if args.backend != "tensorflow":
        report["backend"] = args.backend
        report["quantization"] = args.quantization or runs.DEFAULT_QUANTIZATION
    if translator.constraint is not None:
        report["constrained"] = translator.settings.constrained
    if args.backend == "tensorflow" and not args.ensemble:
        record = {"checkpoint": str(weights), **report}
        config.add_evaluation(
            run.output_dir, weights.step, weights.checksum, record
        )
        write_card(run)
    print_report(report, args.json)


main = Command("t2t-lite-evaluator", __doc__, _add_flags, evaluate)
