"""Reader of tensor2tensor checkpoints: variables with our names and shapes.

Kernels have the same layout as ours. Two things differ: an embedding is split
by rows into shards, `weights_0`, `weights_1`, ...; and the vector that is added
to source embeddings is one row, the target space, of a table with 32 rows.
"""

import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from t2t_lite.errors import T2TLiteError, UsageError
from t2t_lite.training.checkpoints import UNREADABLE, first_line

_TARGET_SPACES = "transformer/body/target_space_embedding/kernel"
_NUM_SPACES = 32  # rows of the target space table
_SPACE_VECTOR = "target_space_embedding/vector"
# Replacements, in order, from tensor2tensor's names to ours.
_REPLACEMENTS = {
    r"^transformer/body/": "",
    r"^transformer/symbol_modality_[\d_]+/": "",
    r"^shared/weights_\d+": "shared_embedding/table",
    r"^input_emb/weights_\d+": "source_embedding/table",
    r"^target_emb/weights_\d+": "target_embedding/table",
    r"^softmax/weights_\d+": "softmax/table",
    r"^inputs_positional_embedding": "encoder_positions/table",
    r"^targets_positional_embedding": "decoder_positions/table",
    r"^target_space_embedding/kernel": _SPACE_VECTOR,
    r"/layer_(pre)?postprocess/layer_norm/layer_norm_": "_norm/",
    r"^(encoder|decoder)/layer_(\d+)/": r"\1_layer_\2/",
    r"/encdec_attention": "/cross_attention",
    r"/ffn": "/feed_forward",
    r"/conv1/": "/hidden_",
    r"/conv2/": "/output_",
    r"/multihead_attention/": "/",
    r"/q/": "/query_",
    r"/k/": "/key_",
    r"/v/": "/value_",
    r"/output_transform/": "/output_",
    r"/dot_product_attention_relative/relative_positions_": "/relative_",
    r"/relative_(keys|values)/embeddings": r"/relative_\1",
}
_COUNTERS = re.compile(r"global_step|(training|losses_avg|train_stats)/.*")
_SLOTS = ("Adam", "Adam_1")  # moving averages of gradients and their squares


class Checkpoint:
    """The variables of a checkpoint, by our names without the model's name.

    The path is the prefix of its files, such as `FOLDER/model.ckpt-1000`.
    """

    def __init__(self, path: Path):
        self._path = path
        try:
            self._reader = tf.train.load_checkpoint(str(path))
            self._shapes = self._reader.get_variable_to_shape_map()
        except UNREADABLE as error:
            raise self._damaged(error) from error
        # Our name -> names of the shards, sorted by number.
        self._shards: dict[str, list[str]] = {}
        for name in sorted(self._shapes, key=lambda name: (len(name), name)):
            if not _COUNTERS.fullmatch(name):
                ours = name
                for pattern, replacement in _REPLACEMENTS.items():
                    ours = re.sub(pattern, replacement, ours)
                self._shards.setdefault(ours, []).append(name)

    def choose_space(self, target_space: int | None) -> tuple[int, str]:
        """Return the target space to use, and a message about the choice.

        Adam's slots identify the trained space: all others are 0.
        """
        if target_space is not None and not 0 <= target_space < _NUM_SPACES:
            raise UsageError(
                f"target_space must be from 0 to {_NUM_SPACES - 1} (got "
                f"{target_space})."
            )
        name = f"training/{_TARGET_SPACES}/{_SLOTS[1]}"
        squares = self._read(name, np.zeros((_NUM_SPACES, 1)))
        (rows,) = np.nonzero(np.any(squares, axis=1))
        if len(rows) != 1:
            return target_space or 0, f"target space {target_space or 0}"
        trained = int(rows[0])
        if target_space not in (None, trained):
            return target_space, (
                f"warning: target space {target_space} is untrained; Adam "
                f"updated only target space {trained}"
            )
        return trained, f"target space {trained}, which is the trained one"

    def weights(
        self, space: int, shapes: Mapping[str, Sequence[int]]
    ) -> dict[str, np.ndarray]:
        """Read the weights, float32, with row `space` of the target spaces."""
        self._check_none("it lacks", shapes.keys() - self._shards.keys())
        if _SPACE_VECTOR not in shapes:
            self._shards.pop(_SPACE_VECTOR, None)
        extra = self._shards.keys() - shapes.keys()
        self._check_none("it also has", [self._shards[n][0] for n in extra])
        values = self._read_all("{}", space)
        wrong = [
            f"{name} {values[name].shape} instead of {tuple(shape)}"
            for name, shape in shapes.items()
            if values[name].shape != tuple(shape)
        ]
        self._check_none("sizes or vocabulary differ:", wrong)
        return values

    def slots(self, space: int) -> list[dict[str, np.ndarray]]:
        """Read Adam's averages of the gradients and of their squares.

        The list is empty if the checkpoint lacks a slot of any weight.
        """
        for shards in self._shards.values():
            slots = {f"training/{name}/{x}" for name in shards for x in _SLOTS}
            if not slots <= self._shapes.keys():
                return []
        return [self._read_all(f"training/{{}}/{x}", space) for x in _SLOTS]

    def count_updates(self, beta2: float, step: int) -> int:
        """Return the number of Adam's updates.

        `training/beta2_power` contains beta2 ** (updates + 1). After its
        underflow, Adam's bias correction is 1, and this returns `step`.
        """
        power = float(self._read("training/beta2_power", 0.0))
        if not 1e-30 < power < 1:
            return step
        return round(math.log(power) / math.log(beta2)) - 1

    def global_step(self, default: int) -> int:
        """Return the number of updates, or `default` if it is not stored."""
        return int(self._read("global_step", default))

    def _read_all(self, template: str, space: int) -> dict[str, np.ndarray]:
        values = {}
        for ours, shards in self._shards.items():
            arrays = [self._read(template.format(shard)) for shard in shards]
            value = np.concatenate(arrays) if len(arrays) > 1 else arrays[0]
            values[ours] = value[space] if ours == _SPACE_VECTOR else value
        return values

    def _read(self, name: str, default: Any = None) -> Any:
        if name not in self._shapes and default is not None:
            return default
        try:
            value = np.asarray(self._reader.get_tensor(name))
        except UNREADABLE as error:
            raise self._damaged(error) from error
        if value.dtype.kind == "f":
            value = value.astype(np.float32)
        if not np.all(np.isfinite(value)):
            raise T2TLiteError(
                f"{self._path}: {name} contains values that are not finite."
            )
        return value

    def _check_none(self, reason, names):
        if names:
            first = ", ".join(sorted(names)[:3])
            raise T2TLiteError(
                f"{self._path} does not match its hparams: {reason} {first}."
            )

    def _damaged(self, error):
        return T2TLiteError(
            f"{self._path} is damaged or incomplete ({first_line(error)}): "
            "copy all its files again."
        )
