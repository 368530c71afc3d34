"""Convert a tensor2tensor or Hugging Face model to a run.

The run has the weights, hparams and vocabulary of the original, and supports
decoding, training and export.
"""

import argparse
from pathlib import Path
from typing import Any

from t2t_lite import plugins, registry
from t2t_lite.bin.cli import command, flags
from t2t_lite.bin.cli.command import Command
from t2t_lite.errors import UsageError
from t2t_lite.hparam import HParams
from t2t_lite.interop.tensor2tensor.hparams import (
    TrainDir,
    hparams_of,
    read_train_dir,
    read_values,
)
from t2t_lite.problem import Problem
from t2t_lite.problem.text_files import TextFiles
from t2t_lite.tf_setup import start_tensorflow
from t2t_lite.training.options import TrainingOptions
from t2t_lite.training.problem_choice import choose_problem
from t2t_lite.validators import integer


def _add_flags(parser: flags.Parser) -> None:
    table = {
        "--huggingface=DIR|NAME": "folder of a MarianMT model, or its name on "
        "the Hugging Face Hub such as Helsinki-NLP/opus-mt-en-de, instead of "
        "--t2t_dir; requires t2t-lite[huggingface]",
        "--t2t_dir=DIR": "folder of tensor2tensor's trainer, or a checkpoint "
        "in it such as DIR/model.ckpt-250000",
        "--vocabulary=FILE[,FILE]": "subword file, or subword files of source "
        "and target",
        "--problem=NAME": "problem (default: from flags.txt in the folder, "
        "else text)",
        "--t2t_hparams=FILE|SET": "hparams.json, or hparams set with the "
        "values of tensor2tensor, such as transformer_base_v3 (default: "
        "hparams.json in the folder)",
        "--output_dir=DIR": "new folder of the run",
        "--data_dir=DIR": "data of the problem with this vocabulary, for "
        "training (default: chosen by the first training run)",
        "--weights_only": "import the model without training hparams and "
        "optimizer state",
        "--verify=FILE.npz": "arrays inputs, targets and logits of the "
        "original, to compare logits",
    }
    flags.add(parser, table)
    help_text = "target space, 0 to 31 (default: the trained one, or 0)"
    flags.add(parser, {"--target_space=N": help_text}, integer(0))
    help_text = "seed of later training"
    flags.add(parser, {"--seed=N": help_text}, integer(0, 2**63 - 1), 1)
    flags.add_settings(parser, TrainingOptions, ["usr_dir"])


def import_checkpoint(args: argparse.Namespace) -> None:
    """Import the model and print the folder of the run."""
    if args.huggingface:
        _import_huggingface(args)
        return
    flags.require(args, "t2t_dir", "vocabulary", "output_dir")
    plugins.load_plugins(args.usr_dir)
    train_dir = read_train_dir(flags.folder(args.t2t_dir))
    hparams = _hparams(train_dir, args)
    vocabulary = [flags.folder(name) for name in args.vocabulary.split(",")]
    problem = _problem(train_dir, args, vocabulary)
    start_tensorflow(args.verbose)
    from t2t_lite.interop.tensor2tensor.importing import import_run

    run, remarks = import_run(
        train_dir,
        hparams,
        vocabulary,
        flags.folder(args.output_dir),
        problem,
        seed=args.seed,
        target_space=args.target_space,
        weights_only=args.weights_only,
        verify=flags.folder(args.verify),
        data_dir=flags.folder(args.data_dir),
        usr_dir=args.usr_dir,
    )
    for remark in remarks:
        command.note(f"{remark[:1].upper()}{remark[1:]}.")
    print(run.output_dir)


def _import_huggingface(args: argparse.Namespace) -> None:
    supported = {"huggingface", "output_dir", "seed", "verbose"}
    others = vars(args).keys() - supported
    flags.check_together(args, [("huggingface", *sorted(others))], {})
    flags.require(args, "output_dir")
    plugins.load_plugins(None)
    start_tensorflow(args.verbose)
    from t2t_lite.interop.huggingface import import_huggingface

    output_dir = flags.folder(args.output_dir)
    run = import_huggingface(args.huggingface, output_dir, args.seed)
    print(run.output_dir)


def _hparams(train_dir: TrainDir, args: argparse.Namespace) -> HParams:
    name = args.t2t_hparams
    if name and not name.endswith(".json"):
        hparams = registry.hparams(name)
        if hparams.position_encoding == "interleaved":
            raise UsageError(
                f"--t2t_hparams={name} has the values of the paper. Use a set "
                "with the values of tensor2tensor, transformer_base_v3 or "
                "transformer_big_single_gpu."
            )
        return hparams
    stored = train_dir.checkpoint.with_name("hparams.json")
    values = read_values(flags.folder(name) or stored)
    return hparams_of(values, train_dir.flags, weights_only=args.weights_only)


def _problem(
    train_dir: TrainDir, args: argparse.Namespace, vocabulary: list[Path]
) -> Problem:
    name = args.problem or train_dir.flags.get("problem", "")
    base_name = name.removesuffix(registry.REVERSED_SUFFIX)
    options: dict[str, Any] = {}
    if not args.problem and base_name not in registry.PROBLEMS:
        options = {"name": base_name} if base_name else {}
        name = f"text{name[len(base_name) :]}"
    problem = registry.problem(name)
    if not isinstance(problem, TextFiles):
        return problem
    if args.data_dir:
        return choose_problem(problem, options, flags.folder(args.data_dir))[0]
    if len(vocabulary) == 1:
        options["vocabulary"] = str(vocabulary[0])
    else:
        options["shared_vocabulary"] = False
    return problem.with_options(options)


main = Command("t2t-lite-import", __doc__, _add_flags, import_checkpoint)
