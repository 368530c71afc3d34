"""Compare runs in one table: scores, sizes, cost and settings.

The runs may still be training. TensorBoard shows the curves of a run.
"""

import argparse

from t2t_lite.bin.cli import flags
from t2t_lite.bin.cli.command import Command
from t2t_lite.bin.cli.output import format_value, print_json, print_table


def _add_flags(parser: flags.Parser) -> None:
    parser.epilog = "example: t2t-lite-report ~/t2t-lite/runs/*/*"
    parser.add_argument("runs", metavar="RUN", nargs="+", help="run folders")
    help_text = "output file for plots of the curves; requires t2t-lite[png]"
    flags.add(parser, {"--png=FILE": help_text})
    flags.add_json(parser)


def report(args: argparse.Namespace) -> None:
    """Print the table or a JSON object, and write the plots."""
    from t2t_lite.training import comparison

    runs = list(dict.fromkeys(flags.folder(run) for run in args.runs))
    rows = comparison.compare_runs(runs)
    if args.json:
        print_json({"runs": rows})
    else:
        names = ["/".join(run.parts[-2:]) for run in runs]
        facts = [
            [key.replace("_", " "), *(format_value(row[key]) for row in rows)]
            for key in list(rows[0])[1:]
        ]
        print_table([["", *names], *facts], numbers=True)
    if args.png:
        comparison.plot_runs(runs, flags.folder(args.png))


main = Command("t2t-lite-report", __doc__, _add_flags, report)
