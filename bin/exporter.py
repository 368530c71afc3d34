"""Export a trained model as a folder that is all a server needs.

A SavedModel for TensorFlow Serving takes and returns text: it contains the
vocabulary. A folder for CTranslate2 takes tokens; the vocabulary is a file.
"""

import argparse
import os

from t2t_lite.bin.cli import command, flags, runs
from t2t_lite.bin.cli.command import Command
from t2t_lite.errors import UsageError
from t2t_lite.validators import integer

# Flags of --format=saved_model; all are None unless given.
_SERVING = (
    *("attention", "precision", "max_length"),
    *("warmup", "noverify"),
)
_WARMUP = 4  # lengths


def _add_flags(parser: flags.Parser) -> None:
    flags.add_run_flags(parser)
    about = (
        "where to write; each export is a new folder 1, 2, ... in it "
        "(default: OUTPUT_DIR/export, or OUTPUT_DIR/ctranslate2)"
    )
    flags.add(parser, {"--export_dir=DIR": about})
    about = (
        "saved_model: for TensorFlow Serving; ctranslate2: for that engine, "
        "which needs t2t-lite[ctranslate2]"
    )
    kinds = ("saved_model", "ctranslate2")
    flags.add_choice(parser, "format", about, *kinds, default="saved_model")
    runs.add_quantization(parser, "--format=ctranslate2")
    about = (
        "after the export, remove the oldest so that N remain (default: all)"
    )
    flags.add(parser, {"--keep=N": about}, integer(1))
    group = parser.add_argument_group("of --format=saved_model")
    switches = {
        "--attention": "add the signature 'attention': the weights of every "
        "head, for the web page",
        "--noverify": "do not load the export in a process without t2t-lite "
        "to compare its answers, which takes half of the time",
    }
    flags.add(group, switches)
    about = (
        "the type in which the weights are stored; bfloat16 takes half the "
        "space (default: float32)"
    )
    flags.add_choice(group, "precision", about, "float32", "bfloat16")
    limits = {
        "--max_length=N": "truncate texts to N tokens, EOS included (default "
        "and largest: the run's max_length)",
    }
    flags.add(group, limits, integer(1))
    lengths = (
        "number of text lengths in the warm-up requests, which a server sends "
        f"to each signature when it loads; 0: none (default: {_WARMUP})"
    )
    # TensorFlow Serving takes 1000 requests; there are up to 4 signatures.
    flags.add(group, {"--warmup=N": lengths}, integer(0, 250))
    parser.set_defaults(**dict.fromkeys(_SERVING))
    flags.add_search_flags(parser, batches=False)


def export(args: argparse.Namespace) -> None:
    """Write the export, print its folder and remove old ones."""
    flags.check_together(args, (), {"quantization": "format=ctranslate2"})
    quantization = args.quantization or runs.DEFAULT_QUANTIZATION
    given = {name: getattr(args, name) for name in _SERVING}
    given = {name: value for name, value in given.items() if value is not None}
    if given and args.format != "saved_model":
        raise UsageError(
            f"--{next(iter(given))} requires --format=saved_model; got "
            f"--format={args.format}."
        )
    # The process that verifies an export needs a part of the GPU, too.
    os.environ.setdefault("TF_FORCE_GPU_ALLOW_GROWTH", "true")
    run = runs.open_run(args, to_export=True)
    translator, weights = runs.make_translator(run, args)
    from t2t_lite.serving import export, verify, versions
    from t2t_lite.serving.signatures import ExportOptions

    name = "export" if args.format == "saved_model" else args.format
    export_dir = flags.folder(args.export_dir) or run.output_dir / name
    if args.format == "ctranslate2":
        newest = export.export_ctranslate2(
            translator, export_dir, quantization, run=run, weights=weights
        )
    else:
        newest = export.export_saved_model(
            translator,
            export_dir,
            run=run,
            weights=weights,
            warmup=given.pop("warmup", _WARMUP),
            verified=not given.pop("noverify", False),
            options=ExportOptions(**given),
            note=command.note,
        )
        if args.verbose:
            ops = ", ".join(verify.check_servable(newest))
            command.note(f"Ops: {ops}.")
    print(newest, flush=True)
    if args.keep:
        for removed in versions.remove_old_versions(newest, args.keep):
            command.note(f"Removed {removed}.")


main = Command("t2t-lite-exporter", __doc__, _add_flags, export)
