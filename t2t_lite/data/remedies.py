"""What to do about data that is not there, or does not fit: for errors."""

import os
import pathlib
import shlex
from collections.abc import Mapping
from typing import Any

from t2t_lite.problem import Problem

USUAL_SEED = 1  # of data, where none is given


def how_to_adopt(data_dir: str | os.PathLike, name: str) -> str:
    """What to do about shards without a manifest that lie in a folder.

    Returns: "" if there are none of that name.
    """
    if not any(pathlib.Path(data_dir).glob(f"{name}-train-*-of-*")):
        return ""
    return (
        "there are shards without a manifest, as tensor2tensor writes them, "
        f"which t2t-lite-datagen --adopt={data_dir} --problem={name} "
        "--vocabulary=FILE makes usable."
    )


def how_to_make(
    problem: Problem, data_dir: str | os.PathLike, seed: int | None = None
) -> str:
    """The command that makes data of a problem, with its options."""
    words = flags_of(problem).split()
    words += [word for word in problem.option_flags() if word not in words]
    words.append(f"--data_dir={data_dir}")
    if seed not in (None, USUAL_SEED):
        words.append(f"--seed={seed}")
    return shlex.join(["t2t-lite-datagen", *words])


def how_to_remake(
    problem_or_manifest: Any,
    data_dir: str | os.PathLike,
    with_options: bool = False,
) -> str:
    """What to do about data that does not fit, in a sentence.

    Args:
      problem_or_manifest: whose data it is.
      data_dir: where it is.
      with_options: it does not fit the flags that were given.
    """
    options = problem_or_manifest.options
    if "adopted" in options:
        return (
            "Put the files of tensor2tensor back, and adopt them again with "
            f"t2t-lite-datagen --adopt=FOLDER --problem={options['name']} "
            "--vocabulary=FILE."
        )
    place = " or --name" if with_options else ""
    given = " and the flags given here" if with_options else ""
    place_flag = shlex.quote(f"--data_dir={data_dir}")
    flags = f"{flags_of(problem_or_manifest)} {place_flag}"
    return (
        f"Use another --data_dir{place}, or make the data again with "
        f"t2t-lite-datagen {flags} --overwrite{given}."
    )


def flags_of(problem_or_manifest: Any) -> str:
    """What names the problem of some data on a command line."""
    thing = problem_or_manifest
    registered: str | None
    if isinstance(thing, Problem):
        name, registered = thing.base_name, type(thing).name
    else:
        name, registered = thing.problem, registered_name_of(thing.definition)
    if registered in (None, "", name):
        return f"--problem={name}"
    return f"--problem={registered} --name={name}"


def registered_name_of(definition: Mapping[str, Any]) -> str | None:
    """The class attribute `base_name` is the name that was registered."""
    return definition.get("attributes", {}).get("base_name")
