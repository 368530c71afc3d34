"""Score a file of translations against references with sacreBLEU."""

import argparse

from t2t_lite.bin.cli import flags, io_paths
from t2t_lite.bin.cli.command import Command
from t2t_lite.bin.cli.output import print_report
from t2t_lite.corpus.lines import read_lines
from t2t_lite.errors import T2TLiteError

_TOKENIZERS = "13a|intl|char|none|zh|ja-mecab|ko-mecab"


def _add_flags(parser: flags.Parser) -> None:
    table = {
        "--hypothesis=FILE": "translations, one per line; - is stdin",
        "--reference=FILE": "detokenized references, one per line",
        "--lowercase": "ignore case",
        "--tokenized": "also print the tokenized BLEU with split compounds "
        "that the paper reports",
        "--target_language=CODE": "language of both files for --tokenized, "
        "such as de",
    }
    flags.add(parser, table)
    table = {
        f"--tokenize={_TOKENIZERS}": "sacreBLEU tokenizer for both files",
    }
    flags.add(parser, table, default="13a")
    flags.add_json(parser)


def score_files(args: argparse.Namespace) -> None:
    """Print the score of `--hypothesis` against `--reference`."""
    flags.require(args, "hypothesis", "reference")
    both = {"tokenized": "target_language", "target_language": "tokenized"}
    flags.check_together(args, [("tokenized", "lowercase")], both)
    io_paths.check_stdin(args.hypothesis, args.reference)
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


main = Command("t2t-lite-bleu", __doc__, _add_flags, score_files)
