"""Score a file of translations against references with sacreBLEU."""

import argparse

from t2t_lite.bin.cli import flags, io_paths
from t2t_lite.bin.cli.command import Command
from t2t_lite.bin.cli.output import print_report
from t2t_lite.corpus.lines import read_lines
from t2t_lite.errors import T2TLiteError
from t2t_lite.evaluation.bleu import bleu, tokenizer_of
from t2t_lite.evaluation.tokenized_bleu import tokenized_bleu


def _add_flags(parser: flags.Parser) -> None:
    table = {
        "--hypothesis=FILE": "translations, one per line; - is stdin",
        "--baseline=FILE": "translations of another system; adds its scores "
        "and the p-value of sacreBLEU's paired bootstrap test",
        "--lowercase": "ignore case",
        "--target_language=CODE": "language of the files, such as de; selects "
        "the tokenizer",
        "--tokenized": "also print the tokenized BLEU with split compounds "
        "that the paper reports; requires --target_language",
    }
    flags.add(parser, table)
    flags.add_metric_flags(parser, "one per line")
    flags.add_json(parser)


def score_files(args: argparse.Namespace) -> None:
    """Print the scores of `--hypothesis` against `--reference`."""
    flags.require(args, "hypothesis", "reference")
    both = {"tokenized": "target_language"}
    flags.check_together(args, [("tokenized", "lowercase")], both)
    io_paths.check_stdin(args.hypothesis, *args.reference, args.baseline)
    hypotheses = list(read_lines(args.hypothesis))
    given = [*args.reference, *([args.baseline] if args.baseline else [])]
    references = [
        io_paths.read_aligned(path, len(hypotheses), args.hypothesis)
        for path in given
    ]
    if not hypotheses:
        raise T2TLiteError(f"{args.reference[0]} has no lines to score.")
    baseline = references.pop() if args.baseline else None
    scores = bleu(
        hypotheses,
        references,
        args.tokenize or tokenizer_of(args.target_language or ""),
        args.lowercase,
        metrics=("chrf", *args.metrics),
        baseline=baseline,
    )
    report = {"metric": "bleu", **scores}
    if args.tokenized:
        tokenized = tokenized_bleu(hypotheses, references, args.target_language)
        report["tokenized_bleu"] = tokenized["score"]
        report["tokenized_bleu_procedure"] = tokenized["procedure"]
    print_report(report, args.json)


main = Command("t2t-lite-bleu", __doc__, _add_flags, score_files)
