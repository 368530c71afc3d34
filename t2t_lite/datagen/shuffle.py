"""Distribute the records of chunks to shards and sort each shard by key.

The key of a record determines its shard. Random keys shuffle the split, pair
numbers keep its order, and hashes make equal pairs adjacent. Only one shard at
a time is in memory.
"""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from t2t_lite import files
from t2t_lite.corpus import filters
from t2t_lite.datagen.encode import INDEX, Chunk, Counts, SplitEncoder
from t2t_lite.errors import T2TLiteError

# Half of the input pipeline's shuffle window, so that each epoch mixes a shard
# with other shards.
SHARD_PAIRS = 32_768


def count_shards(pairs: int) -> int:
    """Return the number of shards for a number of pairs."""
    return max(1, -(-pairs // SHARD_PAIRS))


def shard_of(keys: np.ndarray, shards: int, is_shuffled: bool) -> np.ndarray:
    """Return the shard of each key, uint64; larger keys have larger shards.

    Keys are random numbers if `is_shuffled`, else pair numbers from 1.
    """
    if is_shuffled:
        high = keys >> np.uint64(32)
        return (high * np.uint64(shards)) >> np.uint64(32)
    return (keys - np.uint64(1)) // np.uint64(SHARD_PAIRS)


def chunk_path(folder: Path, chunk: Chunk) -> Path:
    """Return the path of an encoded chunk."""
    return folder / f"chunk-{chunk.number:05d}"


def write_chunk(
    encoder: SplitEncoder,
    folder: Path,
    encoders: Mapping[str, Any],
    chunk: Chunk,
) -> None:
    """Write a chunk: a line of JSON, INDEX [records] by key, the records.

    The file is not synced to disk, because it is read soon.
    """
    index, records, counts = encoder.encode(encoders, chunk)
    order = np.argsort(index["key"], kind="stable")
    path = chunk_path(folder, chunk)
    with files.write_file(path, sync_to_disk=False) as file:
        file.write(json.dumps([len(index), vars(counts)]).encode() + b"\n")
        file.write(index[order].tobytes())
        file.write(b"".join([records[i] for i in order.tolist()]))


def read_counts(path: Path) -> Counts:
    """Return the counts of a chunk."""
    with open(path, "rb") as file:
        return Counts(**json.loads(file.readline())[1])


def read_shards(
    paths: Sequence[Path], shards: int, is_shuffled: bool
) -> Iterator[tuple[np.ndarray, list[bytes]]]:
    """Yield INDEX [records] and the records of each shard, unsorted."""
    starts = [_find_shards(path, shards, is_shuffled) for path in paths]
    for shard in range(shards):
        indices = [np.zeros(0, INDEX)]
        records: list[bytes] = []
        for path, offsets in zip(paths, starts, strict=True):
            index_starts, data_starts = offsets
            with open(path, "rb") as file:
                file.seek(index_starts[shard])
                count = index_starts[shard + 1] - index_starts[shard]
                index = np.fromfile(file, INDEX, count // INDEX.itemsize)
                file.seek(data_starts[shard])
                records += map(file.read, index["bytes"].tolist())
            indices.append(index)
        yield np.concatenate(indices), records


def _find_shards(path, shards, is_shuffled):
    """Return the byte offsets of the shards in the index and in the records."""
    with open(path, "rb") as file:
        line = file.readline()  # empty or zeros after a power failure
        count = json.loads(line)[0] if line.endswith(b"\n") else -1
        start = file.tell()
        index = np.fromfile(file, INDEX, count)
        size = file.seek(0, 2)
    ends = np.cumsum([0, *index["bytes"]], dtype=np.int64)
    if size != start + count * INDEX.itemsize + ends[-1]:
        raise T2TLiteError(f"{path} is damaged. Run the same command again.")
    shard_ids = shard_of(index["key"], shards, is_shuffled)
    firsts = np.searchsorted(shard_ids, np.arange(shards + 1))
    return start + firsts * INDEX.itemsize, start + index.nbytes + ends[firsts]


def select_records(
    index: np.ndarray, deduplicate: bool
) -> tuple[np.ndarray, Counts]:
    """Return the indices of the records to write, in order, and the counts.

    `index` is INDEX [records] of a shard, unsorted. `deduplicate` keeps only
    the first pair with the same hash.
    """
    order = np.lexsort((index["pair"], index["check"], index["key"]))
    is_copy = np.zeros(len(order), bool)
    if deduplicate:
        hashes = index[order][["key", "check"]]
        is_copy[1:] = hashes[1:] == hashes[:-1]
    kept = order[~is_copy]
    source = index["source_tokens"][kept].astype(np.int64)
    target = index["target_tokens"][kept].astype(np.int64)
    lengths = Counter(np.maximum(source, target).tolist())
    counts = Counts(lengths, int(source.sum()), int(target.sum()))
    if is_copy.any():
        counts.reasons[filters.DUPLICATES] = int(is_copy.sum())
    return kept, counts
