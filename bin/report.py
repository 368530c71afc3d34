"""Shows runs side by side as one page for the browser.

Loss, scores, learning rate, speed and more over steps or time, what differs in
their hyperparameters, sentences of dev over time, and the cost. The page needs
no server and no network. A run may still be in training.
"""

import argparse

from t2t_lite.bin.cli import command, flags


def make_parser() -> flags.Parser:
    """The flags of `t2t-lite-report`."""
    parser = flags.Parser("t2t-lite-report", __doc__)
    parser.epilog = "example: t2t-lite-report ~/t2t-lite/runs/*/*"
    parser.add_argument(
        "runs", metavar="RUN", nargs="+", help="the folder of a run"
    )
    own = {
        "--output=FILE": "where to write the page (default: report.html in the "
        "first run)",
        "--png=FILE": "also write the curves as a picture, which needs "
        "t2t-lite[png]",
    }
    flags.add(parser, own)
    return parser


def report(args: argparse.Namespace) -> None:
    """Writes the page and the picture, and prints their paths."""
    from t2t_lite import files
    from t2t_lite.reports.page import render_report, report_of

    runs = [flags.folder(run) for run in args.runs]
    told = report_of(runs)
    path = flags.folder(args.output) or runs[0] / "report.html"
    files.write_text(path, render_report(told))
    print(path)
    if args.png:
        from t2t_lite.reports.picture import write_picture

        picture = flags.folder(args.png)
        write_picture(told, picture)
        print(picture)


def main(argv: list[str] | None = None) -> int:
    """Runs `t2t-lite-report`; returns its exit code."""
    return command.run(make_parser(), report, argv)


if __name__ == "__main__":
    raise SystemExit(main())
