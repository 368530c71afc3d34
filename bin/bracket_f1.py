"""Score parse trees against gold trees with the rules of EVALB."""

import argparse
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from t2t_lite.bin.cli import command, flags, io_paths
from t2t_lite.bin.cli.command import Command
from t2t_lite.bin.cli.output import (
    format_value,
    print_json,
    print_rows,
    print_table,
)
from t2t_lite.corpus.lines import read_lines
from t2t_lite.parsing import bracket_f1
from t2t_lite.parsing.bracket_f1 import SentenceScore
from t2t_lite.parsing.trees import STRICT


def _add_flags(parser: flags.Parser) -> None:
    table = {
        "--gold=FILE": "bracketed trees, one per line; - is stdin",
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
    io_paths.check_stdin(args.gold, args.test, args.parameters)
    parameters = bracket_f1.COLLINS
    if args.parameters:
        parameters = bracket_f1.read_parameters(args.parameters)
    gold, test = (list(read_lines(x, STRICT)) for x in (args.gold, args.test))
    scores = bracket_f1.score_lines(
        gold, test, parameters, args.gold, args.test
    )
    _note_errors(scores, args.test)
    report = bracket_f1.report(scores, parameters)
    rows = [score._asdict() for score in scores]
    if args.json:
        print_json(report | ({"per_sentence": rows} if args.sentences else {}))
        return
    if args.sentences:
        print_rows([{"sentence": i, **row} for i, row in enumerate(rows, 1)])
        print()
    print_table(_totals(report), numbers=True)


def _note_errors(scores: Sequence[SentenceScore], name: str) -> None:
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


def _totals(report: Mapping[str, Any]) -> Iterator[Sequence[str]]:
    yield "", "all", f"length <= {report['cutoff_length']}"
    for key, short in report["within_cutoff"].items():
        values = format_value(report[key]), format_value(short)
        yield key.replace("_", " "), *values


main = Command("t2t-lite-bracket-f1", __doc__, _add_flags, score_files)
