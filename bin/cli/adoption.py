"""What `t2t-lite-datagen --adopt` does."""

import argparse
import json
import os
import shlex

from t2t_lite import recipe, registry
from t2t_lite.bin.cli import command, flags
from t2t_lite.errors import UsageError
from t2t_lite.problem.own_text_options import OPTIONS
from t2t_lite.runtime import start_tensorflow

_OTHER_WORK = (
    *("inspect", "overwrite", "raw_dir", "tfds_dir", "processes", "runner"),
    "problem_options",
)


def adopt(args: argparse.Namespace) -> None:
    """Adopts the shards in `--adopt`, and prints what they hold."""
    _require_nothing_else(args)
    flags.require(args, "vocabulary")
    name = args.problem.removesuffix(registry.REVERSED_SUFFIX)
    vocabulary = _files(args.vocabulary)
    if name in registry.problem_names():
        problem = registry.problem(name)
    else:
        files = ",".join(map(os.path.basename, vocabulary))
        problem = registry.problem("text", {"name": name, "adopted": files})
    start_tensorflow(args.verbose)
    from t2t_lite.datagen import adoption

    folder = recipe.absolute(args.adopt)
    manifest = adoption.adopt(folder, problem, vocabulary)
    if args.json:
        splits = {
            split: {"examples": record.examples, "records": record.records}
            for split, record in manifest.splits.items()
        }
        print(json.dumps({"problem": name, "splits": splits}))
        return
    for split, record in manifest.splits.items():
        rows = f" in {record.records:,} packed rows" * record.is_packed
        print(f"{split}: {record.examples:,} pairs{rows}")
    which = f"--problem={name}"
    if problem.registered_name != name:
        which = f"--problem=text --name={name}"
    place = shlex.quote(f"--data_dir={folder}")
    command.note(f"Next: t2t-lite-trainer {which} {place} --hparams=SET")


def _require_nothing_else(args: argparse.Namespace) -> None:
    """Refuses flags of the other things that the command does."""
    own = [option.name for option in OPTIONS if option.name != "vocabulary"]
    for flag in (*_OTHER_WORK, *own):
        if getattr(args, flag) not in (None, False, ""):
            raise UsageError(
                f"--adopt takes shards as they are: leave --{flag} out."
            )
    if args.data_dir not in (recipe.DATA_DIR, args.adopt):
        raise UsageError(
            "--adopt names the folder where the data stays: leave --data_dir "
            f"out; got {args.data_dir}."
        )


def _files(vocabulary: str) -> list[str]:
    """One file for both sides, or those of source and target."""
    parts = vocabulary.split(",")
    if len(parts) > 2 or not all(parts):
        raise UsageError(
            "--vocabulary must be FILE or SOURCE,TARGET with --adopt; got "
            f"{vocabulary}."
        )
    return [os.path.expanduser(part) for part in parts]
