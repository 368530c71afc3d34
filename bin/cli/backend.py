"""The flags that choose an engine, and translators in it."""

import argparse
from typing import TYPE_CHECKING

from t2t_lite.bin.cli import flags, runs
from t2t_lite.errors import UsageError
from t2t_lite.interop.quantization import QUANTIZATIONS, Quantization

if TYPE_CHECKING:
    from t2t_lite.decoding.stream import Replica
    from t2t_lite.training.run import Run

# The flags of any command that CTranslate2 does not support.
_TENSORFLOW_ONLY = ("replicas", "jit", "token_scores", "alignment")


def add_flags(parser: flags.Parser) -> None:
    """Add `--backend`, `--quantization` and `--jit`."""
    group = parser.add_argument_group("the engine")
    group.add_argument(
        "--backend",
        choices=["tensorflow", "ctranslate2"],
        default="tensorflow",
        help="what runs the model; ctranslate2 needs t2t-lite[ctranslate2]",
    )
    add_quantization(group, "--backend=ctranslate2")
    jit = (
        "compile searches by XLA; each new batch shape takes seconds, so this "
        "pays off for single lines"
    )
    flags.add(group, {"--jit": jit})


def add_quantization(parser: flags.Flags, condition: str) -> None:
    """Add `--quantization`, which requires another flag."""
    parser.add_argument(
        "--quantization",
        choices=QUANTIZATIONS,
        metavar="TYPE",
        help=f"with {condition}, the type of the weights: "
        f"{', '.join(QUANTIZATIONS)} (default: {QUANTIZATIONS[0]})",
    )


def quantization(args: argparse.Namespace, flag: str) -> Quantization:
    """Return the value of `--quantization`.

    Raises:
      UsageError: it is given without the flag that it requires.
    """
    if args.quantization and getattr(args, flag) != "ctranslate2":
        raise UsageError(
            f"--quantization requires --{flag}=ctranslate2; got "
            f"--{flag}={getattr(args, flag)}."
        )
    return args.quantization or QUANTIZATIONS[0]


def check(args: argparse.Namespace) -> None:
    """Raise UsageError for flags that the backend does not support."""
    quantization(args, "backend")
    for name in _TENSORFLOW_ONLY if args.backend != "tensorflow" else ():
        if getattr(args, name, None):
            raise UsageError(
                f"--{name} requires --backend=tensorflow; got "
                f"--backend={args.backend}."
            )


def make_replicas(run: "Run", args: argparse.Namespace) -> "list[Replica]":
    """Return replicas in TensorFlow, or one in another engine.

    Raises:
      UsageError: as `runs.make_replicas`, or the engine cannot run the model.
      T2TLiteError: the engine is not installed.
    """
    if args.backend == "tensorflow":
        return runs.make_replicas(run, args)
    from t2t_lite.decoding.stream import Replica
    from t2t_lite.interop.ctranslate2 import CTranslate2Translator

    engine = CTranslate2Translator.convert(
        runs.make_translator(run, args),
        quantization(args, "backend"),
        searches=args.replicas or 1,
    )
    return [Replica(engine)]
