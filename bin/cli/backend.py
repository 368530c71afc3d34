"""The flags that choose another engine, and translators in it."""

import argparse
from typing import TYPE_CHECKING

from t2t_lite.bin.cli import flags, runs
from t2t_lite.errors import UsageError
from t2t_lite.interop.quantization import QUANTIZATIONS, Quantization

if TYPE_CHECKING:
    from t2t_lite.decoding.streams.replicas import Replica
    from t2t_lite.training.run import Run

# The flags of any command that CTranslate2 cannot follow.
_NOT_THERE = ("replicas", "jit", "token_scores", "alignment")


def add_flags(parser: flags.Parser) -> None:
    """Adds `--backend`, `--quantization` and `--jit`."""
    group = parser.add_argument_group("the engine")
    group.add_argument(
        "--backend",
        choices=["tensorflow", "ctranslate2"],
        default="tensorflow",
        help="what runs the model; ctranslate2 needs t2t-lite[ctranslate2]",
    )
    add_quantization(group, "--backend=ctranslate2")
    group.add_argument(
        "--jit",
        action="store_true",
        help="compile the search by XLA, for seconds and anew for each size of "
        "batches; pays for single lines",
    )


def add_quantization(parser: flags.Flags, condition: str) -> None:
    """`--quantization`, which goes with another flag only."""
    parser.add_argument(
        "--quantization",
        choices=QUANTIZATIONS,
        metavar="TYPE",
        help=f"with {condition}, the type of the weights: "
        f"{', '.join(QUANTIZATIONS)} (default: {QUANTIZATIONS[0]})",
    )


def quantization(args: argparse.Namespace, flag: str) -> Quantization:
    """The value of `--quantization`.

    Raises:
      UsageError: it is given, but not the flag that it goes with.
    """
    if args.quantization and getattr(args, flag) != "ctranslate2":
        raise UsageError(
            f"--quantization goes with --{flag}=ctranslate2 only; got "
            f"--{flag}={getattr(args, flag)}."
        )
    return args.quantization or QUANTIZATIONS[0]


def check(args: argparse.Namespace) -> None:
    """Refuses what the backend cannot do."""
    quantization(args, "backend")
    if args.backend == "tensorflow":
        return
    asked = [f"--{name}" for name in _NOT_THERE if getattr(args, name, None)]
    if asked:
        raise UsageError(
            f"{asked[0]} needs --backend=tensorflow; got "
            f"--backend={args.backend}."
        )


def make_replicas(run: "Run", args: argparse.Namespace) -> "list[Replica]":
    """What translates: replicas in TensorFlow, or one in another engine.

    Raises:
      UsageError: see `runs.make_replicas`, or the engine cannot run the model.
      T2TLiteError: the engine is not installed.
    """
    if args.backend == "tensorflow":
        return runs.make_replicas(run, args)
    from t2t_lite.decoding.streams.replicas import Replica
    from t2t_lite.interop.ctranslate2_translator import CTranslate2Translator

    translator = runs.make_translator(run, args)
    return [
        Replica(
            CTranslate2Translator.convert(
                translator,
                quantization(args, "backend"),
                searches=args.replicas or 1,
            )
        )
    ]
