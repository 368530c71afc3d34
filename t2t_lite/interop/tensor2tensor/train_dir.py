"""A folder that tensor2tensor trained in: what it says of itself."""

import json
import pathlib
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from t2t_lite.errors import T2TLiteError, UsageError, in_words
from t2t_lite.interop.tensor2tensor.sets import (
    DEFAULTS,
    overridden,
    values_of_set,
)

_INDEX = ".index"
_CHECKPOINT = re.compile(r"(.*ckpt)-(\d+)")
_NEWEST = re.compile(r'^model_checkpoint_path: "(.*)"$', re.MULTILINE)
_FLAG = re.compile(r"--(\w+)=(.*)")


class TrainDir(NamedTuple):
    """What a folder of tensor2tensor's trainer holds.

    Attributes:
      checkpoint: the newest one, as TensorFlow names it: without an ending.
      step: the number in its name.
      flags: of the trainer, by name; {} if they were not kept.
      values: its hparams by name.
    """

    checkpoint: pathlib.Path
    step: int
    flags: Mapping[str, str]
    values: Mapping[str, Any]


def read_train_dir(place: pathlib.Path, hparams: str | None = None) -> TrainDir:
    """Reads the folder, or that of a checkpoint in it.

    Args:
      place: the folder, whose newest checkpoint is meant, or a checkpoint:
        `FOLDER/model.ckpt-250000`.
      hparams: the name of a set of tensor2tensor, or the path of an
        `hparams.json`; None: what the folder says.

    Raises:
      UsageError: there is no checkpoint, or nothing says which hparams it was
        trained with; or the folder is of another model.
      T2TLiteError: a file cannot be understood.
    """
    found = _checkpoint(place)
    flags = _flags(found.parent)
    model = flags.get("model") or "transformer"
    if model != "transformer":
        raise UsageError(
            "t2t_dir must be of tensor2tensor's model transformer; "
            f"{found.parent / 'flags.txt'} says {model}."
        )
    step = int(_CHECKPOINT.fullmatch(found.name)[2])  # type: ignore[index]
    return TrainDir(found, step, flags, _values(found.parent, flags, hparams))


def _checkpoint(place: pathlib.Path) -> pathlib.Path:
    """The checkpoint that is meant, without an ending."""
    if _CHECKPOINT.fullmatch(place.name) and _index_of(place).is_file():
        return place
    found = {
        int(match[2]): path.with_suffix("")
        for path in place.glob(f"*{_INDEX}")
        if (match := _CHECKPOINT.fullmatch(path.stem))
    }
    if not found:
        raise UsageError(
            "t2t_dir must be a folder with a checkpoint of tensor2tensor, "
            f"model.ckpt-N{_INDEX} and its data, or that checkpoint; got "
            f"{place}."
        )
    newest = _newest(place)
    if newest and newest not in found.values():
        raise T2TLiteError(
            f"{place / 'checkpoint'} names {newest.name} as the newest, which "
            "is not there: copy it, too, or name one that is, as in "
            f"--t2t_dir={found[max(found)]}."
        )
    return newest or found[max(found)]


def _index_of(checkpoint: pathlib.Path) -> pathlib.Path:
    return checkpoint.with_name(checkpoint.name + _INDEX)


def _newest(folder: pathlib.Path) -> pathlib.Path | None:
    """The checkpoint that TensorFlow's note in the folder names."""
    note = folder / "checkpoint"
    if not note.is_file():
        return None
    match = _NEWEST.search(_read(note))
    # The path is one of the machine that trained: its last part counts.
    return folder / pathlib.PurePath(match[1]).name if match else None


def _flags(folder: pathlib.Path) -> dict[str, str]:
    flags: dict[str, str] = {}
    for name in ("flags.txt", "flags_t2t.txt"):
        path = folder / name
        if path.is_file():
            lines = _read(path).splitlines()
            found = [m.groups() for m in map(_FLAG.fullmatch, lines) if m]
            flags |= {name: value for name, value in found if value != "None"}
    return flags


def _values(
    folder: pathlib.Path, flags: Mapping[str, str], hparams: str | None
) -> dict[str, Any]:
    """The hparams: as given, else as kept, else of the set in the flags."""
    kept = folder / "hparams.json"
    if hparams is None and kept.is_file():
        return _read_values(kept)
    name = hparams or flags.get("hparams_set")
    if not name:
        raise UsageError(
            f"{folder} holds no hparams.json and no flags.txt, which would say "
            "how the model was made: give --t2t_hparams=SET, or an "
            "hparams.json."
        )
    if name.endswith(".json"):
        return _read_values(pathlib.Path(name).expanduser())
    return overridden(values_of_set(name), flags.get("hparams", ""))


def _read_values(path: pathlib.Path) -> dict[str, Any]:
    try:
        values = json.loads(_read(path))
    except (ValueError, RecursionError) as error:
        raise T2TLiteError(f"{path} is not JSON: {error}.") from error
    if not isinstance(values, dict):
        raise T2TLiteError(f"{path} must be a JSON object of hparams.")
    for name, default in DEFAULTS.items():
        value = values.get(name, default)
        if not _is_like(value, default) and (name, value) != ("pos", None):
            raise T2TLiteError(
                f"{path}: {name} must be of the type of {default!r}; got "
                f"{value!r}."
            )
    return values


def _is_like(value: Any, default: Any) -> bool:
    """Whether both are numbers, or of one type."""
    kinds = {type(value), type(default)}
    return len(kinds) == 1 or kinds == {int, float}


def _read(path: pathlib.Path) -> str:
    try:
        return path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise T2TLiteError(
            f"{path} cannot be read: {in_words(error, place=False)}."
        ) from error
