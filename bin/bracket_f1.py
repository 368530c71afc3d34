"""Scores parse trees against gold trees by the rules of EVALB.

The trees are in a file, or a trained model parses the sentences.
"""

import argparse
import json
from collections.abc import Mapping, Sequence

from t2t_lite.bin.cli import command, flags, runs
from t2t_lite.corpus.lines import read_lines
from t2t_lite.errors import UsageError
from t2t_lite.parsing import bracket_f1, evalb_parameters
from t2t_lite.parsing.bracket_f1 import SentenceScore, percent
from t2t_lite.parsing.tree_reader import (
    one_tree_a_line,
    sentence_of,
    without_outer_brackets,
)

_RULE = "=" * 76
# EVALB's own, so that whoever reads its output reads ours.
_HEADING = (
    f"  Sent. {'':21}  Matched  Bracket   Cross        Correct Tag",
    " ID  Len.  Stat. Recal  Prec.  Bracket gold test Bracket Words  Tags "
    "Accracy",
)
# The rows of the table: what people read, the key, the decimals.
_ROWS = (
    ("sentences", "sentences", 0),
    ("error sentences", "errors", 0),
    ("skipped sentences", "skipped", 0),
    ("valid sentences", "valid", 0),
    ("bracketing recall", "recall", 2),
    ("bracketing precision", "precision", 2),
    ("bracketing F1", "f1", 2),
    ("complete match", "complete_match", 2),
    ("average crossing", "average_crossing", 2),
    ("no crossing", "no_crossing", 2),
    ("2 or less crossing", "two_or_less_crossing", 2),
    ("tagging accuracy", "tagging_accuracy", 2),
)


def make_parser() -> flags.Parser:
    """The flags of `t2t-lite-bracket-f1`."""
    parser = flags.Parser("t2t-lite-bracket-f1", __doc__)
    table = {
        "--gold=FILE": "bracketed trees: one a line, or as treebanks have them",
        "--test=FILE": "parses of the same words, one a line or as treebanks "
        "have them; an empty line where there is none",
        "--text=FILE": "raw sentences for the model, instead of --test; they "
        "are split into words as the problem's treebank is (default: the "
        "words of the gold trees)",
        "--parameters=FILE": "what counts: an EVALB parameter file (default: "
        "COLLINS.prm's)",
        "--sentences": "show each sentence, too",
        "--labels": "show each label, too",
    }
    flags.add(parser, table)
    flags.add_json(parser)
    flags.add_run_flags(parser, "the model that parses, instead of --test")
    flags.add_search_flags(parser)
    return parser


def score_files(args: argparse.Namespace) -> None:
    """Prints the scores of `--test` against `--gold`."""
    flags.require(args, "gold")
    if bool(args.test) == bool(args.output_dir or args.problem):
        raise UsageError(
            "Give --test, or a model by --output_dir or by --problem and "
            "--hparams."
        )
    if args.test and args.text:
        raise UsageError("--text is for a model: leave --test out.")
    parameters = evalb_parameters.COLLINS
    if args.parameters:
        parameters = evalb_parameters.read_parameters(args.parameters)
    gold, of_treebank = one_tree_a_line(args.gold)
    if args.test:
        test, test_of_treebank = one_tree_a_line(args.test, len(gold))
    else:
        test, test_of_treebank = _parses(args, gold), False
    if of_treebank or test_of_treebank or not args.test:
        # Treebanks have a bracket around each tree that lines may lack.
        gold, test = (
            list(without_outer_brackets(lines)) for lines in (gold, test)
        )
    name = args.test or args.text or "the parses"
    scores = bracket_f1.score_lines(gold, test, parameters, args.gold, name)
    note_errors(scores, name, parameters.max_errors)
    report = bracket_f1.report(scores, parameters)
    if args.labels:
        report["labels"] = bracket_f1.label_totals(scores)
    if args.json:
        if args.sentences:
            report["per_sentence"] = [score._asdict() for score in scores]
        print(json.dumps(report, ensure_ascii=False))
        return
    if args.sentences:
        print(sentence_table(scores, report), end="\n\n")
    print(totals_table(report))
    if args.labels:
        print(f"\n{label_table(report['labels'])}")


def _parses(args: argparse.Namespace, gold: Sequence[str]) -> list[str]:
    """A model's trees over the sentences of `--text` or of the gold trees."""
    if args.text:
        sentences = list(read_lines(args.text))
    else:
        sentences = [sentence_of(line) for line in gold]
    run = runs.open_run(args)
    if args.text:
        sentences = [run.problem.tokenize(text) for text in sentences]
    replicas = runs.make_replicas(run, args)
    from t2t_lite.decoding.lines import best_translations

    with command.LineNotes(args.verbose) as note:
        return best_translations(
            replicas,
            sentences,
            "parsing",
            batch_size=args.batch_size,
            batch_tokens=args.batch_tokens,
            complete=run.problem.complete,
            note=note,
        )


def note_errors(scores: Sequence[SentenceScore], name: str, most: int) -> None:
    """Says on stderr how many sentences do not count, and the first reason."""
    left_out = [
        f"line {number} of {name}: {score.problem or 'no words'}"
        for number, score in enumerate(scores, 1)
        if score.status != bracket_f1.SCORED
    ]
    if left_out:
        command.note(
            f"{len(left_out)} of {len(scores)} sentences are left out of the "
            f"scores, as EVALB does; the first is {left_out[0].rstrip('.')}."
        )
    if sum(score.status == bracket_f1.ERROR for score in scores) > most:
        command.note(f"EVALB itself would stop after {most} error sentences.")


def sentence_table(scores: Sequence[SentenceScore], report: dict) -> str:
    """EVALB's table: a line for each sentence, and their sums."""
    lines = [*_HEADING, _RULE]
    for number, score in enumerate(scores, 1):
        lines.append(
            f"{number:4}  {score.length:3}    {score.status}  "
            f"{percent(score.matched, score.gold):6.2f} "
            f"{percent(score.matched, score.test):6.2f}   "
            f"{score.matched:3}    {score.gold:3}  {score.test:3}    "
            f"{score.crossing:3}   {score.words:4}  {score.correct_tags:4}   "
            f"{percent(score.correct_tags, score.words):6.2f}"
        )
    lines += [
        _RULE,
        f"{'':16}{report['recall']:6.2f} {report['precision']:6.2f} "
        f"{report['matched_brackets']:6} {report['gold_brackets']:5} "
        f"{report['test_brackets']:5}  {report['crossing_brackets']:5}  "
        f"{report['words']:5} {report['correct_tags']:5}   "
        f"{report['tagging_accuracy']:6.2f}",
    ]
    return "\n".join(lines)


def label_table(labels: Mapping[str, Mapping[str, float]]) -> str:
    """Recall, precision and F1 of each label, the most frequent first."""
    lines = ["label         gold    test  recall  precision      F1"]
    for label, counts in labels.items():
        lines.append(
            f"{label:10}  {counts['gold']:6}  {counts['test']:6}  "
            f"{counts['recall']:6.2f}     {counts['precision']:6.2f}  "
            f"{counts['f1']:6.2f}"
        )
    return "\n".join(lines)


def totals_table(report: dict) -> str:
    """The totals of all sentences, and of those within the cutoff length."""
    short = report["within_cutoff"]
    cutoff = f"length <= {report['cutoff_length']}"
    lines = [f"{'':20}  {'all':>12}  {cutoff:>14}"]
    for name, key, decimals in _ROWS:
        lines.append(
            f"{name:20}  {report[key]:12.{decimals}f}  "
            f"{short[key]:14.{decimals}f}"
        )
    return "\n".join(lines)


def main(argv: list[str] | None = None) -> int:
    """Runs `t2t-lite-bracket-f1`; returns its exit code."""
    return command.run(make_parser(), score_files, argv)


if __name__ == "__main__":
    raise SystemExit(main())
