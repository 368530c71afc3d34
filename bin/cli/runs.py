"""Opening of the run and the translators that the flags select."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from t2t_lite import plugins, registry
from t2t_lite.bin.cli import command, flags
from t2t_lite.decoding.search.settings import SearchSettings
from t2t_lite.errors import UsageError
from t2t_lite.hparam import HParams
from t2t_lite.interop.quantization import QUANTIZATIONS
from t2t_lite.registry import REVERSED_SUFFIX
from t2t_lite.tf_setup import start_tensorflow
from t2t_lite.training.config import problem_options, read_config
from t2t_lite.training.options import default_output_dir
from t2t_lite.validators import one_of

if TYPE_CHECKING:
    from t2t_lite.decoding.stream import Replica
    from t2t_lite.decoding.translator import Translator
    from t2t_lite.training.checkpoints import Checkpoint
    from t2t_lite.training.run import Run

DEFAULT_QUANTIZATION = QUANTIZATIONS[0]
# Flags that require a backend, in all commands.
REQUIRED = {
    "quantization": "backend=ctranslate2",
    **dict.fromkeys(
        ("replicas", "jit", "token_scores", "alignment"), "backend=tensorflow"
    ),
}


def find_run(args: argparse.Namespace) -> tuple[Path, dict[str, Any]]:
    """Return the folder and the config of the run that the flags select.

    The folder is `--output_dir`, or the default of `--problem` and `--hparams`.
    """
    output_dir = flags.folder(args.output_dir)
    if not output_dir:
        if not (args.problem and args.hparams):
            raise UsageError(
                "--output_dir is required, or --problem and --hparams for the "
                "default folder."
            )
        output_dir = default_output_dir(args.problem, args.hparams)
        if not output_dir.exists():
            plugins.load_plugins(args.usr_dir)
            registry.problem(args.problem)  # raises an error for unknown names
    config = read_config(output_dir)
    # Text files have a name of their own.
    base_name = config["problem"].removesuffix(REVERSED_SUFFIX)
    suffix = config["problem"][len(base_name) :]
    name = problem_options(config).get("name", base_name) + suffix
    for flag, accepted in {
        "problem": (name, config["problem"]),
        "hparams": (config.get("hparams_set"),),
    }.items():
        if getattr(args, flag) not in (None, *accepted):
            raise UsageError(
                f"--{flag}={getattr(args, flag)} conflicts with {output_dir}, "
                f"which was trained with --{flag}={accepted[0]}."
            )
    return output_dir, config


def open_run(
    args: argparse.Namespace, *, to_decode: bool = True, to_export: bool = False
) -> "Run":
    """Start TensorFlow and return the `Run` of `find_run`.

    The caller must not change the weights of its models. With `to_export` the
    graphs are for other processes.
    """
    output_dir, config = find_run(args)
    if "sample" in args:  # raises errors before TensorFlow is imported
        SearchSettings.from_options(flags.given_settings(args, SearchSettings))
    # In float32 frozen weights save too little time for the memory of a copy.
    hparams = HParams.from_dict(config["hparams"])
    frozen = hparams.precision == "bfloat16" and not to_export
    start_tensorflow(args.verbose, frozen_weights=frozen)
    if "replicas" in args:
        from t2t_lite.decoding.stream import configure_cpu_threads

        by_line = getattr(args, "interactive", False)
        size = hparams.hidden_size if by_line else None
        args.replicas = configure_cpu_threads(args.replicas, size)
    from t2t_lite.training.run import Run

    return Run.open(output_dir, args.usr_dir, to_decode=to_decode)


def make_translator(
    run: "Run", args: argparse.Namespace, log: Any = command.note
) -> "tuple[Translator, list[Checkpoint]]":
    """Return the translator that the flags select, and its checkpoints.

    `log` is called with the names of the checkpoints.
    """
    members = flags.ensemble_members(args)
    model, weights = run.load_ensemble(args.checkpoint, members)
    names = ", ".join(f"{each} ({each.path})" for each in weights)
    log(f"Weights: {names}.")
    settings = flags.given_settings(args, SearchSettings)
    jit = getattr(args, "jit", False)
    by_line = getattr(args, "interactive", False)
    if by_line:
        jit = jit or None  # in the background
    return run.translator(model, jit, frozen=not by_line, **settings), weights


def add_engine_flags(parser: argparse.ArgumentParser) -> None:
    """Add `--backend`, `--quantization` and `--jit`."""
    group = parser.add_argument_group("Devices")
    about = "library for decoding; ctranslate2 requires t2t-lite[ctranslate2]"
    table = {"--backend=tensorflow|ctranslate2": about}
    flags.add(group, table, default="tensorflow")
    add_quantization(group, "--backend=ctranslate2")
    about = "compile decoding with XLA; each new batch shape takes seconds"
    flags.add(group, {"--jit": about})


def add_quantization(parser: Any, condition: str) -> None:
    """Add `--quantization`, which requires another flag."""
    about = (
        f"with {condition}, type of the weights: {', '.join(QUANTIZATIONS)} "
        f"(default: {DEFAULT_QUANTIZATION})"
    )
    flags.add(parser, {"--quantization=TYPE": about}, one_of(*QUANTIZATIONS))


def make_replicas(run: "Run", args: argparse.Namespace) -> "list[Replica]":
    """Return the translators that the flags select, one per device."""
    from t2t_lite.decoding import stream

    if getattr(args, "backend", "tensorflow") != "tensorflow":
        from t2t_lite.interop.ctranslate2 import CTranslate2Translator

        translator, _ = make_translator(run, args)
        engine = CTranslate2Translator.convert(
            translator,
            args.quantization or DEFAULT_QUANTIZATION,
            searches=args.replicas or 1,
        )
        return [stream.Replica(engine)]
    messages: list[str] = []
    devices = stream.choose_devices(args.replicas)
    translators = stream.build_per_device(
        devices, lambda: make_translator(run, args, messages.append)[0]
    )
    command.note(messages[0])
    return [stream.Replica(translators[each], each) for each in devices]
