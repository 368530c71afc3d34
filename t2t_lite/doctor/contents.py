"""Checks of what lies in the folders: data, and a run."""

import pathlib
import time
from collections.abc import Iterator

from t2t_lite.data.manifest import Manifest, sha256_of
from t2t_lite.data.remedies import how_to_remake
from t2t_lite.doctor.finding import Asked, Finding
from t2t_lite.training.config import CONFIG


def check_data(asked: Asked) -> Iterator[Finding]:
    """Whether the data is of its problem, and as it was made."""
    from t2t_lite.data import checks

    problem, folder = asked.problem, asked.data_dir
    if problem is None:
        return
    if not Manifest.path(folder, problem).exists():
        told = f"{folder} has none of {problem.name} yet: the trainer makes it"
        yield Finding("data", True, told)
        return
    manifest = Manifest.load(folder, problem)
    checks.check_data(folder, problem, manifest)
    shards = [s for split in manifest.splits.values() for s in split.shards]
    start, compared = time.monotonic(), 0
    for shard in shards:
        if asked.seconds and time.monotonic() - start > asked.seconds:
            break
        if sha256_of(folder / shard.file) != shard.sha256:
            remake = how_to_remake(problem, folder)
            told = f"{folder / shard.file} is damaged. {remake}"
            yield Finding("data", False, told)
            return
        compared += 1
    pairs = sum(split.examples for split in manifest.splits.values())
    told = f"{pairs:,} pairs, checksums of {compared} of {len(shards)} shards"
    if compared < len(shards):
        told += " compared (--full compares all)"
    yield Finding("data", True, told)


def check_run(asked: Asked) -> Iterator[Finding]:
    """Whether a run's config, vocabulary and newest checkpoint can be read."""
    folder = asked.output_dir
    if folder is None:
        return
    if not (folder / CONFIG).exists():
        yield Finding("run", True, f"none in {folder} yet")
        return
    from t2t_lite.training.checkpoints import checkpoint
    from t2t_lite.training.run import Run

    run = Run.open(folder, asked.usr_dir, to_decode=True)
    saved = checkpoint.list_checkpoints(run.checkpoints_dir)
    if not saved:
        yield Finding("run", True, f"{folder}: no checkpoint yet")
        return
    newest = saved[-1].path
    checkpoint.read_state(newest)
    read, count = _read_tensors(newest, asked.seconds)
    told = (
        f"{folder}: update {saved[-1].step:,}, {read} of {count} tensors read"
    )
    if read < count:
        told += " (--full reads all)"
    yield Finding("run", True, told)


def _read_tensors(path: pathlib.Path, seconds: float | None) -> tuple[int, int]:
    """Reads a checkpoint's tensors as time allows, which compares checksums.

    Returns: how many were read, and how many there are.
    """
    from t2t_lite.training.checkpoints import checkpoint

    start, read = time.monotonic(), 0
    reader = checkpoint.open_tensors(path)
    names = sorted(reader.get_variable_to_shape_map())
    for name in names:
        if seconds and time.monotonic() - start > seconds:
            break
        try:
            reader.get_tensor(name)
        except checkpoint.UNREADABLE as error:
            raise checkpoint.damaged(path, error) from error
        read += 1
    return read, len(names)
