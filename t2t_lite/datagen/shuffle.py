"""Distribute the records of chunks over shards, and order each shard.

A record goes to the shard that its key belongs to, and each shard is sorted by
key. Random keys shuffle the split, pair numbers keep its order, and hashes
bring equal pairs together. Only one shard at a time is in memory.
"""

import dataclasses
import pathlib
from collections import Counter
from collections.abc import Sequence

import numpy as np

from t2t_lite import files
from t2t_lite.datagen.encode import INDEX, MOST_SAMPLES
from t2t_lite.errors import T2TLiteError

# Half of the input pipeline's shuffle window, so that a pair meets other shards
# in every epoch.
SHARD_PAIRS = 32_768


def count_shards(pairs: int) -> int:
    """Return the number of shards of a split with so many pairs."""
    return max(1, -(-pairs // SHARD_PAIRS))


def shard_of(keys: np.ndarray, shards: int, is_shuffled: bool) -> np.ndarray:
    """Return the shard of each key; it grows with the key.

    Args:
      keys: uint64 [records].
      shards: the number of shards.
      is_shuffled: keys are random numbers; otherwise pair numbers from 1.
    """
    if is_shuffled:
        high = keys >> np.uint64(32)
        return (high * np.uint64(shards)) >> np.uint64(32)
    return (keys - np.uint64(1)) // np.uint64(SHARD_PAIRS)


@dataclasses.dataclass
class Totals:
    """Sums over records.

    Attributes:
      lengths: number of records by the tokens of their longer side.
      source_tokens: tokens of all sources, EOS included.
      target_tokens: tokens of all targets, EOS included.
      copies: number of duplicates that were dropped.
      first_copies: the lowest pair numbers of these, MOST_SAMPLES at most.
    """

    lengths: Counter[int] = dataclasses.field(default_factory=Counter)
    source_tokens: int = 0
    target_tokens: int = 0
    copies: int = 0
    first_copies: list[int] = dataclasses.field(default_factory=list)

    @classmethod
    def of(cls, kept: np.ndarray, copies: np.ndarray) -> "Totals":
        """Return the totals of INDEX [records], kept and dropped ones."""
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
        """Add the totals of other records."""
        self.lengths += other.lengths
        self.source_tokens += other.source_tokens
        self.target_tokens += other.target_tokens
        self.copies += other.copies
        numbers = sorted(self.first_copies + other.first_copies)
        self.first_copies = numbers[:MOST_SAMPLES]


def order_records(
    index: np.ndarray, is_distinct: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Return positions of the kept records by key, and of the duplicates.

    Args:
      index: INDEX [records], in any order.
      is_distinct: keep only the first pair of those with equal hashes.
    """
    order = np.lexsort((index["pair"], index["check"], index["key"]))
    is_copy = np.zeros(len(order), bool)
    if is_distinct:
        hashes = index[order][["key", "check"]]
        is_copy[1:] = hashes[1:] == hashes[:-1]
    return order[~is_copy], order[is_copy]


def write_chunk(
    path: pathlib.Path, index: np.ndarray, records: Sequence[bytes]
) -> None:
    """Write the records of a chunk to a file, and their index to `path.npy`.

    Nothing waits for the disk, because the files are read soon.
    """
    order = np.argsort(index["key"], kind="stable")
    ends = np.cumsum([len(records[i]) for i in order.tolist()], dtype=np.int64)
    with files.write_file(path, to_disk=False) as file:
        file.write(b"".join([records[i] for i in order.tolist()]))
    with files.write_file(path.with_suffix(".npy"), to_disk=False) as file:
        np.save(file, index[order])
        np.save(file, np.insert(ends, 0, 0))


class ChunkFiles:
    """The files of the chunks of a split, read by shard.

    Args:
      paths: of the chunks, as given to `write_chunk`.
      shards: the number of shards.
      is_shuffled: as in `shard_of`.
    """

    def __init__(
        self, paths: Sequence[pathlib.Path], shards: int, is_shuffled: bool
    ):
        self._paths = paths
        self._starts = []  # of each chunk: int64 [shards + 1]
        for path in paths:
            index, _ = _load_index(path)
            shard = shard_of(index["key"], shards, is_shuffled)
            self._starts.append(np.searchsorted(shard, np.arange(shards + 1)))

    def read_shard(self, shard: int) -> tuple[np.ndarray, list[bytes]]:
        """Return INDEX [records] and the records of a shard, in any order.

        Raises:
          T2TLiteError: a file is damaged.
        """
        indices, records = [np.zeros(0, INDEX)], []
        for path, starts in zip(self._paths, self._starts, strict=True):
            start, end = starts[shard : shard + 2].tolist()
            if start == end:
                continue
            index, offsets = _load_index(path)
            indices.append(index[start:end].copy())
            offsets = offsets[start : end + 1]
            with open(path, "rb") as file:
                file.seek(offsets[0])
                data = file.read(offsets[-1] - offsets[0])
            offsets -= offsets[0]
            if len(data) != offsets[-1]:
                raise _damaged(path)
            ends = offsets.tolist()
            records += [
                data[begin:end]
                for begin, end in zip(ends, ends[1:], strict=False)
            ]
        return np.concatenate(indices), records


def _load_index(path: pathlib.Path) -> tuple[np.ndarray, np.ndarray]:
    try:
        with open(path.with_suffix(".npy"), "rb") as file:
            return np.load(file), np.load(file)
    except (OSError, ValueError, EOFError) as error:
        raise _damaged(path) from error


def _damaged(path: pathlib.Path) -> T2TLiteError:
    return T2TLiteError(f"{path} is damaged. The same command starts over.")
