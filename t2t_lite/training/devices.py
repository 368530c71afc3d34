"""The devices of this process: which train, their name and their memory."""

import contextlib
import pathlib
import resource
import sys

import psutil
import tensorflow as tf

from t2t_lite.errors import T2TLiteError
from t2t_lite.hparam import HParams
from t2t_lite.runtime import share_cores, usable_cores

# A model with larger layers gains 3 % from halves, and needs 10 % more memory.
_LARGEST_HALVED = 256


def choose_strategy(
    replicas: int | None = None, hparams: HParams | None = None
) -> tf.distribute.Strategy:
    """Return the strategy of one process: all GPUs, else one CPU.

    Call it before TensorFlow computes anything. Afterwards TensorFlow keeps
    its threads, and halves are not faster; see `computes_halves`.

    Args:
      replicas: number of logical CPU devices, to try distribution without
        GPUs; None uses the GPUs, or one CPU.
      hparams: of the model to train; None computes no halves.

    Raises:
      T2TLiteError: TensorFlow already runs with fewer logical devices.
    """
    if (replicas or 1) == 1 and hparams and _has_halves(hparams):
        with contextlib.suppress(RuntimeError):  # the threads exist already
            share_cores(2)
    if replicas is None:
        gpus = tf.config.list_logical_devices("GPU")
        if len(gpus) > 1:
            return tf.distribute.MirroredStrategy([gpu.name for gpu in gpus])
        return tf.distribute.get_strategy()
    if replicas == 1:
        return tf.distribute.OneDeviceStrategy("/cpu:0")
    (cpu,) = tf.config.list_physical_devices("CPU")
    with contextlib.suppress(RuntimeError):  # TensorFlow runs already
        tf.config.set_logical_device_configuration(
            cpu, [tf.config.LogicalDeviceConfiguration()] * replicas
        )
    if len(tf.config.list_logical_devices("CPU")) < replicas:
        raise T2TLiteError(
            f"replicas={replicas} must be set before TensorFlow starts: use a "
            "fresh process."
        )
    # The default, collectives, allows one group of devices in a process.
    return tf.distribute.MirroredStrategy(
        [f"/cpu:{number}" for number in range(replicas)],
        cross_device_ops=tf.distribute.ReductionToOneDevice(),
    )


def computes_halves(strategy: tf.distribute.Strategy, hparams: HParams) -> bool:
    """Return whether the halves of a pass share a processor (`in_halves`).

    The operations of small models are too small for two cores.
    """
    return strategy.num_replicas_in_sync == 1 and _has_halves(hparams)


def _has_halves(hparams):
    small = hparams.hidden_size <= _LARGEST_HALVED
    return small and not is_gpu() and usable_cores() > 1


def is_gpu() -> bool:
    """Return whether TensorFlow can use a GPU."""
    return bool(tf.config.list_physical_devices("GPU"))


def device_name() -> str:
    """Return the name of the first GPU, or `CPU` without one."""
    for gpu in tf.config.list_physical_devices("GPU"):
        details = tf.config.experimental.get_device_details(gpu)
        return details.get("device_name", "GPU")
    return "CPU"


def peak_bytes() -> int:
    """Return the peak memory of the first GPU, or of this process."""
    if is_gpu():
        return tf.config.experimental.get_memory_info("GPU:0")["peak"]
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def free_bytes(cgroup: pathlib.Path = pathlib.Path("/sys/fs/cgroup")) -> int:
    """Return the memory that is free in the machine and in its container.

    Args:
      cgroup: the folder of the container's control group, version 2.
    """
    free = psutil.virtual_memory().available
    # The files are missing without a group; "max" is not a number.
    with contextlib.suppress(OSError, ValueError):
        limit = int((cgroup / "memory.max").read_text())
        used = int((cgroup / "memory.current").read_text())
        # Cached files count as used but give way.
        lines = (cgroup / "memory.stat").read_text().splitlines()
        cached = int(dict(map(str.split, lines))["inactive_file"])
        free = min(free, limit - used + cached)
    return free
