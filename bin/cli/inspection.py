"""What `t2t-lite-datagen --inspect` prints."""

import argparse
import json
import pathlib
from collections.abc import Mapping, Sequence
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

    report = inspect_data(data_dir, problem, args.seed)
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
    _print_table(_counts(splits))
    print(
        "EOS is one of the tokens, but does not count for tokens per word (of "
        "a sample)\nor bytes: tokens that are bytes of a character that the "
        "vocabulary lacks.\n"
    )
    _print_table(_lengths(splits))
    _print_drops(splits)
    if problem.reversed and any(split["dropped"] for split in splits.values()):
        print(f"What was dropped has the sides of {problem.base_name}.")
    print(f"\nPairs of {name} drawn at random (--seed={report['seed']})")
    for pair in first["drawn"]:
        print(
            f"pair {pair['number']:,}: {pair['source_tokens']:,} tokens to "
            f"{pair['target_tokens']:,}\n  {_shown(pair['source'])}\n"
            f"  {_shown(pair['target'])}"
        )


def _counts(splits: Mapping[str, Any]) -> list[list[str]]:
    """The rows of a table with a column for each split."""
    rows = [["", *splits], ["pairs"], ["dropped"]]
    for split in splits.values():
        rows[1].append(f"{split['examples']:,}")
        rows[2].append(f"{sum(split['dropped'].values()):,}")
    for side in ("source", "target"):
        labels = "tokens", "tokens a pair", "tokens per word", "bytes"
        added = [[f"{side} {label}"] for label in labels]
        for split in splits.values():
            found, tokens = split[side], split[side]["tokens"]
            added[0].append(f"{tokens:,}")
            added[1].append(f"{tokens / split['examples']:.1f}")
            added[2].append(_or_dash(found["tokens_per_word"], ".2f"))
            added[3].append(_or_dash(found["byte_share"], ".3%"))
        rows += added
    return rows


def _lengths(splits: Mapping[str, Any]) -> list[list[str]]:
    """The rows of a table: how long such a share of the texts is at most."""
    sides = {
        f"{name} {side}": split[side]["lengths"]
        for name, split in splits.items()
        for side in ("source", "target")
    }
    rows = [["most tokens of", *sides]]
    for label, share in _SHARES.items():
        longest = (length_of(share, lengths) for lengths in sides.values())
        rows.append([label, *(f"{length:,}" for length in longest)])
    return rows


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
    """What was left out, and the first of it."""
    for name, split in splits.items():
        for reason, count in split["dropped"].items():
            print(f"\ndropped from {name}: {count:,}, {reason}")
            for sample in split["dropped_samples"].get(reason, ()):
                print(
                    f"  pair {sample['pair']:,}: source "
                    f'"{_shown(sample["source"])}", target '
                    f'"{_shown(sample["target"])}"'
                )


def _print_table(rows: Sequence[Sequence[str]]) -> None:
    """Prints columns, the first one flush left, the others flush right."""
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
