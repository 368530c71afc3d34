"""Checkpoints of a run, written atomically and verified when they are read.

A checkpoint is a folder, which is written under a hidden name and then renamed:

```
checkpoints/step-00001000/tensors.index, tensors.data-00000-of-00001
                          ema/                moving average, weights only
checkpoints/average-5-step-00001000/          mean of five, weights only
checkpoints/best.json                         the best steps on dev
```

`tf.train.Checkpoint` writes the tensors, each with a checksum: the weights
under `model/`, the optimizer's state, and the JSON text `state` with the step,
the position in the data and the totals.
"""

import contextlib
import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from t2t_lite import files
from t2t_lite.errors import T2TLiteError, UsageError, format_error
from t2t_lite.progress import log

_Path = str | os.PathLike
FOLDER = "checkpoints"  # in the folder of a run
MODEL_PREFIX = "model/"
EMA = "ema"  # folder of the moving average, inside its checkpoint
NAMED = ("default", "latest", "best", "average", "ema")
_NAME = re.compile(r"(?:average-(\d+)-)?step-(\d{8,})")
_TENSORS = "tensors"
_BEST = "best.json"
_VALUE = "/.ATTRIBUTES/VARIABLE_VALUE"  # suffix of a name in the file
# Errors of TensorFlow's reader, such as IndexError for a truncated file.
UNREADABLE = (tf.errors.OpError, ValueError, LookupError, RuntimeError)
# Errors that do not prove damage.
_NOT_DAMAGE = (
    PermissionError,
    tf.errors.PermissionDeniedError,
    tf.errors.ResourceExhaustedError,
)


class DamagedError(T2TLiteError):
    """A checkpoint, or the file of the best checkpoints, is damaged."""

    def __init__(self, path: Path, error: Exception):
        self.reason = f"{path} is damaged ({first_line(error)})."
        super().__init__(
            f"{self.reason} Restore a backup, or remove it to continue without "
            "it."
        )


class SaveError(T2TLiteError):
    """A file of a run cannot be written, for example on a full disk."""


class Checkpoint(NamedTuple):
    """A checkpoint on disk."""

    path: Path
    step: int  # of the weights; of an average: the last step
    averaged: int | None  # number of averaged checkpoints; None: no average

    def __str__(self) -> str:
        if self.is_ema:
            return f"the moving average at step {self.step}"
        if self.averaged is None:
            return f"step {self.step}"
        return f"the average of {self.averaged} up to step {self.step}"

    @property
    def is_ema(self) -> bool:
        """True for the moving average inside a checkpoint."""
        return self.path.name == EMA

    @property
    def for_inference(self) -> "Checkpoint":
        """The moving average if the checkpoint has one, else the checkpoint."""
        average = self._replace(path=self.path / EMA)
        return average if average.path.is_dir() else self

    @property
    def weights(self) -> str | None:
        """The name of the weights in metrics; None: the trained weights."""
        named = self.is_ema or self.averaged is not None
        return self.path.name if named else None

    @property
    def checksum(self) -> str:
        """The SHA-256 of the index, which contains a checksum per tensor."""
        with _damage_errors(self.path):
            index = (self.path / f"{_TENSORS}.index").read_bytes()
        return hashlib.sha256(index).hexdigest()


def checkpoint_at(path: Path) -> Checkpoint | None:
    """Return the checkpoint in a folder; None if the name does not match."""
    folder = path.parent if path.name == EMA else path
    if not (match := _NAME.fullmatch(folder.name)):
        return None
    count, step = match.groups()
    return Checkpoint(path, int(step), int(count) if count else None)


def list_checkpoints(
    directory: _Path, averages: bool = False
) -> list[Checkpoint]:
    """Return the checkpoints in a folder, or the averages, oldest first.

    A missing folder has no checkpoints.
    """
    directory = Path(directory)
    if not directory.is_dir():
        return []
    found = filter(None, map(checkpoint_at, directory.iterdir()))
    kept = [each for each in found if bool(each.averaged) == averages]
    return sorted(kept, key=lambda each: (each.step, each.averaged or 0))


def model_tensors(model: Any) -> dict[str, tf.Variable]:
    """Return the variables of a model by their names in checkpoints."""
    return {f"{MODEL_PREFIX}{v.path}": v.value for v in model.weights}


def save(
    directory: _Path,
    tensors: Mapping[str, Any],
    state: Mapping[str, Any],
    averaged: int | None = None,
    ema: Mapping[str, Any] | None = None,
) -> Checkpoint:
    """Save variables, tensors or arrays by name, atomically.

    The JSON-serializable `state` has the `step`; `averaged` is the number of
    averaged checkpoints, and `ema` the moving average, with the same names.

    Raises:
      SaveError: the checkpoint cannot be written; older checkpoints are intact.
    """
    name = f"step-{state['step']:08d}"
    if averaged is not None:
        name = f"average-{averaged}-{name}"
    path = Path(directory) / name
    files.remove_unfinished(path.parent, name)
    with save_errors(path), files.write_folder(path) as folder:
        _write(folder, tensors, state)
        if ema:
            (folder / EMA).mkdir()
            _write(folder / EMA, ema, {"step": state["step"]})
    return Checkpoint(path, state["step"], averaged)


def _write(folder, tensors, state):
    with tf.device("CPU"):
        variables = {
            name: each if isinstance(each, tf.Variable) else tf.Variable(each)
            for name, each in {**tensors, "state": json.dumps(state)}.items()
        }
    tf.train.Checkpoint(**_tree(variables)).write(str(folder / _TENSORS))


def _tree(variables):
    """Return nested dicts, "b" in "a" for "a/b", which keeps the names."""
    root: dict[str, Any] = {}
    for name, variable in variables.items():
        *folders, last = name.split("/")
        node = root
        for folder in folders:
            node = node.setdefault(folder, {})
        node[last] = variable
    return root


@contextlib.contextmanager
def save_errors(path: Path) -> Iterator[None]:
    """Turn the errors of failed writes into a `SaveError`."""
    try:
        yield
    except (OSError, tf.errors.OpError) as error:
        raise SaveError(
            f"{path} cannot be saved: {format_error(error, place=False)}. "
            "Earlier checkpoints are intact."
        ) from error


class Reader:
    """The tensors of a checkpoint by name, with their `shapes`."""

    def __init__(self, path: _Path):
        self._path = Path(path)
        with _damage_errors(self._path):
            self._reader = tf.train.load_checkpoint(str(self._path / _TENSORS))
            shapes = self._reader.get_variable_to_shape_map()
        self._names = sorted(shapes)
        self.shapes: dict[str, list[int]] = {
            name.removesuffix(_VALUE): shapes[name]
            for name in self._names
            if name.endswith(_VALUE)
        }
        if not self.shapes:
            raise T2TLiteError(
                f"{path} has the format of an older version: use that "
                "version, or train a new run."
            )

    def __getitem__(self, name: str) -> Any:
        """Return a tensor as an array."""
        with _damage_errors(self._path):
            return self._reader.get_tensor(name + _VALUE)

    @property
    def state(self) -> dict[str, Any]:
        """The `state` given to `save`."""
        with _damage_errors(self._path):
            state = json.loads(self["state"])
            match state:
                case {"step": int(), "position": [int(), int(), int()]}:
                    return state
                case {"step": int(), **others} if "position" not in others:
                    return state
            raise ValueError("its state is not valid")

    def verify(self) -> None:
        """Read all tensors, and raise an error if a tensor is damaged."""
        with _damage_errors(self._path):
            for name in self._names:
                self._reader.get_tensor(name)


def restore(path: _Path, tensors: Mapping[str, tf.Variable]) -> dict[str, Any]:
    """Set variables to their values in a checkpoint, and return its state.

    Raises:
      T2TLiteError: the checkpoint is damaged, or has other names or shapes.
    """
    path = Path(path)
    reader = Reader(path)
    state = reader.state
    for name, variable in tensors.items():
        expected, shape = list(variable.shape), reader.shapes.get(name)
        if expected != shape:
            raise T2TLiteError(
                f"{path} belongs to another model, or is an average, which "
                f"cannot be trained: {name} must have shape {expected}; got "
                f"{shape}."
            )
    with _damage_errors(path):
        checkpoint = tf.train.Checkpoint(**_tree(tensors))
        status = checkpoint.read(str(path / _TENSORS))
        status.assert_existing_objects_matched().expect_partial()
    return state


@contextlib.contextmanager
def _damage_errors(path):
    try:
        yield
    except _NOT_DAMAGE as error:
        raise T2TLiteError(
            f"{path} cannot be read: {format_error(error, place=False)}."
        ) from error
    except (*UNREADABLE, OSError) as error:
        raise DamagedError(path, error) from error


def first_line(error: Exception) -> str:
    """Return the first line of an error about a file."""
    if isinstance(error, (ValueError, IndexError)):
        return str(error).splitlines()[0].rstrip(".")
    return format_error(error)


def restore_newest(directory: _Path, read: Callable[[Path], Any]) -> Checkpoint:
    """Restore the newest intact checkpoint with `read`.

    Damaged newer checkpoints are renamed to `NAME.damaged`, with a warning. If
    all are damaged, the error names the newest.
    """
    errors: dict[Path, DamagedError] = {}
    for found in reversed(list_checkpoints(directory)):
        try:
            read(found.path)
            break
        except DamagedError as error:
            errors[found.path] = error
    else:
        raise next(iter(errors.values()))
    for path, damage in errors.items():
        renamed = path.with_name(f"{path.name}.damaged")
        with save_errors(path):
            shutil.rmtree(renamed, ignore_errors=True)
            path.rename(renamed)
        log(
            f"WARNING: {damage.reason} Renamed it to {renamed.name}; training "
            f"resumes from update {found.step}."
        )
    return found


def average_checkpoints(directory: _Path, count: int) -> Checkpoint:
    """Average the weights of the newest `count` checkpoints and save the mean.

    Sums are computed in float64, one tensor at a time. The average has no
    optimizer state, because it is for decoding only.
    """
    resolve(directory, "latest")  # raises an error without checkpoints
    sources = list_checkpoints(directory)[-count:]
    readers = [Reader(source.path) for source in sources]
    first, *others = [
        {n: s for n, s in reader.shapes.items() if n.startswith(MODEL_PREFIX)}
        for reader in readers
    ]
    for source, other in zip(sources[1:], others, strict=True):
        if other != first:
            raise T2TLiteError(
                f"Cannot average {source.path} and {sources[0].path}, because "
                "they belong to different models."
            )
    means = {name: _mean(name, readers) for name in first}
    steps = [source.step for source in sources]
    state = {"step": steps[-1], "averaged_steps": steps}
    return save(directory, means, state, averaged=len(sources))


def _mean(name, readers):
    total: Any = 0.0
    for reader in readers:
        value = reader[name]
        total = total + value.astype(np.float64)
    with tf.device("CPU"):
        return tf.Variable((total / len(readers)).astype(value.dtype))


def resolve(directory: _Path, which: str | int) -> Checkpoint:
    """Return the checkpoint with a name.

    Names are "latest", "best", "average" (the newest), "ema" (the newest moving
    average), a step, or the path of a checkpoint. "default" is the average that
    includes the newest checkpoint if it exists, else the newest checkpoint.
    "default" and "best" prefer the moving average of their checkpoint.

    Raises:
      T2TLiteError: the checkpoint does not exist.
      UsageError: `which` is not valid.
    """
    directory, which = Path(directory), str(which)
    steps = list_checkpoints(directory)
    averages = list_checkpoints(directory, averages=True)
    preferred = [each.for_inference for each in steps]
    is_current = averages and steps and averages[-1].step == steps[-1].step
    named = {
        "latest": steps,
        "average": averages,
        "ema": [each for each in preferred if each.is_ema],
        "default": averages if is_current or not steps else preferred,
    }
    if which in named:
        found = named[which]
    elif which.isdigit():
        found = [each for each in steps if each.step == int(which)]
    elif which == "best":
        best = [mark["step"] for mark in read_marks(directory)[:1]]
        found = [each for each in preferred if each.step in best]
    else:
        paths = (directory / which, Path(which).expanduser())
        folders = [checkpoint_at(path) for path in paths if path.is_dir()]
        found = [each for each in folders if each]
        if not found:
            raise UsageError(
                f"checkpoint must be one of {', '.join(NAMED)}, a step or the "
                f"folder of a checkpoint; got {which!r}."
            )
    if not found:
        known = ", ".join(str(each.step) for each in steps) or "none"
        fix = {
            "best": "training marks it after an evaluation on dev",
            "average": "t2t-lite-average creates it",
            "ema": "training with the hparam ema_decay creates it",
        }.get(which, "train first, or restore missing checkpoints")
        raise T2TLiteError(
            f"{directory} has no checkpoint {which!r} (steps: {known}); {fix}."
        )
    return found[-1]


def remove_old(directory: _Path, keep: int) -> None:
    """Remove all except the newest `keep` and the best checkpoints."""
    best = [mark["step"] for mark in read_marks(directory)]
    for checkpoint in list_checkpoints(directory)[:-keep]:
        if checkpoint.step not in best:
            files.remove_folder(checkpoint.path)


def mark_best(directory: _Path, marks: Sequence[Mapping[str, Any]]) -> None:
    """Write the marks of the best checkpoints, which `remove_old` keeps.

    A mark has `step`, `metric` and `value`; the first mark is the best.
    """
    path = Path(directory) / _BEST
    best, *others = marks
    with save_errors(path):
        files.write_json(path, {**best, "others": others} if others else best)


def read_marks(directory: _Path) -> list[dict[str, Any]]:
    """Return the marks of the best existing checkpoints, the best first."""
    path = Path(directory) / _BEST
    steps = [checkpoint.step for checkpoint in list_checkpoints(directory)]
    try:
        best = json.loads(path.read_bytes())
        keys = ("step", "metric", "value")
        marks = [best, *best.get("others", ())]
        marks = [{key: mark[key] for key in keys} for mark in marks]
        kinds = {tuple(map(type, mark.values())) for mark in marks}
        if kinds - {(int, str, float), (int, str, int)}:
            raise ValueError("a mark has a value of another type")
        return [mark for mark in marks if mark["step"] in steps]
    except FileNotFoundError:
        return []
    except (*UNREADABLE, OSError, TypeError, AttributeError) as e:
        raise DamagedError(path, e) from e


def rank(
    marks: Sequence[dict[str, Any]], new: dict[str, Any]
) -> list[dict[str, Any]]:
    """Return the marks and a new mark, the best first.

    Marks of another metric, or of the same step, are dropped. Of two equal
    marks the older is better.
    """
    kept = [mark for mark in marks if mark["metric"] == new["metric"]]
    kept = [mark for mark in kept if mark["step"] != new["step"]]
    return sorted([*kept, new], key=lambda mark: -mark["value"])
