"""How much memory training takes, and how much there is."""

import contextlib
import pathlib
import re
import resource
import sys

import tensorflow as tf

_PROC = pathlib.Path("/proc")
# Of version 2 and version 1.
_NAMES = (
    ("memory.max", "memory.current", "inactive_file"),
    ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
)
_CGROUPS = pathlib.Path("/sys/fs/cgroup")


def is_on_gpu() -> bool:
    """Whether training runs on GPUs, which raise when memory is short."""
    return bool(tf.config.list_physical_devices("GPU"))


def restart_peak() -> None:
    """Lets `peak_bytes` tell of the time from now on, where that can be."""
    if is_on_gpu():
        tf.config.experimental.reset_memory_stats("GPU:0")
        return
    with contextlib.suppress(OSError):
        (_PROC / "self/clear_refs").write_text("5")


def peak_bytes() -> int:
    """The most that was taken, of the first GPU or of this process."""
    if is_on_gpu():
        return tf.config.experimental.get_memory_info("GPU:0")["peak"]
    if kilobytes := _field(_PROC / "self/status", "VmHWM"):
        return kilobytes * 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def limit_bytes() -> int | None:
    """What this process may take; None where nothing tells.

    Of a GPU: what TensorFlow gives itself. Without one: what it has and what
    is free, in the machine and in the control group, where a kernel ends
    processes that take more.
    """
    if is_on_gpu():
        return _gpu_bytes()
    taken = (_field(_PROC / "self/status", "VmRSS") or 0) * 1024
    free = free_bytes()
    return None if free is None else taken + free


def free_bytes() -> int | None:
    """What is free in the machine and in the control group, the less.

    None where nothing tells.
    """
    free = _field(_PROC / "meminfo", "MemAvailable")
    frees = [] if free is None else [free * 1024]
    frees += [room for room in map(_room, _cgroups()) if room is not None]
    return min(frees, default=None)


def _gpu_bytes() -> int | None:
    from tensorflow.python.client import device_lib

    limits = [
        device.memory_limit
        for device in device_lib.list_local_devices()
        if device.device_type == "GPU"
    ]
    return min(limits) if limits else None


def _field(path: pathlib.Path, name: str) -> int | None:
    """The number behind a name, as in "VmRSS:  1234 kB"."""
    try:
        text = path.read_text("ascii", "replace")
    except OSError:
        return None
    found = re.search(rf"^{name}:?\s+(\d+)", text, re.MULTILINE)
    return int(found[1]) if found else None


def _cgroups() -> list[pathlib.Path]:
    """The folders of this process's control groups, inner and outer ones."""
    try:
        lines = (_PROC / "self/cgroup").read_text("utf-8").splitlines()
    except OSError:
        return []
    folders = []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers in ("", "memory"):  # version 2, version 1
            root = _CGROUPS / controllers
            inner = root / path.lstrip("/")
            folders += [inner, *inner.parents][: len(path.split("/"))]
    return [folder for folder in folders if folder.is_dir()]


def _room(folder: pathlib.Path) -> int | None:
    """What a control group leaves; files in memory give way."""
    for limit, usage, files in _NAMES:
        with contextlib.suppress(OSError, ValueError):  # "max" is no number
            most = int((folder / limit).read_text())
            used = int((folder / usage).read_text())
            return most - used + (_field(folder / "memory.stat", files) or 0)
    return None
