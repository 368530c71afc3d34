"""One order for more records than memory holds.

Records come in chunks. Each chunk is written to a file of its own, sorted by
the keys of its records. Then all files are read together, one range of keys
after the other, as much as fits into memory. So the order is that of the keys:
random keys shuffle, numbers keep an order, and hashes bring equal records
together. It depends neither on the memory nor on who wrote which chunk when.
"""

import dataclasses
import os
import pathlib
from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np

from t2t_lite import files
from t2t_lite.datagen.drops import MOST_SAMPLES
from t2t_lite.errors import T2TLiteError

# What the file of a chunk begins with, one for each record.
INDEX = np.dtype(
    [
        ("key", "<u8"),  # of the order
        ("check", "<u8"),  # more of the hash that the key is the start of
        ("pair", "<u8"),  # its number in the corpus
        ("source_tokens", "<u4"),
        ("target_tokens", "<u4"),
        ("bytes", "<u4"),
    ]
)
_SLOTS = 1 << 10  # ranges of equal size that random keys are cut into


def write_chunk(
    path: str | os.PathLike, index: np.ndarray, records: Sequence[bytes]
) -> None:
    """Writes the file of a chunk, complete or not at all.

    Nothing waits for the disk: it is read soon, and its size is checked then.
    INDEX [records] may be in any order, which is also that of the records.
    """
    order = np.argsort(index["key"], kind="stable")
    with files.write_file(pathlib.Path(path), to_disk=False) as file:
        file.write(index[order].tobytes())
        file.write(b"".join([records[i] for i in order.tolist()]))


@dataclasses.dataclass
class Totals:
    """What records add up to.

    Attributes:
      lengths: number of records by the tokens of their longer side.
      source_tokens, target_tokens: of all of them.
      copies: how many more there were, copies of these.
      first_copies: the lowest numbers of the copies, MOST_SAMPLES at most.
    """

    lengths: Counter[int] = dataclasses.field(default_factory=Counter)
    source_tokens: int = 0
    target_tokens: int = 0
    copies: int = 0
    first_copies: list[int] = dataclasses.field(default_factory=list)

    @classmethod
    def of(cls, kept: np.ndarray, copies: np.ndarray) -> "Totals":
        """Those of INDEX [records] that are kept and others that are not."""
        source = kept["source_tokens"].astype(np.int64)
        target = kept["target_tokens"].astype(np.int64)
        return cls(
            Counter(np.maximum(source, target).tolist()),
            int(source.sum()),
            int(target.sum()),
            len(copies),
            sorted(copies["pair"].tolist())[:MOST_SAMPLES],
        )

    def merge(self, other: "Totals") -> None:
        """Adds those of other records."""
        self.lengths += other.lengths
        self.source_tokens += other.source_tokens
        self.target_tokens += other.target_tokens
        self.copies += other.copies
        numbers = sorted(self.first_copies + other.first_copies)
        self.first_copies = numbers[:MOST_SAMPLES]


class RecordsInOrder:
    """The records of chunk files as one sequence.

    Args:
      paths: the files, in the order of the corpus.
      counts: how many records each has.
      in_order: the keys are in order over all files; else they are random.
      distinct: of records with equal keys and checks, only the one with the
        lowest number counts.
      memory_bytes: what may be read at a time, about.

    Attributes:
      totals: what they add up to.

    Raises:
      T2TLiteError: a file is damaged.
    """

    def __init__(
        self,
        paths: Sequence[str | os.PathLike],
        counts: Sequence[int],
        in_order: bool = False,
        distinct: bool = False,
        memory_bytes: int = 96 << 20,
    ):
        self._files = list(zip(map(pathlib.Path, paths), counts, strict=True))
        self._distinct = distinct
        if in_order:
            firsts = [
                np.fromfile(path, INDEX, 1)["key"][0]
                for path, count in self._files
                if count
            ]
            borders = np.array(firsts, np.uint64)
        else:  # of even ranges
            bits = np.uint64(64 - (_SLOTS - 1).bit_length())
            borders = np.arange(_SLOTS, dtype=np.uint64) << bits
        # [chunks, slots + 1]: where slots begin, in records and in bytes
        self._starts = np.zeros((len(self._files), len(borders) + 1), np.int64)
        self._offsets = np.zeros_like(self._starts)
        for chunk in range(len(self._files)):
            self._find_slots(chunk, borders)
        self._groups = self._group(memory_bytes)
        self._kept: list[int] = []  # records of each group
        self.totals = Totals()
        for group in self._groups:
            index = self._index(group)
            order, copies = order_of(index, distinct)
            self._kept.append(len(order))
            self.totals.merge(Totals.of(index[order], index[copies]))

    def records(self, start: int = 0) -> Iterator[memoryview]:
        """Yields the records in the order of their keys.

        Args:
          start: how many to skip; groups before it are not read.
        """
        for group, kept in zip(self._groups, self._kept, strict=True):
            if start < kept:
                yield from self._records_of(group, start)
            start = max(start - kept, 0)

    def _records_of(
        self, group: tuple[int, int], start: int
    ) -> Iterator[memoryview]:
        index = self._index(group)
        data = memoryview(self._data(group))
        ends = np.cumsum(index["bytes"], dtype=np.int64)
        starts = ends - index["bytes"]
        order = order_of(index, self._distinct)[0][start:]
        places = map(slice, starts[order].tolist(), ends[order].tolist())
        yield from map(data.__getitem__, places)

    def _find_slots(self, chunk: int, borders: np.ndarray) -> None:
        path, count = self._files[chunk]
        index = np.fromfile(path, INDEX, count)
        size = index.nbytes + int(index["bytes"].sum(dtype=np.int64))
        if len(index) != count or path.stat().st_size != size:
            raise T2TLiteError(
                f"{path} is damaged: it must have {count} records and {size} "
                f"bytes; got {len(index)} and {path.stat().st_size}. The same "
                "command starts over."
            )
        ends = np.zeros(count + 1, np.int64)
        np.cumsum(index["bytes"], out=ends[1:])
        starts = np.append(np.searchsorted(index["key"], borders), count)
        self._starts[chunk] = starts
        self._offsets[chunk] = index.nbytes + ends[starts]

    def _group(self, memory_bytes: int) -> list[tuple[int, int]]:
        """Runs of slots that fit into memory: [(first, end), ...]."""
        size = np.diff(self._offsets).sum(axis=0)
        size += np.diff(self._starts).sum(axis=0) * INDEX.itemsize
        groups, first, held = [], 0, 0
        for slot, more in enumerate(size.tolist()):
            if held and held + more > memory_bytes:
                groups.append((first, slot))
                first, held = slot, 0
            held += more
        return [*groups, (first, len(size))]

    def _index(self, group: tuple[int, int]) -> np.ndarray:
        parts = [np.empty(0, INDEX)]
        for (path, _), starts in zip(self._files, self._starts, strict=True):
            first, end = starts[list(group)]
            offset = first * INDEX.itemsize
            parts.append(np.fromfile(path, INDEX, end - first, offset=offset))
        return np.concatenate(parts)

    def _data(self, group: tuple[int, int]) -> bytearray:
        first, end = group
        begins, ends = self._offsets[:, first], self._offsets[:, end]
        data = bytearray(int((ends - begins).sum()))
        view, filled = memoryview(data), 0
        for (path, _), begin, end in zip(
            self._files, begins.tolist(), ends.tolist(), strict=True
        ):
            if begin == end:
                continue
            with open(path, "rb") as file:
                file.seek(begin)
                filled += file.readinto(view[filled : filled + end - begin])
        return data


def order_of(
    index: np.ndarray, distinct: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Positions in the order of the keys, and positions of copies.

    Args:
      index: INDEX [records], by number where keys are equal.
      distinct: of records with equal keys and checks only the one with the
        lowest number is put in order; the others are copies.
    """
    if not distinct:
        return np.argsort(index["key"], kind="stable"), np.array([], int)
    order = np.lexsort((index["pair"], index["check"], index["key"]))
    found = index[order]
    is_copy = np.zeros(len(found), bool)
    hashes = found[["key", "check"]]
    is_copy[1:] = hashes[1:] == hashes[:-1]
    return order[~is_copy], order[is_copy]
