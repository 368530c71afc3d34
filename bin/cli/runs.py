"""Opens the run that the flags name, for commands that use a trained model."""

import argparse
import pathlib
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from t2t_lite import plugins, registry
from t2t_lite.bin.cli import command, flags
from t2t_lite.decoding.search.settings import SearchSettings
from t2t_lite.errors import UsageError
from t2t_lite.hparam import HParams
from t2t_lite.registry import REVERSED_SUFFIX
from t2t_lite.runtime import start_tensorflow
from t2t_lite.training.config import problem_options, read_config

if TYPE_CHECKING:
    from t2t_lite.decoding.stream import Replica
    from t2t_lite.decoding.translator import Translator
    from t2t_lite.training.checkpoints import Checkpoint
    from t2t_lite.training.run import Run


def find_run(args: argparse.Namespace) -> tuple[pathlib.Path, dict[str, Any]]:
    """The folder and the config of the run that the flags name.

    That is `--output_dir`, or the default one of `--problem` and `--hparams`.

    Raises:
      UsageError: the flags name no run, or not the problem that is there.
      T2TLiteError: there is no run, or it is damaged.
    """
    output_dir = _output_dir(args)
    config = read_config(output_dir)
    name = _name_of_problem(config)
    if args.problem not in (None, name, config["problem"]):
        raise UsageError(
            f"--problem={args.problem} is not what {output_dir} was trained "
            f"on, which is {name}."
        )
    hparams_set = config.get("hparams_set")
    if args.hparams not in (None, hparams_set):
        raise UsageError(
            f"--hparams={args.hparams} is not what {output_dir} was trained "
            f"with, which is {hparams_set or 'no set with a name'}."
        )
    return output_dir, config


def _output_dir(args: argparse.Namespace) -> pathlib.Path:
    """Return the folder; refuse tensor2tensor's name of a problem."""
    output_dir = flags.output_dir(args)
    if not (args.output_dir or output_dir.exists()):
        plugins.load_plugins()
        if registry.name_here(args.problem) != args.problem:
            registry.problem(args.problem)  # raises, with the name here
    return output_dir


def _name_of_problem(config: Mapping[str, Any]) -> str:
    """As in reports: own text may have chosen a name."""
    registered = config["problem"]
    base_name = registered.removesuffix(REVERSED_SUFFIX)
    chosen = problem_options(config).get("name", base_name)
    return f"{chosen}{registered[len(base_name) :]}"


def open_run(
    args: argparse.Namespace,
    *,
    to_decode: bool = True,
    to_export: bool = False,
) -> "Run":
    """The `Run` that `find_run` finds; imports TensorFlow.

    The weights of its models must not be changed.

    Args:
      args: of the command.
      to_decode: see `Run.open`.
      to_export: its graphs are for other processes.

    Raises:
      UsageError: as `find_run`.
      T2TLiteError: as `find_run`.
    """
    output_dir, config = find_run(args)
    if "sample" in args:  # what is wrong by itself, before anything is loaded
        SearchSettings.from_options(flags.given_settings(args, SearchSettings))
    # In float32 fixed weights gain too little for the memory of more copies.
    hparams = HParams.from_dict(config["hparams"])
    fixed = hparams.precision == "bfloat16" and not to_export
    start_tensorflow(args.verbose, fixed_weights=fixed)
    if "replicas" in args:
        from t2t_lite.decoding.stream import share_processor

        by_line = getattr(args, "interactive", False)
        args.replicas = share_processor(
            args.replicas, hparams.hidden_size if by_line else None
        )
    from t2t_lite.training.run import Run

    return Run.open(output_dir, args.usr_dir, to_decode=to_decode)


def make_translator(
    run: "Run",
    args: argparse.Namespace,
    say: Callable[[str], None] = command.note,
) -> "Translator":
    """A translator with the weights and the search that the flags ask for.

    Says which weights it took.
    """
    return translator_and_weights(run, args, say)[0]


def translator_and_weights(
    run: "Run",
    args: argparse.Namespace,
    say: Callable[[str], None] = command.note,
) -> "tuple[Translator, list[Checkpoint]]":
    """As `make_translator`, and the checkpoints that its weights are from."""
    model, found = run.load_ensemble(args.checkpoint, flags.members(args))
    names = ", ".join(f"{each} ({each.path})" for each in found)
    say(f"Weights: {names}.")
    jit = getattr(args, "jit", False)
    return run.translator(
        model, jit, **flags.given_settings(args, SearchSettings)
    ), found


def make_replicas(run: "Run", args: argparse.Namespace) -> "list[Replica]":
    """As many such translators as the flags ask for, on their devices.

    Raises:
      UsageError: there are too few GPUs.
    """
    from t2t_lite.decoding.stream import Replica, choose_devices, make_on

    said: list[str] = []
    devices = choose_devices(args.replicas)
    made = make_on(devices, lambda: make_translator(run, args, said.append))
    command.note(said[0])
    return [Replica(made[device], device) for device in devices]
