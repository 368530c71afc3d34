"""Checkpoints: saved whole or not at all, and checked when read.

A checkpoint is a folder that is written beside its place and renamed into it:

```
checkpoints/step-00001000/tensors.index, tensors.data-00000-of-00001
                          state.json          step, position in the data, ...
                          ema/                the moving average, weights only
checkpoints/average-5-step-00001000/          the mean of five, weights only
checkpoints/best.json                         which step was best on dev
```

Tensors are stored under names ("model/transformer/...") in TensorFlow's own
format, whose checksums tell a damaged file from a sound one.
"""

import contextlib
import hashlib
import json
import os
import pathlib
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import tensorflow as tf

from t2t_lite import files
from t2t_lite.errors import T2TLiteError, in_words

_Path = str | os.PathLike
FOLDER = "checkpoints"  # in that of a run
MODEL_PREFIX = "model/"
EMA = "ema"  # the folder of the moving average, in that of its checkpoint
_NAME = re.compile(r"(?:average-(\d+)-)?step-(\d{8,})")
_TENSORS = "tensors"
_STATE = "state.json"
# What TensorFlow's reader of checkpoints raises; an IndexError, for example,
# where a file is shorter than it should be.
UNREADABLE = (tf.errors.OpError, ValueError, LookupError, RuntimeError)
# The checkpoint may be sound where one of these keeps it from being read.
_NOT_DAMAGE = (
    PermissionError,
    tf.errors.PermissionDeniedError,
    tf.errors.ResourceExhaustedError,
)


class Checkpoint(NamedTuple):
    """A checkpoint on disk."""

    path: pathlib.Path
    step: int  # of the weights; of an average, its last source's
    averaged: int | None  # how many were averaged; None: one to train on from

    def __str__(self) -> str:
        if self.is_ema:
            return f"the moving average at step {self.step}"
        if self.averaged is None:
            return f"step {self.step}"
        return f"the average of {self.averaged} up to step {self.step}"

    @property
    def is_ema(self) -> bool:
        """Whether it is the moving average that a checkpoint holds besides."""
        return self.path.name == EMA

    @property
    def decoded(self) -> "Checkpoint":
        """Its moving average if it holds one, else itself."""
        average = self._replace(path=self.path / EMA)
        return average if average.path.is_dir() else self

    @property
    def weights(self) -> str | None:
        """What lines of metrics call its weights; None: those in training."""
        named = self.is_ema or self.averaged is not None
        return self.path.name if named else None

    @property
    def checksum(self) -> str:
        """The SHA-256 of the index, which has the checksum of each tensor."""
        try:
            index = (self.path / f"{_TENSORS}.index").read_bytes()
        except OSError as error:
            raise damaged(self.path, error) from error
        return hashlib.sha256(index).hexdigest()


class DamagedError(T2TLiteError):
    """A checkpoint or the mark of the best is damaged."""

    def __init__(self, path: pathlib.Path, reason: str, remedy: str):
        super().__init__(f"{path} is damaged ({reason}); {remedy}.")
        self.path = path
        self.reason = reason


class SaveError(T2TLiteError):
    """Something cannot be written, as on a full disk."""


def list_checkpoints(
    directory: _Path, averages: bool = False
) -> list[Checkpoint]:
    """The checkpoints of a folder, oldest step first.

    Args:
      directory: the `checkpoints` folder of a run; may be missing.
      averages: list the averages instead.
    """
    directory = pathlib.Path(directory)
    if not directory.is_dir():
        return []
    found = [checkpoint_at(path) for path in directory.iterdir()]
    return sorted(
        (
            checkpoint
            for checkpoint in found
            if checkpoint and (checkpoint.averaged is not None) == averages
        ),
        key=lambda checkpoint: (checkpoint.step, checkpoint.averaged or 0),
    )


def save(
    directory: _Path,
    tensors: Mapping[str, Any],
    state: Mapping[str, Any],
    averaged: int | None = None,
    ema: Mapping[str, Any] | None = None,
) -> Checkpoint:
    """Saves a checkpoint; it is there in full or not at all.

    Args:
      directory: the `checkpoints` folder of a run.
      tensors: what to save, by name; tensors, variables or arrays.
      state: the rest, fit for JSON; has `step`.
      averaged: for an average, of how many.
      ema: the moving average of the weights, by the same names.

    Raises:
      SaveError: it cannot be written, for example on a full disk; older
        checkpoints are as they were.
    """
    name = f"step-{state['step']:08d}"
    if averaged is not None:
        name = f"average-{averaged}-{name}"
    path = pathlib.Path(directory) / name
    files.remove_unfinished(path.parent, name)
    with one_clear_error(path), files.write_folder(path) as folder:
        _save_parts(folder, tensors, state)
        if ema:
            (folder / EMA).mkdir()
            _save_parts(folder / EMA, ema, {"step": state["step"]})
    return Checkpoint(path, state["step"], averaged)


def read_state(path: _Path) -> dict[str, Any]:
    """The `state` a checkpoint was saved with.

    Raises:
      T2TLiteError: it is missing or damaged.
    """
    path = pathlib.Path(path)
    try:
        record = json.loads((path / _STATE).read_bytes())
        state = record["state"]
        if record["sha256"] != _sha256(state):
            raise ValueError(f"{_STATE} does not match its checksum")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise damaged(path, error) from error
    return state


def model_tensors(model: Any) -> dict[str, tf.Variable]:
    """A model's variables by the names that checkpoints give them."""
    return {f"{MODEL_PREFIX}{v.path}": v.value for v in model.weights}


def restore(
    path: _Path, variables: Mapping[str, tf.Variable]
) -> dict[str, Any]:
    """Sets variables to a checkpoint's values, all of them or none.

    Args:
      path: the checkpoint's folder.
      variables: by the names they were saved under. What the checkpoint holds
        besides is left alone.

    Returns:
      Its state.

    Raises:
      T2TLiteError: it is damaged, or holds other names or shapes.
    """
    path = pathlib.Path(path)
    state = read_state(path)
    _check_shapes(path, variables)
    names = list(variables)
    try:
        values = tf.raw_ops.RestoreV2(
            prefix=str(path / _TENSORS),
            tensor_names=names,
            shape_and_slices=[""] * len(names),
            dtypes=[variables[name].dtype for name in names],
        )
    except tf.errors.OpError as error:
        raise damaged(path, error) from error
    for name, value in zip(names, values, strict=True):
        variables[name].assign(value)
    return state


def set_aside(path: pathlib.Path) -> pathlib.Path:
    """Renames what is damaged, which does not count then."""
    names = (f"{path.name}.damaged{n}" for n in ("", *range(2, 1000)))
    aside = next(p for p in map(path.with_name, names) if not p.exists())
    with one_clear_error(path):
        path.rename(aside)
    return aside


@contextlib.contextmanager
def one_clear_error(path: pathlib.Path) -> Iterator[None]:
    """Tells of a failed write what to do about it."""
    try:
        yield
    except (OSError, tf.errors.OpError) as error:
        raise SaveError(
            f"{path} cannot be saved: {in_words(error, place=False)}. What was "
            "saved before is intact."
        ) from error


def _save_parts(
    folder: pathlib.Path, tensors: Mapping[str, Any], state: Mapping[str, Any]
) -> None:
    names = list(tensors)
    tf.raw_ops.SaveV2(
        prefix=str(folder / _TENSORS),
        tensor_names=names,
        shape_and_slices=[""] * len(names),
        tensors=[tf.convert_to_tensor(tensors[name]) for name in names],
    )
    record = {"state": state, "sha256": _sha256(state)}
    files.write_json(folder / _STATE, record)


def checkpoint_at(path: pathlib.Path) -> Checkpoint | None:
    """The checkpoint whose folder that is; None by any other name."""
    match = _NAME.fullmatch(_home(path).name)
    if not match:
        return None
    count, step = match.groups()
    return Checkpoint(path, int(step), int(count) if count else None)


def _home(path: pathlib.Path) -> pathlib.Path:
    """The folder among checkpoints; of a moving average, the one it is in."""
    return path.parent if path.name == EMA else path


def open_tensors(path: pathlib.Path) -> Any:
    """Reads a checkpoint's tensors one at a time."""
    try:
        return tf.train.load_checkpoint(str(path / _TENSORS))
    except UNREADABLE as error:
        raise damaged(path, error) from error


def _check_shapes(
    path: pathlib.Path, variables: Mapping[str, tf.Variable]
) -> None:
    saved = open_tensors(path).get_variable_to_shape_map()
    for name, variable in variables.items():
        if name not in saved:
            raise T2TLiteError(
                f"{path} does not hold {name}: it is a checkpoint of another "
                "model, or an average, which cannot be trained on."
            )
        if list(variable.shape) != saved[name]:
            raise T2TLiteError(
                f"{path} is a checkpoint of another model: {name} has shape "
                f"{saved[name]} there and {list(variable.shape)} here."
            )


def damaged(path: pathlib.Path, error: Exception) -> T2TLiteError:
    """The error for a checkpoint that cannot be read, with the way out."""
    if isinstance(error, _NOT_DAMAGE):
        return T2TLiteError(
            f"{path} cannot be read: {in_words(error, place=False)}."
        )
    checkpoint = checkpoint_at(path)
    others = [
        other.step
        for other in list_checkpoints(_home(path).parent)
        if checkpoint and other.step != checkpoint.step
    ]
    if not checkpoint or checkpoint.averaged is not None:
        remedy = "t2t-lite-average makes the average again"
    elif not others:
        remedy = "it is the only one: remove the run and train again"
    elif others[-1] > checkpoint.step:
        remedy = "remove this folder to go on without it"
    else:
        remedy = f"remove this folder to go on from step {others[-1]}"
    return DamagedError(path, short(error), remedy)


def short(error: Exception) -> str:
    """What is wrong with a file, on one line."""
    if isinstance(error, KeyError):
        return f"{_STATE} has no {error}"
    if isinstance(error, (ValueError, IndexError)):  # the latter of a reader
        return str(error).splitlines()[0].rstrip(".")
    return in_words(error)


def _sha256(state: Any) -> str:
    text = json.dumps(state, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()
