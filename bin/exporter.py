"""Exports a trained model as a folder that is all a server needs.

Text goes in and text comes out of a SavedModel for TensorFlow Serving: the
vocabulary is inside. A folder for CTranslate2 takes tokens, and has the
vocabulary beside the model.
"""

import argparse
import os

from t2t_lite.bin.cli import backend, command, flags, runs
from t2t_lite.errors import UsageError
from t2t_lite.serving.options import PRECISIONS

# Flags that are `ServingOptions`.
_OPTIONS = ("prefixed", "attention", "precision", "max_batch", "max_length")
_WARMUP = 4  # lengths


def make_parser() -> flags.Parser:
    """The flags of `t2t-lite-exporter`."""
    parser = flags.Parser("t2t-lite-exporter", __doc__)
    flags.add_run_flags(parser)
    told = (
        "where to write; each export is a new folder 1, 2, ... in it "
        "(default: OUTPUT_DIR/export, or OUTPUT_DIR/ctranslate2)"
    )
    flags.add(parser, {"--export_dir=DIR": told})
    parser.add_argument(
        "--format",
        choices=["saved_model", "ctranslate2"],
        default="saved_model",
        help="saved_model: for TensorFlow Serving; ctranslate2: for that "
        "engine, which needs t2t-lite[ctranslate2]",
    )
    backend.add_quantization(parser, "--format=ctranslate2")
    told = "after the export, remove the oldest so that N remain (default: all)"
    flags.add(parser, {"--keep=N": told}, flags.at_least(1))
    _add_serving_flags(parser)
    flags.add_search_flags(parser, batches=False)
    return parser


def _add_serving_flags(parser: flags.Parser) -> None:
    group = parser.add_argument_group("of --format=saved_model")
    told = {
        "--prefixed": "add the signature 'prefixed': translations that begin "
        "with a given prefix",
        "--attention": "add the signature 'attention': the weights of every "
        "head, for the web page",
    }
    flags.add(group, told)
    group.add_argument(
        "--precision",
        choices=PRECISIONS,
        help="the type in which the weights are stored; bfloat16 takes half "
        f"the space (default: {PRECISIONS[0]})",
    )
    limits = {
        "--max_batch=N": "compute at most N texts together; larger batches are "
        "split (default: no limit)",
        "--max_length=N": "truncate texts to N tokens, EOS included (default "
        "and largest: the run's max_length)",
    }
    flags.add(group, limits, flags.at_least(1))
    lengths = (
        "number of text lengths in the warm-up requests, which a server sends "
        f"to each signature when it loads; 0: none (default: {_WARMUP})"
    )
    flags.add(group, {"--warmup=N": lengths}, flags.at_least(0))
    group.add_argument(
        "--verify",
        action="store_true",
        default=None,
        help="load the export in a process without t2t-lite and compare its "
        "answers (default)",
    )
    group.add_argument(
        "--noverify",
        dest="verify",
        action="store_false",
        default=None,
        help="skip this check, which takes half of the time",
    )


def export(args: argparse.Namespace) -> None:
    """Writes the export, prints its folder and removes old ones."""
    quantization = backend.quantization(args, "format")
    if args.format != "saved_model":
        unset = make_parser().get_default
        for name in (*_OPTIONS, "warmup", "verify"):
            if getattr(args, name) is not unset(name):
                raise UsageError(f"--{name} is for --format=saved_model.")
    # The process that verifies an export needs a part of the GPU, too.
    os.environ.setdefault("TF_FORCE_GPU_ALLOW_GROWTH", "true")
    run = runs.open_run(args, to_export=True)
    translator, weights = runs.translator_and_weights(run, args)
    from t2t_lite.serving import export, servable, versions
    from t2t_lite.serving.options import ServingOptions

    export_dir = flags.folder(args.export_dir)
    if args.format == "ctranslate2":
        newest = export.export_ctranslate2(
            translator,
            export_dir or run.output_dir / "ctranslate2",
            quantization,
            run=run,
            weights=weights,
        )
    else:
        asked = {name: getattr(args, name) for name in _OPTIONS}
        given = {name: v for name, v in asked.items() if v is not None}
        newest = export.export_saved_model(
            translator,
            export_dir or run.output_dir / "export",
            options=ServingOptions(**given),
            run=run,
            weights=weights,
            warmup=_WARMUP if args.warmup is None else args.warmup,
            verified=args.verify is not False,
            note=command.note,
        )
        if args.verbose:
            ops = ", ".join(servable.check_servable(newest))
            command.note(f"Ops: {ops}.")
    print(newest, flush=True)
    if args.keep:
        for removed in versions.remove_old_versions(newest, args.keep):
            command.note(f"Removed {removed}.")


def main(argv: list[str] | None = None) -> int:
    """Runs `t2t-lite-exporter`; returns its exit code."""
    return command.run(make_parser(), export, argv)


if __name__ == "__main__":
    raise SystemExit(main())
