"""A signature of a model: what it takes and gives, and what runs it."""

import dataclasses
import functools
from collections.abc import Mapping

import numpy as np

from t2t_lite.serving.server.batching import Run, Tensors
from t2t_lite.serving.server.refusal import invalid

DEFAULT_SIGNATURE = "serving_default"
_MOST_DIMENSIONS = 32  # of a tensor of any rank


@dataclasses.dataclass(frozen=True)
class TensorSpec:
    """What a signature says of one of its tensors.

    Attributes:
      dtype: of numpy; `object` is bytes.
      shape: None for a dimension that may differ; None alone for any rank.
    """

    dtype: np.dtype
    shape: tuple[int | None, ...] | None

    @property
    def in_rows(self) -> bool:
        """Whether the first dimension may differ."""
        return self.shape is not None and self.shape[:1] == (None,)

    def check_shape(self, name: str, shape: tuple[int, ...]) -> None:
        """Refuses a tensor of another shape."""
        if self.shape is None:
            fits = len(shape) <= _MOST_DIMENSIONS
        else:
            fits = len(shape) == len(self.shape) and all(
                own in (None, size)
                for own, size in zip(self.shape, shape, strict=True)
            )
        if not fits:
            own = "?" if self.shape is None else _shown(self.shape)
            raise invalid(
                f"Input {name} must have the shape [{own}]; got "
                f"[{_shown(shape)}]."
            )


def _shown(shape: tuple[int | None, ...]) -> str:
    sizes = ["?" if size is None else str(size) for size in shape]
    return ", ".join(sizes[:_MOST_DIMENSIONS])


@dataclasses.dataclass(frozen=True)
class Signature:
    """One of the functions that a model serves.

    Attributes:
      name: such as "serving_default".
      inputs: by name.
      outputs: by name.
      run: computes it, in any thread.
    """

    name: str
    inputs: Mapping[str, TensorSpec]
    outputs: Mapping[str, TensorSpec]
    run: Run

    @functools.cached_property
    def joins(self) -> bool:
        """Whether requests may be joined and their answers cut apart.

        Every tensor must have rows. An output that differs in another
        dimension may be as wide as its widest row, so that an answer would
        depend on who else asks: it is not joined.
        """
        outputs = self.outputs.values()
        return all(
            spec.in_rows for spec in [*self.inputs.values(), *outputs]
        ) and all(None not in (spec.shape or ())[1:] for spec in outputs)


def lengths_of(inputs: Tensors) -> list[int]:
    """How long each row is: bytes of text, or numbers.

    Inputs that share no rows are one row.
    """
    sizes = {tensor.shape[:1] for tensor in inputs.values()}
    if len(sizes) != 1 or sizes == {()}:
        return [sum(map(_length, inputs.values()))]
    rows = zip(*inputs.values(), strict=True)
    return [sum(map(_length, row)) for row in rows]


def _length(row: np.ndarray | bytes) -> int:
    if isinstance(row, bytes):
        return len(row)
    row = np.asarray(row)
    if row.dtype.kind == "O":
        return sum(map(len, row.flat))
    return row.size
