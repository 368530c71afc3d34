"""What `t2t-lite-datagen --inspect` prints."""

import argparse
import json
import math
import pathlib
import sys
from typing import TYPE_CHECKING

from t2t_lite.bin.cli import command
from t2t_lite.errors import T2TLiteError, UsageError

if TYPE_CHECKING:
    from t2t_lite.data.inspection_records import Inspection
    from t2t_lite.problem import Problem

_MAKES_DATA = ("overwrite", "raw_dir", "tfds_dir", "processes")
_SHOWN_CHARACTERS = 300  # of a text; JSON has all of them
_MOST_ROWS = 16  # of the histogram
_EIGHTHS = " ▏▎▍▌▋▊▉█"


def require_no_making(args: argparse.Namespace) -> None:
    """Raises UsageError for a flag that is about making data."""
    for name in _MAKES_DATA:
        if getattr(args, name):
            raise UsageError(
                f"--inspect reads the data that is there: leave --{name} out."
            )


def inspect(
    args: argparse.Namespace, problem: "Problem", data_dir: pathlib.Path
) -> None:
    """Reads the data and prints what it is like."""
    from t2t_lite.data.inspection import inspect_data
    from t2t_lite.data.length_plot import draw_lengths

    inspection = inspect_data(data_dir, problem, args.seed)
    png = missing = None
    try:
        png = str(draw_lengths(inspection, data_dir))
    except T2TLiteError as error:  # the report needs no picture
        missing = str(error)
    if args.json:
        if missing:
            command.note(f"No picture of the lengths: {missing}")
        print(json.dumps(inspection.to_json() | {"png": png}))
        return
    _print_report(inspection, problem)
    print(
        f"\nThe lengths as a picture: {png}"
        if png
        else f"\nNo picture of the lengths: {missing}"
    )


def _print_report(inspection: "Inspection", problem: "Problem"):
    from rich.console import Console

    console = Console(
        file=sys.stdout, highlight=False, markup=False, soft_wrap=True
    )
    languages = getattr(problem, "languages", ("", ""))
    sides = dict(zip(("source", "target"), languages, strict=True))
    console.print(f"{inspection.problem} in {inspection.data_dir}")
    for side, language in sides.items():
        vocabulary = inspection.vocabulary[side]
        named = f"{side} ({language})" if language else side
        console.print(
            f"vocabulary of {named}: {vocabulary['file']}, "
            f"{vocabulary['pieces']:,} pieces"
        )
    console.print()
    console.print(_counts_table(inspection))
    _print_notes(console, inspection, problem)
    name, split = next(iter(inspection.splits.items()))
    _print_histogram(console, name, split)
    console.print(f"\nLongest pairs of {name}")
    _print_pairs(console, split.longest)
    console.print(
        f"\nPairs of {name} drawn at random (--seed={inspection.seed})"
    )
    _print_pairs(console, split.drawn)


def _counts_table(inspection):
    splits = inspection.splits.values()
    table = _table("", *inspection.splits)
    table.add_row("pairs", *(f"{split.examples:,}" for split in splits))
    dropped = (sum(split.dropped.values()) for split in splits)
    table.add_row("dropped", *(f"{count:,}" for count in dropped))
    for side in ("source", "target"):
        for label, value in _SIDE_ROWS.items():
            values = (value(getattr(split, side)) for split in splits)
            table.add_row(f"{side} {label}", *values)
    return table


_SIDE_ROWS = {
    "tokens": lambda side: f"{side.tokens:,}",
    "tokens a pair": lambda side: (
        f"{side.tokens / sum(side.lengths.values()):.1f}"
    ),
    "longest": lambda side: f"{max(side.lengths):,}",
    "tokens per word": lambda side: _or_dash(side.tokens_per_word, ".2f"),
    "bytes": lambda side: _or_dash(side.byte_share, ".3%"),
}


def _print_notes(console, inspection, problem):
    """What the numbers of the table are, and what was dropped."""
    note = (
        "EOS counts as a token, but not in tokens per word, nor in bytes: the "
        "share of tokens that are bytes of a character the vocabulary lacks. "
        "Words are what white space separates. "
    )
    sampled = ", ".join(
        f"{split.sampled:,} pairs of {name}"
        for name, split in inspection.splits.items()
        if split.sampled < split.examples
    )
    note += (
        f"Tokens per word are those of {sampled}, drawn at random; all else is "
        "of every pair."
        if sampled
        else "All of it is of every pair."
    )
    console.print(note, soft_wrap=False)
    for name, split in inspection.splits.items():
        for reason, count in split.dropped.items():
            console.print(f"dropped from {name}: {count:,}, {reason}")
            for sample in split.dropped_samples.get(reason, ()):
                texts = (
                    f'{side} "{_shown(sample[side])}"'
                    for side in ("source", "target")
                    if side in sample
                )
                place = f"pair {sample['pair']:,}: " if "pair" in sample else ""
                console.print(f"  {place}{', '.join(texts)}")
    if problem.reversed and any(s.dropped for s in inspection.splits.values()):
        console.print(f"What was dropped has the sides of {problem.base_name}.")


def _print_histogram(console, name, split):
    """A row for each class of lengths, a bar for each side."""
    classes = split.length_classes(_MOST_ROWS)
    counts = {
        side: [
            sum(n for length, n in lengths.items() if first <= length <= last)
            for first, last in classes
        ]
        for side, lengths in (
            ("source", split.source.lengths),
            ("target", split.target.lengths),
        )
    }
    most = max(map(max, counts.values()))
    digits = len(f"{most:,}")
    # Two bars with their counts, a column of lengths, and the gaps.
    labels = [_class_label(*one) for one in classes]
    width = (console.width - max(map(len, labels)) - 2 * digits - 10) // 2
    table = _table("tokens", *(f"{name} {side}" for side in counts), bars=True)
    for label, *row in zip(labels, *counts.values(), strict=True):
        bars = (
            f"{count:>{digits},} {_bar(count / most, max(width, 1))}"
            for count in row
        )
        table.add_row(label, *bars)
    console.print()
    console.print(table)


def _class_label(first, last):
    if last == math.inf:
        return f"{first:,} or more"
    return f"{first:,}" if first == last else f"{first:,}-{last:,}"


def _bar(share, width):
    """A bar of `width` characters at most; anything at all shows."""
    eighths = math.ceil(share * width * 8)
    return _EIGHTHS[-1] * (eighths // 8) + _EIGHTHS[eighths % 8].strip()


def _table(first, *others, bars=False):
    """A table without lines; `bars` are flush left, numbers right."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(first, justify="right" if bars else "left", no_wrap=True)
    for name in others:
        table.add_column(
            name,
            justify="left" if bars else "right",
            no_wrap=True,
            overflow="crop",
        )
    return table


def _print_pairs(console, pairs):
    for pair in pairs:
        console.print(
            f"pair {pair.number:,}: {pair.source_tokens:,} tokens to "
            f"{pair.target_tokens:,}"
        )
        console.print(f"  {_shown(pair.source)}")
        console.print(f"  {_shown(pair.target)}")


def _shown(text):
    """On one line, short, and without what a terminal would obey."""
    more = len(text) - _SHOWN_CHARACTERS
    shown = "".join(
        c if c.isprintable() else ascii(c)[1:-1]
        for c in text[:_SHOWN_CHARACTERS]
    )
    return f"{shown} ... and {more:,} characters more" if more > 0 else shown


def _or_dash(value, form):
    return "-" if value is None else format(value, form)
