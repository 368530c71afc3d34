"""Read a folder of tensor2tensor's trainer: checkpoint, flags and hparams."""

import json
import pathlib
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from t2t_lite.errors import T2TLiteError, UsageError
from t2t_lite.interop.tensor2tensor.hparams import DEFAULTS

_CHECKPOINT = re.compile(r"(.*ckpt)-(\d+)")
_FLAG = re.compile(r"^--(\w+)=(.*)$", re.MULTILINE)


class TrainDir(NamedTuple):
    """The content of a folder of tensor2tensor's trainer.

    Attributes:
      checkpoint: the path of one as TensorFlow writes it, without an ending.
      step: the number in its name.
      flags: of the trainer, by name; {} without flags.txt.
    """

    checkpoint: pathlib.Path
    step: int
    flags: Mapping[str, str]

    def read_hparams(self, path: pathlib.Path | None = None) -> dict[str, Any]:
        """Return tensor2tensor's hparams by name.

        Args:
          path: an `hparams.json`; None reads the one beside the checkpoint.

        Raises:
          UsageError: there is none beside the checkpoint.
          T2TLiteError: the file is damaged.
        """
        stored = self.checkpoint.with_name("hparams.json")
        if path is None and not stored.is_file():
            raise UsageError(
                f"{stored} is missing: give --t2t_hparams=FILE, or "
                "--t2t_hparams=SET with a set that has tensor2tensor's values, "
                "such as transformer_base_v3."
            )
        return _read_values(path or stored)


def read_train_dir(path: pathlib.Path) -> TrainDir:
    """Find the checkpoint of a trainer's folder and read the flags.

    Args:
      path: the folder, for its checkpoint with the highest step, or one
        checkpoint, `FOLDER/model.ckpt-250000`.

    Raises:
      UsageError: there is no checkpoint, or it belongs to another model.
    """
    checkpoint, step = _find_checkpoint(path)
    flags: dict[str, str] = {}
    for name in ("flags.txt", "flags_t2t.txt"):
        if (file := checkpoint.with_name(name)).is_file():
            flags |= dict(_FLAG.findall(file.read_text("utf-8", "replace")))
    flags = {name: value for name, value in flags.items() if value != "None"}
    if (flags.get("model") or "transformer") != "transformer":
        raise UsageError(
            "t2t_dir must be of tensor2tensor's model transformer; "
            f"{checkpoint.with_name('flags.txt')} says {flags['model']}."
        )
    return TrainDir(checkpoint, step, flags)


def _find_checkpoint(path: pathlib.Path) -> tuple[pathlib.Path, int]:
    """Return the path of a checkpoint without an ending, and its step."""
    is_file = path.with_name(f"{path.name}.index").is_file()
    indices = path.glob("*.index")
    paths = [path] if is_file else [index.with_suffix("") for index in indices]
    found = {
        int(match[2]): path
        for path in paths
        if (match := _CHECKPOINT.fullmatch(path.name))
    }
    if not found:
        raise UsageError(
            "t2t_dir must be a folder with a checkpoint of tensor2tensor, "
            f"model.ckpt-N.index and its data, or that checkpoint; got {path}."
        )
    return found[max(found)], max(found)


def _read_values(path: pathlib.Path) -> dict[str, Any]:
    """Read an `hparams.json`, and check the types of known values."""
    try:
        values = json.loads(path.read_text("utf-8"))
    except (ValueError, RecursionError) as error:
        raise T2TLiteError(f"{path} is not JSON: {error}.") from error
    if not isinstance(values, dict):
        raise T2TLiteError(f"{path} must be a JSON object of hparams.")
    for name, default in DEFAULTS.items():
        value = values.get(name, default)
        kinds = {type(value), type(default)}
        is_number = kinds == {int, float}
        if len(kinds) > 1 and not is_number and (name, value) != ("pos", None):
            raise T2TLiteError(
                f"{path}: {name} must be of the type of {default!r}; got "
                f"{value!r}."
            )
    return values
