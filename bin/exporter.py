"""Export a trained model for serving, as a self-contained folder.

A SavedModel for TensorFlow Serving translates text, with the vocabulary inside.
An export for CTranslate2 translates tokens; the vocabulary is a separate file.
"""

import argparse
import os

from t2t_lite.bin.cli import command, flags, runs
from t2t_lite.bin.cli.command import Command
from t2t_lite.errors import UsageError
from t2t_lite.validators import integer

# Flags of --format=saved_model, which are None unless given.
_SERVING = (
    *("attention", "precision", "max_length"),
    *("warmup", "noverify"),
)
_WARMUP = 4  # default number of text lengths


def _add_flags(parser: flags.Parser) -> None:
    flags.add_run_flags(parser)
    help_text = (
        "output folder with versions 1, 2, ... (default: OUTPUT_DIR/export or "
        "OUTPUT_DIR/ctranslate2)"
    )
    flags.add(parser, {"--export_dir=DIR": help_text})
    help_text = (
        "saved_model for TensorFlow Serving, or ctranslate2, which requires "
        "t2t-lite[ctranslate2]"
    )
    formats = ("saved_model", "ctranslate2")
    flags.add_choice(parser, "format", help_text, *formats, default=formats[0])
    runs.add_quantization(parser, "--format=ctranslate2")
    help_text = (
        "number of newest versions to keep after the export (default: all)"
    )
    flags.add(parser, {"--keep=N": help_text}, integer(1))
    group = parser.add_argument_group("Options of --format=saved_model")
    switches = {
        "--attention": "add the signature 'attention' with the weights of all "
        "heads, for the web page",
        "--noverify": "skip the verification of the results in a process "
        "without t2t-lite, which takes half of the time",
    }
    flags.add(group, switches)
    help_text = (
        "type of the stored weights; bfloat16 takes half the space (default: "
        "float32)"
    )
    flags.add_choice(group, "precision", help_text, "float32", "bfloat16")
    limits = {
        "--max_length=N": "number of tokens to which texts are truncated, EOS "
        "included (default and maximum: the run's max_length)",
    }
    flags.add(group, limits, integer(1))
    help_text = (
        "number of text lengths in the warm-up requests for each signature; 0: "
        f"no warm-up (default: {_WARMUP})"
    )
    # TensorFlow Serving accepts 1000 requests, for up to 4 signatures.
    flags.add(group, {"--warmup=N": help_text}, integer(0, 250))
    parser.set_defaults(**dict.fromkeys(_SERVING))
    flags.add_search_flags(parser, batches=False)


def export(args: argparse.Namespace) -> None:
    """Write the export, print its folder and remove old versions."""
    flags.check_together(args, (), {"quantization": "format=ctranslate2"})
    quantization = args.quantization or runs.DEFAULT_QUANTIZATION
    given = {name: getattr(args, name) for name in _SERVING}
    given = {name: value for name, value in given.items() if value is not None}
    if given and args.format != "saved_model":
        raise UsageError(
            f"--{next(iter(given))} requires --format=saved_model; got "
            f"--format={args.format}."
        )
    # Leave GPU memory to the process that verifies the export.
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
