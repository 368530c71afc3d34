"""Exports a trained model as a SavedModel for TensorFlow Serving.

Text goes in and text comes out; the vocabulary is inside.
"""

import argparse

from t2t_lite.bin.cli import command, flags, runs


def make_parser() -> flags.Parser:
    """The flags of `t2t-lite-exporter`."""
    parser = flags.Parser("t2t-lite-exporter", __doc__)
    flags.add_run_flags(parser)
    told = (
        "where to write; each export is a new folder 1, 2, ... in it "
        "(default: OUTPUT_DIR/export)"
    )
    flags.add(parser, {"--export_dir=DIR": told})
    told = "after the export, remove the oldest so that N remain (default: all)"
    flags.add(parser, {"--keep=N": told}, flags.at_least(1))
    flags.add_search_flags(parser, batches=False)
    return parser


def export(args: argparse.Namespace) -> None:
    """Writes the export, prints its folder and removes old ones."""
    run = runs.open_run(args)
    translator = runs.make_translator(run, args)
    from t2t_lite.serving.export import (
        export_saved_model,
        remove_old_versions,
    )

    export_dir = flags.folder(args.export_dir) or run.output_dir / "export"
    newest = export_saved_model(translator, export_dir)
    print(newest, flush=True)
    if args.keep:
        for removed in remove_old_versions(newest, args.keep):
            command.note(f"Removed {removed}.")


def main(argv: list[str] | None = None) -> int:
    """Runs `t2t-lite-exporter`; returns its exit code."""
    return command.run(make_parser(), export, argv)


if __name__ == "__main__":
    raise SystemExit(main())
