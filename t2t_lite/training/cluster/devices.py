"""The devices of a machine that share an update."""

import tensorflow as tf

from t2t_lite.errors import T2TLiteError


def choose_strategy(replicas: int | None = None) -> tf.distribute.Strategy:
    """All GPUs mirrored, else one device; `replicas` logical CPUs if given.

    Args:
      replicas: how many logical CPU devices to train on, to try distribution
        without GPUs; None chooses by what is there.

    Raises:
      T2TLiteError: TensorFlow already runs with fewer logical devices.
    """
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
