"""Export a trained model for serving, as a self-contained folder.

A SavedModel for TensorFlow Serving translates text, with the vocabulary inside.
An export for CTranslate2 translates tokens; the vocabulary is a separate file.
A preset of KerasHub translates text and can be fine-tuned with Keras.
An export for Hugging Face's transformers is a MarianMT model.
"""

import argparse
import os
from typing import Any

from t2t_lite.bin.cli import command, flags, runs
from t2t_lite.bin.cli.command import Command
from t2t_lite.decoding.search.settings import SearchSettings
from t2t_lite.errors import UsageError
from t2t_lite.serving.options import ExportOptions
from t2t_lite.validators import one_of

_FORMATS = ("saved_model", "ctranslate2", "huggingface", "keras_hub")
_WARMUP = 4  # default number of text lengths


def _add_flags(parser: flags.Parser) -> None:
    flags.add_run_flags(parser)
    table = {
        "--export_dir=DIR": "output folder with versions 1, 2, ... (default: "
        "OUTPUT_DIR/export, or OUTPUT_DIR/FORMAT for other formats)",
        "--keep=N": "number of newest versions to keep after the export "
        "(default: all)",
    }
    flags.add(parser, table)
    help_text = (
        "saved_model (TensorFlow Serving), keras_hub (without search options), "
        "ctranslate2 or huggingface; the last two require the t2t-lite extra "
        "of the same name"
    )
    known = one_of(*_FORMATS)
    flags.add(parser, {"--format=NAME": help_text}, known, _FORMATS[0])
    runs.add_quantization(parser, "--format=ctranslate2")
    group = parser.add_argument_group("Options of --format=saved_model")
    flags.add_settings(group, ExportOptions)
    help_text = (
        "load the export in a process without t2t-lite and compare results, "
        "which takes longer than the export"
    )
    flags.add(group, {"--verify": help_text})
    flags.add_search_flags(parser, batches=False)


def export(args: argparse.Namespace) -> None:
    """Write the export, print its folder and remove old versions."""
    flags.check_together(args, (), {"quantization": "format=ctranslate2"})
    quantization = args.quantization or runs.DEFAULT_QUANTIZATION
    given = flags.given_settings(args, ExportOptions)
    serving = [*given, "verify"] if args.verify else [*given]
    kept = {"huggingface": {"beam_size", "alpha"}, "keras_hub": set()}
    if args.format in kept:
        search = flags.given_settings(args, SearchSettings)
        serving += [name for name in search if name not in kept[args.format]]
    if serving and args.format != "saved_model":
        raise UsageError(
            f"--{serving[0]} requires --format=saved_model; got "
            f"--format={args.format}."
        )
    # Leave GPU memory to the process that verifies the export.
    os.environ.setdefault("TF_FORCE_GPU_ALLOW_GROWTH", "true")
    run = runs.open_run(args, to_export=True)
    translator, weights = runs.make_translator(run, args)
    from t2t_lite.serving import export, verify, versions

    name = "export" if args.format == "saved_model" else args.format
    export_dir = flags.folder(args.export_dir) or run.output_dir / name
    origin: Any = {"run": run, "weights": weights}
    if args.format != "saved_model":
        newest = export.export_to_engine(
            translator, export_dir, args.format, quantization, **origin
        )
    else:
        newest = export.export_saved_model(
            translator,
            export_dir,
            ExportOptions(**{"warmup": _WARMUP, **given}),
            verified=args.verify,
            note=command.note,
            **origin,
        )
        if args.verbose:
            ops = ", ".join(verify.check_servable(newest))
            command.note(f"Ops: {ops}.")
    print(newest, flush=True)
    if args.keep:
        for removed in versions.remove_old_versions(newest, args.keep):
            command.note(f"Removed {removed}.")


main = Command("t2t-lite-exporter", __doc__, _add_flags, export)
