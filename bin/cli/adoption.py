"""`t2t-lite-datagen --adopt`: use shards of tensor2tensor."""

import argparse
from typing import TYPE_CHECKING

from t2t_lite import recipe, registry
from t2t_lite.bin.cli import command, flags
from t2t_lite.errors import UsageError
from t2t_lite.problem.own_text_options import OPTIONS
from t2t_lite.runtime import start_tensorflow

if TYPE_CHECKING:
    from t2t_lite.data.manifest import Manifest

_CONFLICTS = (
    *("inspect", "overwrite", "raw_dir", "tfds_dir", "processes", "runner"),
    "problem_options",
    *(option.name for option in OPTIONS if option.name != "vocabulary"),
)


def adopt(args: argparse.Namespace) -> "Manifest":
    """Adopt the shards in `--adopt` and return their manifest."""
    flags.require(args, "vocabulary")
    for flag in _CONFLICTS:
        if getattr(args, flag) not in (None, False, ""):
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
        command.note(f"{name} becomes own text: --problem=text --name={name}.")
    start_tensorflow(args.verbose)
    from t2t_lite.interop.tensor2tensor import shards

    return shards.adopt(folder, problem, vocabulary)
