"""Checks of this machine, its folders, the data and a run."""

import pathlib
import platform
import shutil
import tempfile
from collections.abc import Iterator
from importlib import metadata
from typing import NamedTuple

from t2t_lite.errors import in_words
from t2t_lite.problem import Problem

_MIN_MEMORY = _MIN_DISK = 2 << 30  # bytes that a small training run needs


class Finding(NamedTuple):
    """The result of one check."""

    name: str
    ok: bool
    text: str  # the state; if it is not ok, also the remedy


def examine(
    data_dir: pathlib.Path,
    output_dir: pathlib.Path | None = None,
    problem: Problem | None = None,
    usr_dir: str | None = None,
) -> Iterator[Finding]:
    """Yield a finding for each check, in the order in which to fix them.

    Args:
      data_dir: the folder of the data.
      output_dir: the folder of a run; None skips its checks.
      problem: the problem whose data to check; None skips that check.
      usr_dir: as the option of the trainer.
    """
    checks = {
        "packages": _check_packages,
        "devices": _check_devices,
        "memory": _check_memory,
        "data_dir": lambda: _check_folder(data_dir),
    }
    if output_dir:
        checks["output_dir"] = lambda: _check_folder(output_dir)
    if problem:
        checks["data"] = lambda: _check_data(data_dir, problem)
    if output_dir:
        checks["run"] = lambda: _check_run(output_dir, usr_dir)
    for name, check in checks.items():
        try:
            ok, text = check()
        except Exception as error:  # the other checks are made all the same
            ok, text = False, in_words(error)
        yield Finding(name, ok, text)


def _check_packages() -> tuple[bool, str]:
    """Compare the installed versions with those that t2t-lite requires."""
    from packaging.requirements import Requirement

    wrong, right = [], [f"Python {platform.python_version()}"]
    for line in metadata.requires("t2t-lite") or ():
        required = Requirement(line)
        if required.marker and not required.marker.evaluate({"extra": ""}):
            continue
        try:
            version = metadata.version(required.name)
        except metadata.PackageNotFoundError:
            wrong.append(f"{required.name} is not installed")
            continue
        if required.specifier.contains(version, prereleases=True):
            right.append(f"{required.name} {version}")
        else:
            wrong.append(
                f"{required.name} {version} is not {required.specifier}"
            )
    if wrong:
        return False, f"{'; '.join(wrong)}. Install t2t-lite again."
    return True, ", ".join(right)


def _check_devices() -> tuple[bool, str]:
    from t2t_lite.runtime import usable_cores
    from t2t_lite.training import devices

    usable = devices.gpu_names()
    present = len(list(pathlib.Path("/dev").glob("nvidia[0-9]*")))
    if present > len(usable):
        return False, (
            f"TensorFlow can use {len(usable)} of {present} NVIDIA GPU(s): "
            "install 't2t-lite[gpu]', and check nvidia-smi and "
            "CUDA_VISIBLE_DEVICES"
        )
    cores = f"{usable_cores()} core(s) of {devices.processor_name()}"
    return True, f"{', '.join(usable) or 'no GPU'}; {cores}"


def _check_memory() -> tuple[bool, str]:
    from t2t_lite.training import devices

    free = devices.free_bytes()
    text = f"{_gib(free)} available"
    if free < _MIN_MEMORY:
        return False, f"{text}; training requires {_gib(_MIN_MEMORY)}"
    return True, text


def _check_folder(folder: pathlib.Path) -> tuple[bool, str]:
    """Check that a folder, or the one that will contain it, can be written."""
    existing = folder
    while not existing.exists():
        existing = existing.parent
    with tempfile.NamedTemporaryFile(dir=existing, prefix=".doctor-"):
        free = shutil.disk_usage(existing).free
    text = f"{existing}: {_gib(free)} free"
    if free < _MIN_DISK:
        return False, f"{text}; a run requires {_gib(_MIN_DISK)}"
    return True, text


def _check_data(data_dir: pathlib.Path, problem: Problem) -> tuple[bool, str]:
    from t2t_lite.data.manifest import Manifest, check_data, check_shards

    if not Manifest.path(data_dir, problem).exists():
        return True, f"{data_dir} has no data of {problem.name} yet"
    manifest = Manifest.load(data_dir, problem)
    check_data(data_dir, problem, manifest)
    check_shards(data_dir, problem, manifest)
    pairs = sum(split.examples for split in manifest.splits.values())
    return True, f"{pairs:,} pairs; all checksums are right"


def _check_run(
    output_dir: pathlib.Path, usr_dir: str | None
) -> tuple[bool, str]:
    """Open a run and read its newest checkpoint, which has checksums."""
    from t2t_lite.training import checkpoints
    from t2t_lite.training.config import CONFIG
    from t2t_lite.training.run import Run

    if not (output_dir / CONFIG).exists():
        return True, f"{output_dir} has no run yet"
    run = Run.open(output_dir, usr_dir, to_decode=True)
    saved = checkpoints.list_checkpoints(run.checkpoints_dir)
    if not saved:
        return True, f"{output_dir} has no checkpoint yet"
    newest = saved[-1].path
    reader = checkpoints.Reader(newest)
    reader.verify()
    return True, (
        f"step {saved[-1].step:,}: {len(reader.shapes)} tensors are readable"
    )


def _gib(count: int) -> str:
    return f"{count / 2**30:,.1f} GiB"
