"""A random order for more records than memory holds."""

import os
import pathlib
import struct
from collections.abc import Iterator

import numpy as np

_LENGTH = struct.Struct("<I")  # before each record in a part


class ExternalShuffle:
    """Takes records one by one, gives them back once in a random order.

    Up to `memory_bytes` they stay in memory. Beyond that each goes to a random
    one of many files, and every file is shuffled in memory later: all orders
    are equally likely, and memory holds about total / `parts` at a time.

    Args:
      folder: for the files; made when needed, to be removed by the caller.
      seed: of the order, which also depends on the two sizes below.
      memory_bytes: what may be held while records come in.
      parts: files.
    """

    def __init__(
        self,
        folder: str | os.PathLike,
        seed: int,
        memory_bytes: int = 256 << 20,
        parts: int = 64,
    ):
        self._folder = pathlib.Path(folder)
        self._generator = np.random.default_rng(seed)
        self._memory_bytes = memory_bytes
        self._parts = parts
        self._held = []
        self._held_bytes = 0
        self._spilled = False

    def add(self, record: bytes) -> None:
        """Takes a record in."""
        self._held.append(record)
        self._held_bytes += len(record)
        if self._held_bytes > self._memory_bytes:
            self._spill()

    def __iter__(self) -> Iterator[bytes]:
        """Yields all records, once; nothing may be added after that."""
        if self._spilled:
            self._spill()
        yield from self._shuffled(self._held)
        self._held = []
        if self._spilled:
            for part in range(self._parts):
                yield from self._shuffled(self._read(part))
                self._path(part).unlink(missing_ok=True)

    def _shuffled(self, records):
        for index in self._generator.permutation(len(records)):
            yield records[index]

    def _spill(self):
        self._folder.mkdir(parents=True, exist_ok=True)
        self._spilled = True
        part_of = self._generator.integers(self._parts, size=len(self._held))
        for part in range(self._parts):
            with open(self._path(part), "ab") as file:
                for index in np.flatnonzero(part_of == part):
                    record = self._held[index]
                    file.write(_LENGTH.pack(len(record)))
                    file.write(record)
        self._held, self._held_bytes = [], 0

    def _read(self, part):
        data = self._path(part).read_bytes()
        records, start = [], 0
        while start < len(data):
            (length,) = _LENGTH.unpack_from(data, start)
            start += _LENGTH.size
            records.append(data[start : start + length])
            start += length
        return records

    def _path(self, part):
        return self._folder / f"part-{part:03d}"
