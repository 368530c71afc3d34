"""Makes a run of a checkpoint of tensor2tensor.

The run decodes, trains on and is exported like any other, with the original's
weights, hparams and vocabulary.
"""

import argparse
import pathlib

from t2t_lite import plugins, recipe, registry
from t2t_lite.bin.cli import command, flags, habits
from t2t_lite.errors import UsageError
from t2t_lite.problem import Problem
from t2t_lite.problem.own_text import OwnText
from t2t_lite.runtime import start_tensorflow


def make_parser() -> flags.Parser:
    """The flags of `t2t-lite-import`."""
    parser = flags.Parser("t2t-lite-import", __doc__)
    parser.epilog = (
        "example: t2t-lite-import --t2t_dir=t2t_train/base "
        "--vocabulary=vocab.translate_ende_wmt32k.32768.subwords "
        "--output_dir=runs/base"
    )
    told = {
        "--t2t_dir=DIR": "the folder that tensor2tensor trained in, or a "
        "checkpoint in it: DIR/model.ckpt-250000",
        "--vocabulary=FILE[,FILE]": "its subword file, or that of the source "
        "and that of the target",
        "--problem=NAME": "what it translates (default: what its flags.txt "
        "says, else own text)",
        "--t2t_hparams=SET|FILE": "a set of tensor2tensor or an hparams.json "
        "(default: what its folder says)",
        "--output_dir=DIR": "the run, a new folder",
        "--data_dir=DIR": "data of the problem with this vocabulary, to train "
        "on with (default: the first training says)",
    }
    flags.add(parser, told)
    space = "id of the target space (default: the one that was trained, or 0)"
    flags.add(parser, {"--target_space=N": space}, flags.at_least(0))
    weights = "take over the model, and not how it was trained"
    flags.add(parser, {"--weights_only": weights})
    told = {
        "--verify=FILE.npz": "compare logits that the original computed: "
        "inputs, targets and logits",
        "--t2t_inputs=FILE": "texts that the original translated, one a line",
        "--t2t_decodes=FILE": "its translations; nine in ten must be equal",
    }
    flags.add(parser, told)
    flags.add_seed(parser)
    flags.add_usr_dir(parser)
    return parser


def import_checkpoint(args: argparse.Namespace) -> None:
    """Imports, says what was taken over, and prints the folder of the run."""
    flags.require(args, "t2t_dir", "vocabulary", "output_dir")
    if bool(args.t2t_inputs) != bool(args.t2t_decodes):
        raise UsageError("--t2t_inputs and --t2t_decodes go together.")
    plugins.load_plugins(args.usr_dir)
    command.note_any(habits.rename_problem(args))
    from t2t_lite.interop.tensor2tensor.train_dir import read_train_dir

    train_dir = read_train_dir(flags.folder(args.t2t_dir), args.t2t_hparams)
    files = [flags.folder(name) for name in args.vocabulary.split(",")]
    name = args.problem or train_dir.flags.get("problem")
    problem = _problem(name, args, files)
    start_tensorflow(args.verbose)
    from t2t_lite.interop.tensor2tensor import importing, verify

    checks: list[importing.Check] = []
    if args.verify:
        checks.append(verify.SameLogits(flags.folder(args.verify)))
    if args.t2t_decodes:
        sources, decodes = map(
            flags.folder, (args.t2t_inputs, args.t2t_decodes)
        )
        checks.append(verify.SameDecodes(sources, decodes))
    made = importing.import_run(
        importing.Source(
            train_dir, files, args.target_space, args.weights_only
        ),
        flags.folder(args.output_dir),
        problem,
        seed=args.seed,
        data_dir=flags.folder(args.data_dir),
        usr_dir=args.usr_dir,
        checks=checks,
    )
    for sentence in made.told:
        command.note(f"{sentence[:1].upper()}{sentence[1:]}.")
    if made.left_out:
        command.note(f"Left out: {', '.join(made.left_out)}.")
    print(made.run.output_dir)


def _problem(
    name: str | None, args: argparse.Namespace, files: list[pathlib.Path]
) -> Problem:
    """The problem of that name; own text, if only the original knows it."""
    known = registry.problem_names()
    base_name = (name or "").removesuffix(registry.REVERSED_SUFFIX)
    if args.problem or base_name in known:
        problem = registry.problem(name or "")
        if not isinstance(problem, OwnText):
            return problem
        base_name = ""
    own_text = registry.problem("text")
    options = {"name": base_name} if base_name else {}
    if args.data_dir:
        return recipe.choose_problem(own_text, options, args.data_dir)[0]
    if len(files) == 1:
        return own_text.with_options({**options, "vocabulary": str(files[0])})
    return own_text.with_options({**options, "shared_vocabulary": False})


def main(argv: list[str] | None = None) -> int:
    """Runs `t2t-lite-import`; returns its exit code."""
    return command.run(make_parser(), import_checkpoint, argv)


if __name__ == "__main__":
    raise SystemExit(main())
