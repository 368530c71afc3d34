"""Compare runs in one table: scores, sizes, cost and settings.

The runs may still be training. TensorBoard shows the curves of a run.
"""

import argparse
import json
from typing import Any

from t2t_lite.bin.cli import command, flags


def make_parser() -> flags.Parser:
    """Return the parser of `t2t-lite-report`."""
    parser = flags.Parser("t2t-lite-report", __doc__)
    parser.epilog = "example: t2t-lite-report ~/t2t-lite/runs/*/*"
    parser.add_argument(
        "runs", metavar="RUN", nargs="+", help="the folder of a run"
    )
    told = "also plot the curves, which requires t2t-lite[png]"
    flags.add(parser, {"--png=FILE": told})
    flags.add_json(parser)
    return parser


def report(args: argparse.Namespace) -> None:
    """Print the table, or one JSON object, and write the picture."""
    from t2t_lite.training import comparison

    runs = list(dict.fromkeys(flags.folder(run) for run in args.runs))
    rows = comparison.compare_runs(runs)
    if args.json:
        print(json.dumps({"runs": rows}))
    else:
        _print_table(rows)
    if args.png:
        comparison.plot_runs(runs, flags.folder(args.png))


def _print_table(rows: list[dict[str, Any]]) -> None:
    """Print a column for each run, and a row for each fact."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    key, *others = rows[0]
    table = Table("", box=SIMPLE_HEAD)
    for row in rows:
        table.add_column(Text(row[key]))
    for key in others:
        values = (Text(_shown(row[key])) for row in rows)
        table.add_row(Text(key.replace("_", " ")), *values)
    Console().print(table)


def _shown(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def main(argv: list[str] | None = None) -> int:
    """Run `t2t-lite-report`; return its exit code."""
    return command.run(make_parser(), report, argv)


if __name__ == "__main__":
    raise SystemExit(main())
