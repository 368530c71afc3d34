"""The memory check: run the largest batch once before training."""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import tensorflow as tf

from t2t_lite.data.packing import feature_names, packed_shape
from t2t_lite.errors import T2TLiteError
from t2t_lite.hparam import HParams
from t2t_lite.training import devices
from t2t_lite.training.distribute import exchange, workers_of
from t2t_lite.training.update import Updater

FACT = "largest_batch"  # in the run's config: peak memory by device


def largest_shape(hparams: HParams) -> tuple[int, int]:
    """Return rows and columns of the micro-batch that needs most memory."""
    positions = hparams.batch_tokens // hparams.micro_batches
    return packed_shape(positions, hparams.max_length)


def full_batch(
    shape: tuple[int, int], packing: bool, target: int = 1
) -> dict[str, tf.Tensor]:
    """Return features without padding; packed: of one pair each row.

    Args:
      shape: rows and columns.
      packing: whether rows have segments.
      target: the id of all target tokens.
    """
    ones = tf.ones(shape, tf.int32)
    positions = tf.broadcast_to(tf.range(shape[1]), shape)
    features = {
        name: positions if name.endswith("_position") else ones
        for name in feature_names(packing)
    }
    return features | {"targets": target * ones}


def describe(hparams: HParams, slices: int) -> str:
    """Return the size of the largest pass in words."""
    rows, columns = largest_shape(hparams)
    return (
        f"{slices * hparams.micro_batches} x {-(-rows // slices)} sentences of "
        f"{columns} tokens a side"
    )


def try_largest_batch(
    updater: Updater,
    hparams: HParams,
    slices: int,
    config: Mapping[str, Any],
    record: Callable[..., None],
    phase: Callable[[str], None],
) -> None:
    """Make an update of the largest micro-batches, which changes nothing.

    A run records which devices have done it, and does not repeat it there.

    Args:
      updater: of the model that is trained.
      hparams: of the run.
      slices: parts that each micro-batch is passed in.
      config: of the run.
      record: adds facts to it.
      phase: reports what is done now.

    Raises:
      T2TLiteError: it does not fit.
    """
    size = describe(hparams, slices)
    key = f"{devices.device_name()} x {updater.replicas}, {size}"
    key += ", recomputed" * updater.recompute
    known = config.get(FACT, {})
    if all(exchange(updater.strategy, key in known)):
        return
    free = "" if devices.is_gpu() else f" ({gib(devices.free_bytes())} free)"
    # The kernel may end a process on a CPU: this is its last line then.
    phase(f"Trying the largest batch: {size}{free}.")
    # Without a target token, an update is skipped.
    batch = full_batch(largest_shape(hparams), hparams.packing, target=0)
    with explaining_shortage(hparams, slices):
        updater.update([batch] * updater.replicas, step=1).read()
    if workers_of(updater.strategy)[1] == 0:
        record(**{FACT: {**known, key: devices.peak_bytes()}})


@contextlib.contextmanager
def explaining_shortage(hparams: HParams, slices: int) -> Iterator[None]:
    """Turn an out-of-memory error into one line with the size and a fix."""
    try:
        yield
    except (MemoryError, tf.errors.ResourceExhaustedError) as error:
        more = 2 * slices * hparams.micro_batches
        raise T2TLiteError(
            f"The largest batch, {describe(hparams, slices)} on each device, "
            f"does not fit into the memory of {devices.device_name()}. Give "
            f"--micro_batches={more}: more passes, the same update; or lower "
            "max_length or the sizes of the model in a new run."
        ) from error


def gib(count: int) -> str:
    """Return a number of bytes in GiB, with its unit."""
    return f"{count / 2**30:.2f} GiB"
