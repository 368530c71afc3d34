"""The devices of this process: selection, names and memory."""

import contextlib
import pathlib
import platform
import resource
import sys

import tensorflow as tf

from t2t_lite.errors import T2TLiteError
from t2t_lite.hparam import HParams
from t2t_lite.tf_setup import num_cpus, set_num_threads

# Splitting the cores speeds up larger models by 3 % and takes 10 % more memory.
_MAX_SPLIT_HIDDEN_SIZE = 256


def choose_strategy(
    replicas: int | None = None, hparams: HParams | None = None
) -> tf.distribute.Strategy:
    """Return the strategy of one process: all GPUs, or one CPU.

    Call it before TensorFlow runs an operation: later calls cannot change the
    threads that `splits_cores` requires. `replicas` is the number of logical
    CPU devices, to test distribution without GPUs.

    Raises:
      T2TLiteError: TensorFlow already runs with fewer logical devices.
    """
    if hparams and splits_cores(replicas or 1, hparams):
        with contextlib.suppress(RuntimeError):  # the threads already exist
            set_num_threads(2)
    if replicas is None:
        gpus = tf.config.list_logical_devices("GPU")
        if len(gpus) > 1:
            return tf.distribute.MirroredStrategy([gpu.name for gpu in gpus])
        return tf.distribute.get_strategy()
    if replicas == 1:
        return tf.distribute.OneDeviceStrategy("/cpu:0")
    (cpu,) = tf.config.list_physical_devices("CPU")
    with contextlib.suppress(RuntimeError):  # TensorFlow is already running
        tf.config.set_logical_device_configuration(
            cpu, [tf.config.LogicalDeviceConfiguration()] * replicas
        )
    if len(tf.config.list_logical_devices("CPU")) < replicas:
        raise T2TLiteError(
            f"`replicas={replicas}` must be set before TensorFlow starts: use "
            "a new process."
        )
    # The default, collectives, allows one group of devices per process.
    return tf.distribute.MirroredStrategy(
        [f"/cpu:{index}" for index in range(replicas)],
        cross_device_ops=tf.distribute.ReductionToOneDevice(),
    )


def splits_cores(replicas: int, hparams: HParams) -> bool:
    """Return whether an `Updater` computes two slices concurrently on a CPU.

    The operations of small models are too small to use all cores.
    """
    small = replicas == 1 and hparams.hidden_size <= _MAX_SPLIT_HIDDEN_SIZE
    return small and not is_gpu() and num_cpus() > 1


def is_gpu() -> bool:
    """Return whether TensorFlow can use a GPU."""
    return bool(tf.config.list_physical_devices("GPU"))


def processor_name() -> str:
    """Return the name of the CPU, such as "AMD EPYC 7R13"."""
    with contextlib.suppress(OSError):
        for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
            key, _, value = line.partition(":")
            if key.strip() == "model name":
                return value.strip()
    return platform.processor() or platform.machine()


def gpu_names() -> list[str]:
    """Return the name of each GPU that TensorFlow can use."""
    return [
        tf.config.experimental.get_device_details(gpu).get("device_name", "GPU")
        for gpu in tf.config.list_physical_devices("GPU")
    ]


def device_name() -> str:
    """Return the name of the first GPU, or "CPU"."""
    return next(iter(gpu_names()), "CPU")


def peak_bytes() -> int:
    """Return the peak memory of the first GPU, or of this process, in bytes."""
    if is_gpu():
        return tf.config.experimental.get_memory_info("GPU:0")["peak"]
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
