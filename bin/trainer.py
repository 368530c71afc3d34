"""Trains a problem with an hparams set, from corpus to checkpoints.

The same command again goes on where it stopped.
"""

import argparse
import inspect
import shlex
import signal
from typing import TYPE_CHECKING

from t2t_lite import plugins, recipe, registry
from t2t_lite.bin.cli import command, flags, own_text
from t2t_lite.errors import UsageError
from t2t_lite.training.config import CONFIG, read_config
from t2t_lite.training.options import TrainingOptions

if TYPE_CHECKING:
    from t2t_lite.training.run import Run

# The parameters of `t2t_lite.train`; its options are `TrainingOptions`.
_PARAMETERS = dict(inspect.signature(recipe.train).parameters)
del _PARAMETERS["options"]


_LOOP = (
    *("train_steps", "eval_steps_every", "save_minutes", "max_minutes"),
    *("stall_minutes", "log_steps", "stop_after", "stop_on"),
    *("deterministic", "check_numerics"),
)
_CHECKPOINTS = (
    *("save_steps", "keep_checkpoints", "keep_best", "save_retries"),
    *("strict_checkpoints", "best_metric"),
)
_DEVICES = ("jit", "recompute", "micro_batches", "replicas")


def make_parser() -> flags.Parser:
    """Return the parser of `t2t-lite-trainer`."""
    parser = flags.Parser("t2t-lite-trainer", __doc__)
    parser.epilog = (
        "example: t2t-lite-trainer --problem=spellout_ende "
        "--hparams=transformer_quickstart"
    )
    group = parser.add_argument_group("what to train")
    told = "t2t-lite-registry lists them"
    flags.add(group, {"--problem=NAME": told, "--hparams=SET": told})
    flags.add_override(group)
    flags.add_usr_dir(group)
    told = "print every hparam with its value and train nothing"
    flags.add(group, {"--print_hparams": told})
    group = parser.add_argument_group("where things are")
    flags.add_corpus_flags(group)
    told = f"the run (default: {recipe.RUNS_DIR}/PROBLEM/SET)"
    flags.add(group, {"--output_dir=DIR": told})
    flags.add_text_flags(parser)
    group = parser.add_argument_group("what it begins with")
    start = {
        "--init_from=RUN": "a run, or a checkpoint of one, with whose weights "
        "a new run begins",
        "--init_vocabulary=same|map": "the vocabulary of that run must be the "
        "same, or the pieces that both have are taken over",
        "--freeze=PATTERN[,PATTERN]": "what does not train: encoder, decoder, "
        "embeddings, or patterns such as encoder_layer_0/*",
    }
    flags.add(group, start)
    group = parser.add_argument_group("the training")
    flags.add_settings(group, TrainingOptions, _LOOP)
    flags.add_seed(group)
    group = parser.add_argument_group("its checkpoints")
    flags.add_settings(group, TrainingOptions, _CHECKPOINTS)
    group = parser.add_argument_group("its devices")
    flags.add_settings(group, TrainingOptions, _DEVICES)
    told = (
        "sustained TFLOP/s of one device, for a training cost as in the "
        "paper's table 2 (default: the paper's, on a K80, K40, M40 or P100)"
    )
    flags.add(group, {"--sustained_tflops=X": told}, flags.number(0.001))
    group = parser.add_argument_group("instead of training")
    told = (
        "check flags, data and model, measure one pass over the largest batch, "
        "save nothing"
    )
    flags.add(group, {"--dry_run": told})
    _add_cluster_flags(parser.add_argument_group("several machines"))
    parser.set_defaults(
        **{
            name: parameter.default
            for name, parameter in _PARAMETERS.items()
            if parameter.default not in (parameter.empty, None)
        }
    )
    return parser


def _add_cluster_flags(group: argparse._ArgumentGroup) -> None:
    told = {
        "--workers=HOST:PORT,...": "the processes that train together, the "
        "same list on all; the first is the chief (default: TF_CONFIG or "
        "SLURM's variables, if they are set)",
    }
    flags.add(group, told)
    told = {"--worker=N": "index of this process among them, from 0"}
    flags.add(group, told, flags.at_least(0))
    told = {"--cluster_timeout=S": "seconds to wait for the other workers"}
    flags.add(group, told, flags.number(1))


def train(args: argparse.Namespace) -> None:
    """Trains as the flags say, or says what it would train."""
    # Before training there is nothing to save; by default it ends a process.
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    if args.print_hparams:
        flags.require(args, "hparams")
        plugins.load_plugins(args.usr_dir)
        hparams = registry.hparams(args.hparams)
        print(hparams.override(args.hparams_override))
        return
    folder = recipe.absolute(args.output_dir)
    if folder and (folder / CONFIG).is_file():  # it knows what it learns
        args.problem = args.problem or read_config(folder)["problem"]
    elif folder and not (args.problem or args.hparams):
        raise UsageError(
            f"There is no run in {folder} to go on with: check --output_dir, "
            "or give --problem and --hparams to start one there."
        )
    else:
        flags.require(args, "problem", "hparams")
    plugins.load_plugins(args.usr_dir)
    given = {name: getattr(args, name) for name in _PARAMETERS}
    given["problem_options"] = own_text.given_options(args)
    options = flags.given_settings(args, TrainingOptions)
    trained = recipe.train(**given, **options)
    from t2t_lite.training.run import Run

    if isinstance(trained, Run):
        _print_reached(trained)
        _print_next(trained)
    else:
        print(trained)


def _print_reached(run: "Run") -> None:
    reached = run.reached
    print(f"output_dir: {run.output_dir}")
    print(f"step: {reached.step}")
    if reached.best:
        metric, value = reached.best["metric"], reached.best["value"]
        if metric.startswith("negative_"):
            metric, value = metric.removeprefix("negative_"), -value
        print(f"best: {metric} {value:.4g} at step {reached.best['step']}")
    if reached.average:
        print(f"average: {reached.average}")
    cost = run.config["training_cost"]
    print(
        f"training_cost: {cost['flops_counted']:.3g} FLOPs counted from the "
        f"model; {cost['seconds']:.0f} s on {cost['devices']} device(s)"
    )
    if cost["flops_as_table_2"]:
        rate = cost["sustained_flops_a_second"] / 1e12
        print(
            f"training_cost_as_table_2: {cost['flops_as_table_2']:.3g} FLOPs "
            f"(time x devices x {rate:g} TFLOP/s)"
        )


def _print_next(run: "Run") -> None:
    """The commands that people try next."""
    folder = f"--output_dir={shlex.quote(str(run.output_dir))}"
    if run.config["usr_dir"]:
        folder += f" --usr_dir={shlex.quote(run.config['usr_dir'])}"
    command.note(
        "Next:\n"
        f"  t2t-lite-decoder {folder} --interactive\n"
        f"  t2t-lite-evaluator {folder} --split=test\n"
        f"  t2t-lite-exporter {folder}"
    )


def main(argv: list[str] | None = None) -> int:
    """Runs `t2t-lite-trainer`; returns its exit code."""
    return command.run(make_parser(), train, argv)


if __name__ == "__main__":
    raise SystemExit(main())
