"""What the data of a problem looks like, read back from its shards.

One pass over all records, in windows: counts, lengths and byte pieces are those
of every pair. Texts are those of a sample, because only they need decoding.
"""

import heapq
import os
import pathlib
from collections.abc import Iterator

import numpy as np
import tensorflow as tf

from t2t_lite.data.checks import check_data, verify_shards
from t2t_lite.data.input_pipeline import naming_damaged_shards
from t2t_lite.data.inspection_records import (
    Inspection,
    Pair,
    Side,
    SplitInspection,
)
from t2t_lite.data.manifest import Manifest, SplitRecord
from t2t_lite.data.windows import parsed_sides
from t2t_lite.errors import T2TLiteError
from t2t_lite.problem import Problem
from t2t_lite.progress import Counter

SAMPLED_PAIRS = 20_000  # of a split, for words
DRAWN_PAIRS = 10
LONGEST_PAIRS = 5
_WINDOW = 32_768  # records parsed at once
_READ_BYTES = 8 << 20


def inspect_data(
    data_dir: str | os.PathLike,
    problem: Problem,
    seed: int = 0,
    progress: bool = True,
) -> Inspection:
    """Reads all the data of a problem that is there; makes none.

    Memory is bounded by a window of records, the sample and the longest pairs.

    Args:
      data_dir: where the data is.
      problem: in either direction; its encoders have `vocab_size`, `decode`
        and, where bytes are to be counted, `pieces`.
      seed: of the pairs that are drawn.
      progress: tell on stderr how it goes.

    Raises:
      T2TLiteError: there is no data, or a shard or the vocabulary is not the
        one of the manifest, or does not fit the other; names the file.
    """
    data_dir = pathlib.Path(data_dir)
    manifest = Manifest.load(data_dir, problem)
    check_data(data_dir, problem, manifest)
    verify_shards(data_dir, manifest)
    encoders = problem.load_encoders(data_dir)
    files = problem.vocabulary_files()
    inputs, targets = problem.directed(files["inputs"], files["targets"])
    files = {"inputs": inputs, "targets": targets}
    splits = {}
    for index, split in enumerate(manifest.splits):
        reader = _SplitReader(
            problem, encoders, manifest.split(split), [seed, index]
        )
        with (
            naming_damaged_shards(data_dir, manifest, split),
            Counter(f"{problem.name} {split}", "pairs", progress) as counter,
        ):
            for window in _windows(data_dir, problem, manifest.split(split)):
                counter.advance(reader.add(*window))
        splits[split] = reader.result()
    return Inspection(
        problem=problem.name,
        data_dir=str(data_dir),
        vocabulary={
            side: {
                "file": files[feature],
                "pieces": encoders[feature].vocab_size,
            }
            for side, feature in (("source", "inputs"), ("target", "targets"))
        },
        seed=seed,
        splits=splits,
    )


def _windows(data_dir, problem, record) -> Iterator[tuple]:
    """The (inputs, targets) of records, ragged int64, in the files' order."""
    paths = [str(data_dir / shard.file) for shard in record.shards]
    return iter(
        tf.data.TFRecordDataset(paths, buffer_size=_READ_BYTES)
        .batch(_WINDOW)
        .map(
            lambda serialized: parsed_sides(serialized, problem),
            num_parallel_calls=tf.data.AUTOTUNE,
        )
        .prefetch(1)
    )


class _SplitReader:
    """Takes in a split, a window at a time."""

    def __init__(
        self, problem: Problem, encoders, record: SplitRecord, seed: list[int]
    ):
        self._record = record
        self._sides = [
            _SideReader(f"{problem.base_name} {feature}", encoders[feature])
            for feature in ("inputs", "targets")
        ]
        self._lengths = np.zeros(0, np.int64)
        self._longest = []  # a heap: [(tokens, -number, source, target)]
        self._read = 0
        count = record.examples
        chosen = np.random.default_rng(seed).choice(
            count, min(SAMPLED_PAIRS, count), replace=False
        )
        self._drawn = dict.fromkeys(chosen[:DRAWN_PAIRS].tolist())
        self._sample = np.sort(chosen)

    def add(self, source: tf.RaggedTensor, target: tf.RaggedTensor) -> int:
        """Counts a window; returns how many pairs it has."""
        rows = [
            _Rows(side.values.numpy(), side.row_splits.numpy())
            for side in (source, target)
        ]
        longer = np.maximum(rows[0].lengths, rows[1].lengths)
        self._lengths = _added(self._lengths, longer)
        for side, window in zip(self._sides, rows, strict=True):
            side.count(window)
        self._keep_longest(rows, longer)
        self._decode_sample(rows, len(longer))
        self._read += len(longer)
        return len(longer)

    def _keep_longest(self, rows, longer):
        least = self._longest[0][0] if self._longest else 0
        # Stable: of equally long ones, the first.
        for row in np.argsort(-longer, kind="stable")[:LONGEST_PAIRS]:
            if len(self._longest) == LONGEST_PAIRS and longer[row] <= least:
                break
            entry = (
                int(longer[row]),
                -(self._read + int(row)),
                *(side.row(row).copy() for side in rows),
            )
            if len(self._longest) == LONGEST_PAIRS:
                heapq.heappushpop(self._longest, entry)
            else:
                heapq.heappush(self._longest, entry)
            least = self._longest[0][0]

    def _decode_sample(self, rows, count):
        first, end = np.searchsorted(
            self._sample, [self._read, self._read + count]
        )
        chosen = self._sample[first:end]
        texts = [
            side.sample([window.row(row) for row in chosen - self._read])
            for side, window in zip(self._sides, rows, strict=True)
        ]
        for place, *pair in zip(chosen.tolist(), *texts, strict=True):
            if place in self._drawn:
                lengths = (
                    int(side.lengths[place - self._read]) for side in rows
                )
                self._drawn[place] = Pair(place + 1, *lengths, *pair)

    def result(self) -> SplitInspection:
        """What was read, when all is read."""
        record, (source, target) = self._record, self._sides
        longest = sorted(self._longest, key=lambda entry: entry[:2])[::-1]
        texts = [
            side.decode([entry[place] for entry in longest])
            for place, side in enumerate(self._sides, start=2)
        ]
        return SplitInspection(
            examples=self._read,
            dropped=record.dropped,
            dropped_samples=record.dropped_samples,
            source=source.result(),
            target=target.result(),
            lengths=_counted(self._lengths),
            sampled=len(self._sample),
            longest=tuple(
                Pair(1 - entry[1], len(entry[2]), len(entry[3]), *pair)
                for entry, *pair in zip(longest, *texts, strict=True)
            ),
            drawn=tuple(self._drawn.values()),
        )


class _SideReader:
    """Takes in one side of a split."""

    def __init__(self, place, encoder):
        self._place = place
        self._encoder = encoder
        self._is_byte = _byte_table(encoder)
        self._lengths = np.zeros(0, np.int64)
        self._bytes = self._tokens = self._words = 0

    def count(self, rows):
        self._lengths = _added(self._lengths, rows.lengths)
        size, ids = self._encoder.vocab_size, rows.ids
        if len(ids) and not 0 <= ids.min() <= ids.max() < size:
            raise T2TLiteError(
                f"The ids of {self._place} must be below the {size} pieces of "
                f"the vocabulary; got {ids.min()} to {ids.max()}. The shards "
                "were made with another vocabulary: make them anew."
            )
        if self._is_byte is not None:
            self._bytes += int(np.count_nonzero(self._is_byte[ids]))

    def sample(self, rows):
        """Decodes rows and counts their words; returns the texts."""
        texts = self.decode(rows)
        self._tokens += sum(map(len, rows)) - len(rows)
        self._words += sum(len(text.split()) for text in texts)
        return texts

    def decode(self, rows):
        return self._encoder.decode(rows) if rows else []

    def result(self):
        has_bytes = self._is_byte is not None
        return Side(
            lengths=_counted(self._lengths),
            byte_tokens=self._bytes if has_bytes else None,
            sampled_tokens=self._tokens,
            sampled_words=self._words,
        )


class _Rows:
    """One side of a window: flat ids, and where each row starts."""

    def __init__(self, ids, splits):
        self.ids = ids
        self.splits = splits
        self.lengths = np.diff(splits)

    def row(self, index):
        return self.ids[self.splits[index] : self.splits[index + 1]]


def _byte_table(encoder):
    """Bool [V], True where a piece is a byte; None if no piece is one."""
    if not hasattr(encoder, "pieces"):
        return None
    names = {f"<0x{byte:02X}>" for byte in range(256)}
    pieces = encoder.pieces(range(encoder.vocab_size))
    table = np.array([piece in names for piece in pieces])
    return table if table.any() else None


def _added(counts, lengths):
    """`counts[n]` grown by how often n is among `lengths`."""
    more = np.bincount(lengths, minlength=len(counts))
    more[: len(counts)] += counts
    return more


def _counted(counts):
    """{length: count}, as in a manifest."""
    return {int(n): int(counts[n]) for n in np.flatnonzero(counts)}
