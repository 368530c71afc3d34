"""Checks of the machine: Python, packages, devices, memory."""

import pathlib
import sys
from collections.abc import Callable, Iterator
from importlib import metadata

from t2t_lite.doctor.finding import Asked, Finding
from t2t_lite.reports import hardware
from t2t_lite.runtime import usable_cores

_OLDEST, _NEWEST = (3, 11), (3, 13)
_MIN_MEMORY = 2 << 30  # half a GiB is TensorFlow's
_DEVICES = pathlib.Path("/dev")
_SHOWN = ("tensorflow", "keras", "numpy")


def check_python(asked: Asked) -> Iterator[Finding]:
    """Whether this Python is one of those that are tested."""
    version = tuple(sys.version_info[:2])
    told = ".".join(map(str, sys.version_info[:3]))
    fits = _OLDEST <= version <= _NEWEST
    if not fits:
        told += " is not tested: use 3.11, 3.12 or 3.13"
    yield Finding("Python", fits, told)


def check_packages(asked: Asked) -> Iterator[Finding]:
    """Whether what is needed is installed, in versions that fit each other."""
    wrong = list(unmet("t2t-lite", metadata.version, metadata.requires))
    if wrong:
        told = (
            f"{'; '.join(wrong)}. Install t2t-lite again: pip install "
            "--upgrade t2t-lite"
        )
        yield Finding("packages", False, told)
        return
    versions = ", ".join(f"{n} {metadata.version(n)}" for n in _SHOWN)
    yield Finding("packages", True, f"{versions}; all fit each other")


def unmet(
    package: str,
    version_of: Callable[[str], str],
    requirements_of: Callable[[str], list[str] | None],
) -> Iterator[str]:
    """What a package and those that it needs ask for and is not there.

    Args:
      package: its name.
      version_of: the version of a package that is installed.
      requirements_of: what such a package needs.
    """
    from packaging.requirements import Requirement

    needed = [package]
    for name in needed:
        for line in requirements_of(name) or ():
            requirement = Requirement(line)
            if requirement.marker and not requirement.marker.evaluate(
                {"extra": ""}
            ):
                continue
            told = f"{name} needs {requirement.name}{requirement.specifier}"
            try:
                version = version_of(requirement.name)
            except metadata.PackageNotFoundError:
                yield f"{told}, which is not installed"
                continue
            if not requirement.specifier.contains(version, prereleases=True):
                yield f"{told}; {version} is installed"
            if name == package:  # theirs are looked at, too
                needed.append(requirement.name)


def check_devices(asked: Asked) -> Iterator[Finding]:
    """Whether TensorFlow sees the GPUs that are there."""
    seen = hardware.gpu_names()
    there = len(list(_DEVICES.glob("nvidia[0-9]*")))
    if there > len(seen):
        told = (
            f"the machine has {there} NVIDIA GPU(s), and TensorFlow can use "
            f"{len(seen)}: pip install 't2t-lite[gpu]', look at nvidia-smi, "
            "and at CUDA_VISIBLE_DEVICES"
        )
        yield Finding("devices", False, told)
        return
    cores = f"{usable_cores()} core(s) of {hardware.processor_name()}"
    yield Finding("devices", True, f"{', '.join(seen) or 'no GPU'}; {cores}")


def check_memory(asked: Asked) -> Iterator[Finding]:
    """Whether there is memory to train even the smallest model."""
    free = available_memory()
    told = (
        f"{free / 2**30:.1f} GiB of {hardware.memory_bytes() / 2**30:.1f} free"
    )
    if free < _MIN_MEMORY:
        told += (
            ": end what takes the rest; training needs 2 GiB at least, and "
            "t2t-lite-trainer --dry_run tells how much more"
        )
    yield Finding("memory", free >= _MIN_MEMORY, told)


def available_memory() -> int:
    """Bytes that programs here may still take, without swapping."""
    from t2t_lite.training.fit import memory  # loads TensorFlow

    free = memory.free_bytes()
    return hardware.memory_bytes() if free is None else free  # not on Linux
