"""Scores a file of translations against references with sacreBLEU."""

import argparse
import json
from typing import Any

from t2t_lite.bin.cli import command, flags
from t2t_lite.corpus.lines import read_lines
from t2t_lite.errors import T2TLiteError, UsageError


def make_parser() -> flags.Parser:
    """The flags of `t2t-lite-bleu`."""
    parser = flags.Parser("t2t-lite-bleu", __doc__)
    table = {
        "--hypothesis=FILE": "one translation a line",
        "--reference=FILE": "its reference on the same line, detokenized text",
        "--lowercase": "compare without case",
    }
    flags.add(parser, table)
    parser.add_argument(
        "--tokenize",
        default="13a",
        choices=["13a", "intl", "char", "none", "zh", "ja-mecab", "ko-mecab"],
        help="sacreBLEU's tokenizer of both sides",
    )
    table = {
        "--tokenized": "also print the tokenized BLEU that the paper reports, "
        "with compounds split",
        "--target_language=CODE": "language of both files, for --tokenized; "
        "for example de",
    }
    flags.add(parser, table)
    flags.add_json(parser)
    return parser


def score_files(args: argparse.Namespace) -> None:
    """Prints the score of `--hypothesis` against `--reference`."""
    flags.require(args, "hypothesis", "reference")
    if args.tokenized and not args.target_language:
        raise UsageError(
            "--tokenized needs the language of both files: add for example "
            "--target_language=de."
        )
    if args.target_language and not args.tokenized:
        raise UsageError(
            "--target_language goes with --tokenized: add that flag, or leave "
            "both out."
        )
    if args.tokenized and args.lowercase:
        raise UsageError(
            "--tokenized is cased, as the paper's score is: leave out "
            "--lowercase."
        )
    hypotheses = list(read_lines(args.hypothesis))
    references = list(read_lines(args.reference))
    if len(hypotheses) != len(references):
        raise T2TLiteError(
            "--hypothesis and --reference must have the same number of lines; "
            f"{args.hypothesis} has {len(hypotheses)}, "
            f"{args.reference} has {len(references)}."
        )
    if not references:
        raise T2TLiteError(f"{args.reference} has no lines to score.")
    from t2t_lite.evaluation.bleu import bleu
    from t2t_lite.evaluation.tokenized_bleu import tokenized_bleu

    scores = bleu(hypotheses, references, args.tokenize, args.lowercase)
    report = {"metric": "bleu", **scores}
    if args.tokenized:
        tokenized = tokenized_bleu(hypotheses, references, args.target_language)
        report["tokenized_bleu"] = tokenized["score"]
        report["tokenized_bleu_procedure"] = tokenized["procedure"]
    print_report(report, args.json)


def print_report(report: dict, as_json: bool) -> None:
    """Prints the report of a metric: to read, or as one line of JSON."""
    if as_json:
        print(json.dumps(report, ensure_ascii=False))
        return
    print(f"{report['metric']} {report['score']:.2f}")
    for key, value in report.items():
        if key not in ("metric", "score"):
            print(f"  {key}: {_shown(value)}")


def _shown(value: Any) -> Any:
    if isinstance(value, dict):
        parts = (f"{key} {_shown(part)}" for key, part in value.items())
        return ", ".join(parts) or "none"
    return f"{value:.2f}" if isinstance(value, float) else value


def main(argv: list[str] | None = None) -> int:
    """Runs `t2t-lite-bleu`; returns its exit code."""
    return command.run(make_parser(), score_files, argv)


if __name__ == "__main__":
    raise SystemExit(main())
