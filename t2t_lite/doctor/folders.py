"""Checks of the folders: can they be written, have they room, how fast?"""

import os
import pathlib
import shutil
import tempfile
import time
from collections.abc import Iterator

from t2t_lite.doctor.finding import Asked, Finding
from t2t_lite.errors import in_words

_LEAST_FREE = 2 << 30
_LEAST_WRITTEN = 5e6  # bytes a second; a checkpoint has hundreds of megabytes
_MOST_TO_READ = 0.05  # seconds for a small file
_WRITTEN = 16 << 20
_CHUNK = 1 << 20
_SECONDS = 2.0  # for writing; slower is too slow anyway


def check_data_dir(asked: Asked) -> Iterator[Finding]:
    """The folder of the data."""
    yield check_folder("--data_dir", asked.data_dir)


def check_output_dir(asked: Asked) -> Iterator[Finding]:
    """The folder of the run."""
    if asked.output_dir:
        yield check_folder("--output_dir", asked.output_dir)


def check_folder(name: str, folder: pathlib.Path) -> Finding:
    """Whether a folder, or the one in which it would be made, can be used."""
    place = folder
    while not place.exists():
        place = place.parent
    try:
        free = shutil.disk_usage(place).free
        written, read = speeds(place)
    except OSError as error:
        return Finding(name, False, f"{place}: {in_words(error, place=False)}")
    told = (
        f"{place}: {free / 2**30:,.1f} GiB free, writes {written / 1e6:,.0f} "
        f"MB/s, reads a small file in {read * 1e3:.1f} ms"
    )
    if free < _LEAST_FREE:
        told += ": free some space, a run needs 2 GiB at least"
    elif written < _LEAST_WRITTEN or read > _MOST_TO_READ:
        told += ": this is slow, choose a place on a disk of this machine"
    else:
        return Finding(name, True, told)
    return Finding(name, False, told)


def speeds(folder: pathlib.Path) -> tuple[float, float]:
    """Bytes a second that a folder takes, and seconds to read a small file.

    Nothing is left there.
    """
    content = os.urandom(_CHUNK)
    with tempfile.NamedTemporaryFile(dir=folder, prefix=".doctor-") as file:
        start = time.monotonic()
        size = 0
        while size < _WRITTEN and time.monotonic() - start < _SECONDS:
            size += file.write(content)
            file.flush()
            os.fsync(file.fileno())
        written = size / max(time.monotonic() - start, 1e-9)
        start = time.monotonic()
        with open(file.name, "rb") as small:
            small.read(4096)
        return written, time.monotonic() - start
