"""Which checkpoint of a run: by name, the best on dev, those that are kept."""

import json
import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from t2t_lite import files
from t2t_lite.errors import T2TLiteError, UsageError
from t2t_lite.training.checkpoints.checkpoint import (
    Checkpoint,
    DamagedError,
    checkpoint_at,
    list_checkpoints,
    one_clear_error,
    short,
)

_Path = str | os.PathLike
NAMED = ("default", "latest", "best", "average", "ema")
_BEST = "best.json"


def resolve(directory: _Path, which: str | int) -> Checkpoint:
    """The checkpoint that a name stands for.

    Args:
      directory: the `checkpoints` folder of a run.
      which: "latest", "best", "average" (the newest one), "ema" (the newest
        moving average), a step, or the path of a checkpoint's folder;
        "default" is the average made of the newest checkpoint if there is one,
        else the newest. Of a run with a moving average, "default" and "best"
        are those of the checkpoint; a step and "latest" never are.

    Raises:
      T2TLiteError: there is no such checkpoint.
      UsageError: `which` is none of these.
    """
    directory = pathlib.Path(directory)
    steps = list_checkpoints(directory)
    averages = list_checkpoints(directory, averages=True)
    which = str(which)
    if which in NAMED:
        return _resolve_name(directory, which, steps, averages)
    if which.isdigit():
        for saved in steps:
            if saved.step == int(which):
                return saved
        known = ", ".join(str(checkpoint.step) for checkpoint in steps)
        raise T2TLiteError(
            f"There is no checkpoint of step {which} in {directory}; there "
            f"are {known or 'none'}."
        )
    for path in (pathlib.Path(which).expanduser(), directory / which):
        checkpoint = checkpoint_at(path) if path.is_dir() else None
        if checkpoint:
            return checkpoint
    raise UsageError(
        f"A checkpoint is named by one of {', '.join(NAMED)}, a step or a "
        f"checkpoint's folder; got {which!r}."
    )


def _resolve_name(
    directory: pathlib.Path,
    which: str,
    steps: list[Checkpoint],
    averages: list[Checkpoint],
) -> Checkpoint:
    if which == "best":
        marked = read_best(directory)
        if not marked:
            raise T2TLiteError(
                f"No checkpoint in {directory} is marked as the best yet: "
                "training marks one when it evaluates on dev."
            )
        return resolve(directory, marked["step"]).decoded
    found = averages if which == "average" else steps
    if which == "ema":
        found = [each.decoded for each in steps if each.decoded.is_ema]
    elif which == "default":
        found = [each.decoded for each in steps]
        if averages and (not steps or averages[-1].step == steps[-1].step):
            found = averages
    if not found:
        kind, make = {
            "average": ("average of checkpoints", "t2t-lite-average makes one"),
            "ema": ("moving average", "training with the hparam ema_decay has"),
        }.get(which, ("checkpoint", ""))
        if not steps:
            make = "train first, or put back what was moved away"
        raise T2TLiteError(f"There is no {kind} in {directory}; {make}.")
    return found[-1]


def remove_old(directory: _Path, keep: int) -> None:
    """Removes all but the newest `keep` checkpoints, the best and averages."""
    best = [mark["step"] for mark in read_all_best(directory)]
    for checkpoint in list_checkpoints(directory)[:-keep]:
        if checkpoint.step not in best:
            files.remove_folder(checkpoint.path)


def mark_best(directory: _Path, marks: Sequence[Mapping[str, Any]]) -> None:
    """Marks checkpoints as the best, which are not removed then.

    Args:
      directory: the `checkpoints` folder of a run.
      marks: of each its `step`, and the `metric` and the `value` that it is
        among the best by; the best one first.
    """
    path = pathlib.Path(directory) / _BEST
    best, *others = marks
    with one_clear_error(path):
        files.write_json(path, {**best, "others": others} if others else best)


def ranked(
    marks: Sequence[dict[str, Any]], new: dict[str, Any]
) -> list[dict[str, Any]]:
    """A new mark among those there are, the best one first.

    Of two equal ones the first is better. A mark by another metric, or of the
    same step, counts no more.
    """
    others = [
        mark
        for mark in marks
        if mark["metric"] == new["metric"] and mark["step"] != new["step"]
    ]
    return sorted([*others, new], key=lambda mark: -mark["value"])


def read_best(directory: _Path) -> dict[str, Any] | None:
    """The mark of the best checkpoint, or None.

    Raises:
      T2TLiteError: the file is damaged.
    """
    return next(iter(read_all_best(directory)), None)


def read_all_best(directory: _Path) -> list[dict[str, Any]]:
    """What `mark_best` wrote, [] if it did not.

    Raises:
      T2TLiteError: the file is damaged.
    """
    path = pathlib.Path(directory) / _BEST
    if not path.exists():
        return []
    try:
        marked = json.loads(path.read_bytes())
        return [
            {key: mark[key] for key in ("step", "metric", "value")}
            for mark in (marked, *marked.get("others", ()))
        ]
    except (
        OSError,
        ValueError,
        LookupError,
        TypeError,
        AttributeError,
    ) as error:
        remedy = "remove it to go on without a best checkpoint"
        raise DamagedError(path, short(error), remedy) from error
