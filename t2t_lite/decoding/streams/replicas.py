"""Translators with the same weights that work side by side."""

import contextlib
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

import tensorflow as tf

from t2t_lite.decoding.engine import Engine
from t2t_lite.errors import UsageError
from t2t_lite.runtime import share_cores, usable_cores

# Each needs memory for a batch.
_MOST_BY_ITSELF = 4
# Units of a model whose operations on one sentence are too small for two cores.
_SMALL = 256

Made = TypeVar("Made")


class Replica(NamedTuple):
    """A translator, and the device that holds its weights and works."""

    translator: Engine
    device: str | None = None  # None leaves it to TensorFlow


def share_processor(
    count: int | None = None, units_of_line: int | None = None
) -> int | None:
    """How many searches share the processor, each with its own cores.

    A step of a search is many small operations, most of which are too small
    for two cores: two searches on a core each get much more done than one on
    both. In a process where TensorFlow has computed before, it keeps the
    threads it has.

    Args:
      count: how many; None takes one a core, but at most four.
      units_of_line: D of a model that gets one line at a time; a small one has
        one core for it. None: it gets batches.

    Returns: the number; with GPUs the count as it is, and nothing is shared.
    """
    if tf.config.list_physical_devices("GPU"):
        return count
    count = count or min(usable_cores(), _MOST_BY_ITSELF)
    on_one_core = units_of_line is not None and units_of_line <= _SMALL
    with contextlib.suppress(RuntimeError):  # the threads are there already
        share_cores(usable_cores() if on_one_core else count)
    return count


def choose_devices(count: int | None = None) -> list[str | None]:
    """The device of each replica.

    Without GPUs the replicas are threads that share the processor and one set
    of weights; see `share_processor`.

    Args:
      count: how many; None takes all GPUs, or one replica without GPUs.

    Raises:
      UsageError: there are GPUs, but fewer.
    """
    gpus = [gpu.name for gpu in tf.config.list_logical_devices("GPU")]
    if not gpus:
        return [None] * (count or 1)
    if count is not None and count > len(gpus):
        raise UsageError(
            f"There are {len(gpus)} GPUs for --replicas; got {count}."
        )
    return list(gpus[:count])


def make_on(
    devices: Sequence[str | None], make: Callable[[], Made]
) -> dict[str | None, Made]:
    """What `make` gives on each device, once for each: weights, say."""
    made = {}
    for device in dict.fromkeys(devices):
        with tf.device(device):
            made[device] = make()
    return made


def make_replicas(
    devices: Sequence[str | None], make: Callable[[], Engine]
) -> list[Replica]:
    """A replica on each device; those on the same device share the weights.

    Args:
      devices: from `choose_devices`.
      make: loads the weights and gives a translator.
    """
    made = make_on(devices, make)
    return [Replica(made[device], device) for device in devices]
