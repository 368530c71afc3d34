"""What a machine is: processor, cores, memory, GPUs."""

import contextlib
import os
import pathlib
import platform
from typing import Any

from t2t_lite.runtime import usable_cores


def hardware() -> dict[str, Any]:
    """This machine, fit for JSON; starts TensorFlow's list of devices."""
    return {
        "system": platform.platform(),
        "processor": processor_name(),
        "cores": usable_cores(),
        "memory_bytes": memory_bytes(),
        "gpus": gpu_names(),
    }


def processor_name() -> str:
    """Such as "AMD EPYC 7R13"; the architecture where no more is known."""
    with contextlib.suppress(OSError):
        for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
            key, _, value = line.partition(":")
            if key.strip() == "model name":
                return value.strip()
    return platform.processor() or platform.machine()


def memory_bytes() -> int:
    """Of the whole machine."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def gpu_names() -> list[str]:
    """The name of each GPU that TensorFlow can use."""
    import tensorflow as tf

    return [
        tf.config.experimental.get_device_details(gpu).get("device_name", "GPU")
        for gpu in tf.config.list_physical_devices("GPU")
    ]
