"""What `t2t-lite-datagen --inspect` prints."""

import argparse
import json
import pathlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from t2t_lite.errors import UsageError

if TYPE_CHECKING:
    from t2t_lite.problem import Problem

_MAKES_DATA = ("overwrite", "raw_dir", "tfds_dir", "processes")
_SHOWN_CHARACTERS = 300  # of a text; JSON has all of them
_SHARES = {"half": 0.5, "90%": 0.9, "99%": 0.99, "99.9%": 0.999, "all": 1.0}


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
    from t2t_lite.data.remedies import USUAL_SEED

    seed = USUAL_SEED if args.seed is None else args.seed
    report = inspect_data(data_dir, problem, seed)
    if args.json:
        print(json.dumps(report))
        return
    splits = report["splits"]
    print(f"{report['problem']} in {report['data_dir']}")
    name, first = next(iter(splits.items()))
    for side in ("source", "target"):
        print(
            f"vocabulary of {side}: {first[side]['file']}, "
            f"{first[side]['pieces']:,} pieces"
        )
    print()
    _print_table("", {name: _counts(split) for name, split in splits.items()})
    print(
        "EOS is one of the tokens, but does not count for tokens per word (of "
        "a sample)\nor bytes: tokens that are bytes of a character that the "
        "vocabulary lacks.\n"
    )
    sides = {
        f"{name} {side}": _lengths(split[side])
        for name, split in splits.items()
        for side in ("source", "target")
    }
    _print_table("most tokens of", sides)
    _print_drops(splits)
    if problem.reversed and any(
        split["dropped"] or split["damaged"] for split in splits.values()
    ):
        print(f"These pairs have the sides of {problem.base_name}.")
    print(f"\nPairs of {name} drawn at random (--seed={report['seed']})")
    for pair in first["drawn"]:
        print(
            f"pair {pair['number']:,}: {pair['source_tokens']:,} tokens to "
            f"{pair['target_tokens']:,}\n  {_shown(pair['source'])}\n"
            f"  {_shown(pair['target'])}"
        )


def _counts(split: Mapping[str, Any]) -> dict[str, str]:
    """A column of a table: what each of its rows says of a split."""
    column = {
        "pairs": f"{split['examples']:,}",
        "dropped": f"{sum(split['dropped'].values()):,}",
        "with broken text": f"{sum(split['damaged'].values()):,}",
    }
    for name in ("source", "target"):
        side, tokens = split[name], split[name]["tokens"]
        column |= {
            f"{name} tokens": f"{tokens:,}",
            f"{name} tokens a pair": f"{tokens / split['examples']:.1f}",
            f"{name} tokens per word": _or_dash(side["tokens_per_word"], ".2f"),
            f"{name} bytes": _or_dash(side["byte_share"], ".3%"),
        }
    return column


def _lengths(side: Mapping[str, Any]) -> dict[str, str]:
    """Likewise: how long such a share of the texts of a side is at most."""
    return {
        label: f"{length_of(share, side['lengths']):,}"
        for label, share in _SHARES.items()
    }


def length_of(share: float, lengths: Mapping[int, int]) -> int:
    """The length that such a share of the texts does not exceed.

    Args:
      share: 0-1.
      lengths: number of texts by their length.
    """
    needed, covered = share * sum(lengths.values()), 0
    for length, count in sorted(lengths.items()):
        covered += count
        if covered >= needed:
            return length
    return 0


def _print_drops(splits: Mapping[str, Any]) -> None:
    """What was left out or is damaged, and the first of it."""
    for name, split in splits.items():
        told = {
            reason: f"dropped from {name}: {count:,}, {reason}"
            for reason, count in split["dropped"].items()
        } | {
            what: f"in {name} with {what}: {count:,}"
            for what, count in split["damaged"].items()
        }
        samples = split["dropped_samples"] | split["damaged_samples"]
        for reason, line in told.items():
            print(f"\n{line}")
            for sample in samples.get(reason, ()):
                print(
                    f"  pair {sample['pair']:,}: source "
                    f'"{_shown(sample["source"])}", target '
                    f'"{_shown(sample["target"])}"'
                )


def _print_table(title: str, columns: Mapping[str, Mapping[str, str]]) -> None:
    """Prints columns flush right, after their labels flush left."""
    rows = [[title, *columns]]
    for label in next(iter(columns.values())):
        rows.append([label, *(column[label] for column in columns.values())])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = map(str.rjust, row[1:], widths[1:])
        print("  ".join([row[0].ljust(widths[0]), *cells]))


def _shown(text: str) -> str:
    """On one line, short, and without what a terminal would obey."""
    more = len(text) - _SHOWN_CHARACTERS
    shown = "".join(
        c if c.isprintable() else ascii(c)[1:-1]
        for c in text[:_SHOWN_CHARACTERS]
    )
    return f"{shown} ... and {more:,} characters more" if more > 0 else shown


def _or_dash(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)
