"""`t2t-lite-datagen --adopt`: use shards of tensor2tensor."""

import argparse
import json
import shlex

from t2t_lite import recipe, registry
from t2t_lite.bin.cli import command, flags
from t2t_lite.errors import UsageError
from t2t_lite.problem.own_text_options import OPTIONS
from t2t_lite.runtime import start_tensorflow

_CONFLICTS = (
    *("inspect", "overwrite", "raw_dir", "tfds_dir", "processes", "runner"),
    *("problem_options", *(option.name for option in OPTIONS)),
)


def adopt(args: argparse.Namespace) -> None:
    """Adopt the shards in `--adopt` and print their counts."""
    flags.require(args, "vocabulary")
    for flag in _CONFLICTS:
        if flag != "vocabulary" and getattr(args, flag) not in (
            None,
            False,
            "",
        ):
            raise UsageError(f"--adopt conflicts with --{flag}: remove one.")
    if args.data_dir not in (recipe.DATA_DIR, args.adopt):
        raise UsageError(
            "--adopt is the folder of the data: leave --data_dir out; got "
            f"{args.data_dir}."
        )
    folder = flags.folder(args.adopt)
    if not folder.is_dir():
        raise UsageError(f"--adopt must be a folder; got {folder}.")
    vocabulary = [flags.folder(name) for name in args.vocabulary.split(",")]
    name = args.problem.removesuffix(registry.REVERSED_SUFFIX)
    if name in registry.problem_names():
        problem = registry.problem(name)
    else:
        files = ",".join(path.name for path in vocabulary)
        problem = registry.problem("text", {"name": name, "adopted": files})
    start_tensorflow(args.verbose)
    from t2t_lite.interop.tensor2tensor import shards

    manifest = shards.adopt(folder, problem, vocabulary)
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
