"""The variables of a checkpoint of tensor2tensor, read as our weights."""

import math
import pathlib
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from t2t_lite.errors import T2TLiteError, UsageError
from t2t_lite.hparam import HParams
from t2t_lite.interop.tensor2tensor.names import (
    EMBEDDINGS,
    SOURCE_VECTOR,
    TARGET_SPACES,
    names_of_weights,
)
from t2t_lite.training.checkpoints.checkpoint import UNREADABLE, short

_PIECE = re.compile(
    r"transformer/symbol_modality_\d+_\d+(?:_\d+)?"
    r"/(shared|input_emb|target_emb|softmax)/weights_(\d+)"
)
# What training keeps besides the weights and what Adam knows of each.
_COUNTERS = re.compile(
    r"global_step|training/beta[12]_power|losses_avg/.*|train_stats/.*"
)
_SLOTS = ("Adam", "Adam_1")  # the mean of gradients, and of their squares
_OPTIMIZER = "training/"
_SMALLEST = 1e-30  # a power below has lost its digits, or is 0


class Variables:
    """The variables of a checkpoint, found once and read by our names.

    Args:
      checkpoint: as TensorFlow names it, without an ending.
      hparams: of the model.

    Attributes:
      checkpoint: as given.
      shapes: of each of our weights, by its name without the model's.

    Raises:
      T2TLiteError: it is damaged, or holds another model: the error names the
        variables that are too many or lacking.
    """

    def __init__(self, checkpoint: pathlib.Path, hparams: HParams):
        import tensorflow as tf

        self.checkpoint = checkpoint
        self._used: set[str] = set()
        try:
            self._reader = tf.train.load_checkpoint(str(checkpoint))
            self._found = self._reader.get_variable_to_shape_map()
        except UNREADABLE as error:
            raise self._damaged(error) from error
        self._parts = {
            ours: [theirs] for ours, theirs in names_of_weights(hparams).items()
        }
        self._parts |= self._embeddings(hparams)
        if hparams.source_vector:
            self._parts[SOURCE_VECTOR] = [TARGET_SPACES]
        self._require_all()
        self.shapes = {name: self._shape(name) for name in self._parts}

    def _embeddings(self, hparams):
        """The pieces of each embedding, in the order of their numbers."""
        pieces: dict[str, list[tuple[int, str]]] = {}
        for name in self._found:
            if match := _PIECE.fullmatch(name):
                numbered = pieces.setdefault(match[1], [])
                numbered.append((int(match[2]), name))
        names = list(EMBEDDINGS.items())
        return {
            ours: [name for _, name in sorted(pieces.get(theirs, []))]
            for ours, theirs in (
                names[:1] if hparams.shared_embedding else names[1:]
            )
        }

    def _require_all(self):
        """Raises for a weight without a variable, and the other way."""
        lacking = [
            part
            for ours, parts in self._parts.items()
            for part in parts or [f".../{EMBEDDINGS[ours]}/weights_0"]
            if part not in self._found
        ]
        if lacking:
            raise T2TLiteError(
                f"{self.checkpoint} is a checkpoint of another model than its "
                f"hparams say: it lacks {_some(lacking)}."
            )
        known = {part for parts in self._parts.values() for part in parts}
        foreign = [
            name
            for name in sorted(set(self._found) - known)
            if not _COUNTERS.fullmatch(name)
            and not name.startswith(_OPTIMIZER)
            and name != TARGET_SPACES
        ]
        if foreign:
            raise T2TLiteError(
                f"{self.checkpoint} is a checkpoint of another model than its "
                f"hparams say: it has {_some(foreign)} as well."
            )

    @property
    def left_out(self) -> list[str]:
        """The names of variables that nothing was read of so far."""
        return sorted(set(self._found) - self._used)

    @property
    def has_slots(self) -> bool:
        """Whether it has what Adam knows of each weight."""
        return all(
            f"{_OPTIMIZER}{part}/{slot}" in self._found
            for parts in self._parts.values()
            for part in parts
            for slot in _SLOTS
        )

    def target_space(self) -> int | None:
        """The row of the target space that was trained; None: nothing tells.

        It is the only one whose gradients were not always 0.
        """
        name = f"{_OPTIMIZER}{TARGET_SPACES}/{_SLOTS[1]}"
        if name not in self._found:
            return None
        (rows,) = np.nonzero(np.any(self._read(name), axis=1))
        return int(rows[0]) if len(rows) == 1 else None

    def weights(self, space: int) -> dict[str, np.ndarray]:
        """Each weight, float32, by our name; `space` is that of the target."""
        return self._joined("{}", space)

    def slots(
        self, space: int
    ) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
        """Adam's mean of the gradients, and of their squares, likewise."""
        mean, square = (
            self._joined(f"{_OPTIMIZER}{{}}/{slot}", space) for slot in _SLOTS
        )
        return mean, square

    def applied(self, beta2: float, step: int) -> int:
        """How many updates Adam has made.

        `training/beta2_power` tells, until it has become too small: then Adam
        divides by 1, and the number plays no part.
        """
        name = f"{_OPTIMIZER}beta2_power"
        power = float(self._read(name)) if name in self._found else 0.0
        if not _SMALLEST < power < 1:
            return step
        return round(math.log(power) / math.log(beta2)) - 1

    def global_step(self, default: int) -> int:
        """The number of updates that were made."""
        if "global_step" not in self._found:
            return default
        return int(self._read("global_step"))

    def _joined(self, form, space):
        values = {}
        for ours, parts in self._parts.items():
            arrays = [self._read(form.format(part)) for part in parts]
            value = np.concatenate(arrays) if len(arrays) > 1 else arrays[0]
            values[ours] = value[space] if ours == SOURCE_VECTOR else value
        return values

    def _shape(self, ours):
        parts = [self._found[part] for part in self._parts[ours]]
        if ours == SOURCE_VECTOR:
            return tuple(parts[0][1:])
        if len({tuple(part[1:]) for part in parts}) > 1:
            raise T2TLiteError(
                f"{self.checkpoint} has pieces of different widths for "
                f"{ours}: {parts}."
            )
        return (sum(part[0] for part in parts), *parts[0][1:])

    def _read(self, name) -> Any:
        try:
            value = self._reader.get_tensor(name)
        except UNREADABLE as error:
            raise self._damaged(error) from error
        self._used.add(name)
        value = np.asarray(value)
        if value.dtype.kind not in "iu":
            value = value.astype(np.float32)
            if not np.all(np.isfinite(value)):
                raise T2TLiteError(
                    f"{self.checkpoint}: {name} has values that are not finite."
                )
        return value

    def _damaged(self, error):
        return T2TLiteError(
            f"{self.checkpoint} is damaged, or a part of it is missing "
            f"({short(error)}); copy it again, with all its files."
        )


def space_of(variables: Variables, given: int | None) -> tuple[int, str]:
    """The target space to take, and what to say of the choice.

    Raises:
      UsageError: the given one is out of range, or not the trained one.
    """
    trained = variables.target_space()
    if given is not None and not 0 <= given < 32:
        raise UsageError(f"target_space must be from 0 to 31; got {given}.")
    if None not in (given, trained) and given != trained:
        raise UsageError(
            f"target_space={given} was never trained; what Adam kept says that "
            f"{trained} was."
        )
    if trained is not None:
        return trained, f"target space {trained}, the one that was trained"
    return given or 0, f"target space {given or 0}"


def require_shapes(
    checkpoint: pathlib.Path,
    found: Mapping[str, Sequence[int]],
    expected: Mapping[str, Sequence[int]],
) -> None:
    """Raises T2TLiteError for weights of another shape than the model's."""
    wrong = [
        f"{name} {tuple(found[name])} instead of {tuple(shape)}"
        for name, shape in expected.items()
        if tuple(found[name]) != tuple(shape)
    ]
    if wrong:
        raise T2TLiteError(
            f"{checkpoint} is a checkpoint of another model than its hparams "
            f"and vocabulary say: {_some(wrong)}."
        )


def _some(names: Sequence[str]) -> str:
    more = len(names) - 3
    return ", ".join(names[:3]) + (f" and {more} more" if more > 0 else "")
