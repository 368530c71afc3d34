"""Score parse trees against gold trees with the rules of EVALB."""

import argparse
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from t2t_lite.bin.cli import command, flags
from t2t_lite.bin.cli.command import Command
from t2t_lite.bin.cli.output import format_value, print_json, print_table
from t2t_lite.corpus.lines import read_lines
from t2t_lite.parsing import bracket_f1
from t2t_lite.parsing.bracket_f1 import SentenceScore, percent
from t2t_lite.parsing.trees import STRICT

# The table format of EVALB.
_RULE = "=" * 76
_HEADING = (
    f"  Sent. {'':21}  Matched  Bracket   Cross        Correct Tag",
    " ID  Len.  Stat. Recal  Prec.  Bracket gold test Bracket Words  Tags "
    "Accracy",
    _RULE,
)


def _add_flags(parser: flags.Parser) -> None:
    table = {
        "--gold=FILE": "bracketed trees, one per line",
        "--test=FILE": "parses of the same words, one per line; an empty line "
        "for a missing parse",
        "--parameters=FILE": "EVALB parameter file (default: COLLINS.prm)",
        "--sentences": "also print the scores of each sentence",
    }
    flags.add(parser, table)
    flags.add_json(parser)


def score_files(args: argparse.Namespace) -> None:
    """Print the scores of `--test` against `--gold`."""
    flags.require(args, "gold", "test")
    parameters = bracket_f1.COLLINS
    if args.parameters:
        parameters = bracket_f1.read_parameters(args.parameters)
    gold, test = (list(read_lines(x, STRICT)) for x in (args.gold, args.test))
    scores = bracket_f1.score_lines(
        gold, test, parameters, args.gold, args.test
    )
    _note_errors(scores, args.test)
    report = bracket_f1.report(scores, parameters)
    if args.json:
        if args.sentences:
            report["per_sentence"] = [score._asdict() for score in scores]
        print_json(report)
        return
    if args.sentences:
        print(*_sentence_table(scores, report), sep="\n", end="\n\n")
    print_table(_totals(report), numbers=True)


def _note_errors(scores: Sequence[SentenceScore], name: str) -> None:
    """Log the number of skipped sentences and the first reason."""
    skipped = [
        f"line {number} of {name}: {score.problem or 'no words'}"
        for number, score in enumerate(scores, 1)
        if score.status != bracket_f1.SCORED
    ]
    if skipped:
        command.note(
            f"{len(skipped)} of {len(scores)} sentences are skipped, as in "
            f"EVALB; the first is {skipped[0].rstrip('.')}."
        )


def _sentence_table(
    scores: Sequence[SentenceScore], report: Mapping[str, Any]
) -> Iterator[str]:
    """Yield the lines of EVALB's table: the sentences, then the totals."""
    yield from _HEADING
    for number, score in enumerate(scores, 1):
        yield (
            f"{number:4}  {score.length:3}    {score.status}  "
            f"{percent(score.matched, score.gold):6.2f} "
            f"{percent(score.matched, score.test):6.2f}   "
            f"{score.matched:3}    {score.gold:3}  {score.test:3}    "
            f"{score.crossing:3}   {score.words:4}  {score.correct_tags:4}   "
            f"{percent(score.correct_tags, score.words):6.2f}"
        )
    yield _RULE
    yield (
        f"{'':16}{report['recall']:6.2f} {report['precision']:6.2f} "
        f"{report['matched_brackets']:6} {report['gold_brackets']:5} "
        f"{report['test_brackets']:5}  {report['crossing_brackets']:5}  "
        f"{report['words']:5} {report['correct_tags']:5}   "
        f"{report['tagging_accuracy']:6.2f}"
    )


def _totals(report: Mapping[str, Any]) -> Iterator[Sequence[str]]:
    """Yield the totals of all sentences, and of sentences up to the cutoff."""
    yield "", "all", f"length <= {report['cutoff_length']}"
    for key, short in report["within_cutoff"].items():
        values = format_value(report[key]), format_value(short)
        yield key.replace("_", " "), *values


main = Command("t2t-lite-bracket-f1", __doc__, _add_flags, score_files)
