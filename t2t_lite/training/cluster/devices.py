"""The devices of a machine that share an update."""

import contextlib

import tensorflow as tf

from t2t_lite.errors import T2TLiteError
from t2t_lite.hparam import HParams
from t2t_lite.runtime import share_cores, usable_cores

# A larger model gains 3 % from halves, and takes a tenth more memory.
_SMALL = 256


def choose_strategy(
    replicas: int | None = None, hparams: HParams | None = None
) -> tf.distribute.Strategy:
    """All GPUs mirrored, else one device; `replicas` logical CPUs if given.

    Call it before TensorFlow computes anything. Afterwards it keeps the threads
    it has, so that halves gain nothing; see `computes_halves`.

    Args:
      replicas: how many logical CPU devices to train on, to try distribution
        without GPUs; None chooses by what is there.
      hparams: of the model that trains; None: it is not cut into halves.

    Raises:
      T2TLiteError: TensorFlow already runs with fewer logical devices.
    """
    if (replicas or 1) == 1 and hparams and _has_halves(hparams):
        with contextlib.suppress(RuntimeError):  # the threads are there already
            share_cores(2)
    if replicas is None:
        gpus = tf.config.list_logical_devices("GPU")
        if len(gpus) > 1:
            return tf.distribute.MirroredStrategy([gpu.name for gpu in gpus])
        return tf.distribute.get_strategy()
    if replicas == 1:
        return tf.distribute.OneDeviceStrategy("/cpu:0")
    make_logical_cpus(replicas)
    cpus = [f"/cpu:{number}" for number in range(replicas)]
    # The default, collectives, allows one group of devices a process.
    return tf.distribute.MirroredStrategy(
        cpus, cross_device_ops=tf.distribute.ReductionToOneDevice()
    )


def computes_halves(strategy: tf.distribute.Strategy, hparams: HParams) -> bool:
    """Whether the halves of a pass share a processor, see `in_halves`.

    Those of small models do, whose operations are too small for two cores.
    """
    return strategy.num_replicas_in_sync == 1 and _has_halves(hparams)


def _has_halves(hparams):
    gpus = tf.config.list_physical_devices("GPU")
    return not gpus and usable_cores() > 1 and hparams.hidden_size <= _SMALL


def device_name() -> str:
    """The name of the first GPU, or `CPU` without one."""
    for gpu in tf.config.list_physical_devices("GPU"):
        details = tf.config.experimental.get_device_details(gpu)
        return details.get("device_name", "GPU")
    return "CPU"


def make_logical_cpus(count: int) -> None:
    """Cuts the CPU into devices, to try distribution without GPUs.

    Raises:
      T2TLiteError: TensorFlow already runs with fewer of them.
    """
    try:
        tf.config.set_logical_device_configuration(
            tf.config.list_physical_devices("CPU")[0],
            [tf.config.LogicalDeviceConfiguration()] * count,
        )
    except RuntimeError as error:
        known = len(tf.config.list_logical_devices("CPU"))
        if known < count:
            raise T2TLiteError(
                f"replicas={count} must be set before TensorFlow starts, "
                f"which runs with {known} CPU device(s) already: use a fresh "
                "process."
            ) from error
