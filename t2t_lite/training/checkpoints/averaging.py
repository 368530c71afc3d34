"""The mean of the last checkpoints, which translates better than the last."""

import os
from typing import Any

import numpy as np

from t2t_lite.errors import T2TLiteError
from t2t_lite.training.checkpoints.checkpoint import (
    MODEL_PREFIX,
    UNREADABLE,
    Checkpoint,
    damaged,
    list_checkpoints,
    open_tensors,
    save,
)


def average_checkpoints(directory: str | os.PathLike, count: int) -> Checkpoint:
    """Averages the weights of the last checkpoints, and saves the mean.

    Sums are made in float64. The optimizer's state is left out: an average is
    for decoding, not for training on.

    Args:
      directory: the `checkpoints` folder of a run.
      count: how many of the newest; fewer if there are fewer.

    Raises:
      T2TLiteError: there is none, one is damaged, or they do not match.
    """
    sources = list_checkpoints(directory)[-count:]
    if not sources:
        raise T2TLiteError(
            f"There is no checkpoint to average in {directory}: train first, "
            "or put back what was moved away."
        )
    readers = [open_tensors(source.path) for source in sources]
    shapes = _model_shapes(readers[0])
    for source, reader in zip(sources, readers, strict=True):
        if _model_shapes(reader) != shapes:
            raise T2TLiteError(
                f"Checkpoints of different models cannot be averaged: "
                f"{source.path} does not match {sources[0].path}."
            )
    means = {name: _mean(name, sources, readers) for name in shapes}
    steps = [source.step for source in sources]
    state = {"step": steps[-1], "averaged_steps": steps}
    return save(directory, means, state, averaged=len(sources))


def _model_shapes(reader: Any) -> dict[str, list[int]]:
    return {
        name: shape
        for name, shape in sorted(reader.get_variable_to_shape_map().items())
        if name.startswith(MODEL_PREFIX)
    }


def _mean(
    name: str, sources: list[Checkpoint], readers: list[Any]
) -> np.ndarray:
    total: Any = 0.0
    for source, reader in zip(sources, readers, strict=True):
        try:
            value = reader.get_tensor(name)
        except UNREADABLE as error:
            raise damaged(source.path, error) from error
        total = total + value.astype(np.float64)
    return (total / len(readers)).astype(value.dtype)
