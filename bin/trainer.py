"""Trains a problem with an hparams set: data, training, evaluation, saving.

The same command again goes on where it stopped.
"""

import argparse

from t2t_lite.bin.cli import command, flags, own_text


def make_parser() -> flags.Parser:
    """The flags of `t2t-lite-trainer`."""
    parser = flags.Parser("t2t-lite-trainer", __doc__)
    parser.epilog = (
        "example: t2t-lite-trainer --problem=spellout_ende "
        "--hparams=transformer_quickstart"
    )
    _add_what_flags(parser.add_argument_group("what to train"))
    where = parser.add_argument_group("where things are")
    flags.add_corpus_flags(where)
    where.add_argument(
        "--output_dir",
        metavar="DIR",
        help=f"the run (default: {flags.RUNS_DIR}/PROBLEM/SET)",
    )
    flags.add_text_flags(parser)
    _add_loop_flags(parser.add_argument_group("the training"))
    return parser


def _add_what_flags(group):
    group.add_argument(
        "--problem", metavar="NAME", help="see t2t-lite-registry"
    )
    group.add_argument("--hparams", metavar="SET", help="see t2t-lite-registry")
    flags.add_override(group)
    flags.add_usr_dir(group)
    group.add_argument(
        "--print_hparams",
        action="store_true",
        help="print every hparam with its value and train nothing",
    )


def _add_loop_flags(group):
    group.add_argument(
        "--train_steps",
        type=flags.at_least(1),
        metavar="N",
        help="optimizer updates in total (default: the set's)",
    )
    group.add_argument(
        "--eval_steps_every",
        type=flags.at_least(1),
        metavar="N",
        default=1000,
        help="updates between evaluations on the dev split",
    )
    group.add_argument(
        "--save_minutes",
        type=flags.number(0),
        metavar="M",
        default=10,
        help="minutes between checkpoints",
    )
    group.add_argument(
        "--save_steps",
        type=flags.at_least(1),
        metavar="N",
        help="updates between checkpoints, instead of --save_minutes",
    )
    group.add_argument(
        "--keep_checkpoints",
        type=flags.at_least(1),
        metavar="N",
        default=20,
        help="how many of the newest checkpoints to keep; the best one is "
        "always kept",
    )
    flags.add_seed(group)
    group.add_argument(
        "--deterministic",
        action="store_true",
        help="the same result to the bit each time; slower",
    )
    group.add_argument(
        "--replicas",
        type=flags.at_least(1),
        metavar="N",
        help="train on N logical CPU devices (default: all GPUs, else one CPU)",
    )
    group.add_argument(
        "--sustained_tflops",
        type=flags.number(0.001),
        metavar="X",
        help="sustained TFLOP/s of one device, for a training cost as in the "
        "paper's table 2 (default: the paper's, on a K80, K40, M40 or P100)",
    )
    group.add_argument(
        "--dry_run",
        action="store_true",
        help="check flags, data and model, make one update on the largest "
        "batch, save nothing",
    )


def train(args: argparse.Namespace) -> None:
    """Trains as the flags say, or says what it would train."""
    from t2t_lite import plugins, registry
    from t2t_lite.training.config import require_fitting_vocabularies

    if args.print_hparams:
        flags.require(args, "hparams")
    else:
        flags.require(args, "problem", "hparams")
    plugins.load_plugins(args.usr_dir)
    hparams = registry.hparams(args.hparams).override(args.hparams_override)
    if args.print_hparams:
        print(hparams)
        return
    problem, data_dir = own_text.problem_and_data(args)
    require_fitting_vocabularies(problem, hparams)
    _work(args, problem, hparams, data_dir)


def _work(args, problem, hparams, data_dir):
    """Data, then the run, then training."""
    command.start_tensorflow(args.verbose)
    from t2t_lite.data.manifest import Manifest
    from t2t_lite.datagen.generate import Generation
    from t2t_lite.model import costs
    from t2t_lite.training import trainer, updates
    from t2t_lite.training.run import Run

    if args.replicas:
        # Logical devices are made before TensorFlow does anything else.
        updates.choose_strategy(args.replicas)
    data = Generation(
        problem,
        data_dir,
        raw_dir=flags.folder(args.raw_dir),
        tfds_dir=flags.folder(args.tfds_dir),
    )
    if args.dry_run and not Manifest.path(data_dir, problem).exists():
        _print_missing(args, problem, data_dir)
        sizes = problem.directed(*problem.expected_vocab_sizes())
        _dry_run(args, hparams, *sizes)
        return
    run = Run.create(
        flags.output_dir(args, problem.name),
        problem=problem,
        hparams=hparams,
        seed=args.seed,
        data_dir=data_dir,
        manifest=data.run(),
        usr_dir=args.usr_dir,
        hparams_set=args.hparams,
        dry_run=args.dry_run,
    )
    if args.dry_run:
        print(f"data: {run.data.check()}")
        sizes = (run.encoders[n].vocab_size for n in ("inputs", "targets"))
        _dry_run(args, hparams, *sizes)
        return
    command.note(f"Training {problem.name} in {run.output_dir}.")
    outcome = trainer.train(
        run,
        train_steps=args.train_steps,
        eval_steps_every=args.eval_steps_every,
        save_minutes=args.save_minutes,
        save_steps=args.save_steps,
        keep_checkpoints=args.keep_checkpoints,
        replicas=args.replicas,
        deterministic=args.deterministic,
    )
    best = outcome["best"]
    if best:
        outcome["best"] = (
            f"{best['metric']} {best['value']:.4g} at step {best['step']}"
        )
    work = outcome.pop("work")
    _print_outcome({"output_dir": run.output_dir} | outcome)
    sustained = args.sustained_tflops and args.sustained_tflops * 1e12
    cost = costs.training_cost(
        hparams,
        run.encoders["targets"].vocab_size,
        run.data.attended_lengths(),
        work,
        sustained,
    )
    run.record(training_cost=cost)
    _print_cost(cost)


def _print_missing(args, problem, data_dir):
    """Says that there is no data, and what would be made of which files."""
    from t2t_lite.corpus.raw_files import RawFiles

    print(
        f"missing: {data_dir} has no data of {problem.name} yet; the same "
        "command without --dry_run, or t2t-lite-datagen, makes it"
    )
    raw = RawFiles(
        problem.files,
        flags.folder(args.raw_dir),
        tfds_dir=flags.folder(args.tfds_dir),
    )
    for line in problem.tell_sources(raw):
        print(line)


def _dry_run(args, hparams, source_vocab_size, target_vocab_size):
    """One real update on the largest batch, and what follows from it."""
    from t2t_lite.model import costs
    from t2t_lite.model.transformer import Transformer
    from t2t_lite.training import trainer

    sizes = (source_vocab_size, target_vocab_size)
    done = trainer.dry_run(
        lambda: Transformer.from_hparams(hparams, *sizes).build_weights(),
        hparams,
        args.seed,
        args.replicas,
    )
    rows, columns = done["micro_batch"]
    seconds = done["seconds_per_update"]
    steps = args.train_steps or hparams.train_steps
    flops = costs.count_step_flops(hparams, target_vocab_size, columns)
    _print_outcome(
        {
            "parameters": f"{done['parameters']:,}",
            "vocabulary": " and ".join(f"{size:,}" for size in sizes),
            "replicas": done["replicas"],
            "largest batch": f"{hparams.micro_batches} x {rows} sentences of "
            f"{columns} tokens a side",
            "peak memory": f"{done['peak_memory_bytes'] / 2**30:.2f} GiB",
            "seconds per update": f"{seconds:.2f}",
            f"days for {steps:,} updates": f"{seconds * steps / 86400:.2f}",
            "FLOPs per update": f"{flops:.3g}",
            f"FLOPs of {steps:,} updates": f"{flops * steps:.3g}",
            "loss": f"{done['loss']:.3f}",
        }
    )


def _print_cost(cost):
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


def _print_outcome(outcome):
    for key, value in outcome.items():
        if value is not None:
            print(f"{key}: {value}")


def main(argv: list[str] | None = None) -> int:
    """Runs `t2t-lite-trainer`; returns its exit code."""
    return command.run(make_parser(), train, argv)


if __name__ == "__main__":
    raise SystemExit(main())
