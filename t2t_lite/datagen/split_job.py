"""What is done with the chunks of a split: filter, encode, write.

All of it is the same in this process, in another one and on another machine.
"""

import dataclasses
import pathlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from t2t_lite.corpus import filters
from t2t_lite.corpus.held_out import digest_of
from t2t_lite.datagen.chunks import Chunk
from t2t_lite.datagen.drops import Drops, damage_in
from t2t_lite.datagen.external_shuffle import INDEX, write_chunk
from t2t_lite.datagen.serialization import frame, serialize_pairs
from t2t_lite.datagen.unfinished import read_record, write_record
from t2t_lite.problem import Problem

# What is filtered and shuffled. A score is one of the whole set, in its order.
_TRAIN = "train"


@dataclasses.dataclass(frozen=True)
class SplitJob:
    """How each chunk of a split is filtered, encoded and written.

    Attributes:
      problem: whose split it is.
      split: which one.
      vocabulary_dir: where the vocabulary files are.
      folder: where the files of the chunks go.
      seed: of the order, where the split is shuffled.
    """

    problem: Problem
    split: str
    vocabulary_dir: pathlib.Path
    folder: pathlib.Path
    seed: int

    @property
    def label(self) -> str:
        """What people are told it is, such as "wmt_ende train"."""
        return f"{self.problem.base_name} {self.split}"

    @property
    def filters(self) -> dict[str, Any]:
        """Those that the split has."""
        if self.split != _TRAIN:
            return {}
        return filters.checked(self.problem.filters)

    @property
    def is_distinct(self) -> bool:
        """Whether each pair counts once."""
        return filters.DUPLICATES in self.filters

    @property
    def is_shuffled(self) -> bool:
        """Whether the split is in a random order."""
        return self.split == _TRAIN

    def path(self, number: int) -> pathlib.Path:
        """Where the records of a chunk are."""
        return self.folder / f"chunk-{number:05d}"

    def is_done(self, number: int) -> bool:
        """Whether the chunk was written already."""
        return self._report_path(number).exists()

    def report(self, number: int) -> tuple[int, Drops]:
        """How many records a written chunk has, and what was left out."""
        report = read_record(self._report_path(number))
        return report["examples"], Drops(**report["drops"])

    def _report_path(self, number: int) -> pathlib.Path:
        return self.path(number).with_suffix(".json")

    def run(self, encoders: Mapping[str, Any], chunk: Chunk) -> None:
        """Filters, encodes and writes a chunk, its report last."""
        index, records, drops = self.encode(encoders, chunk)
        write_chunk(self.path(chunk.number), index, records)
        report = {"examples": len(records), "drops": dataclasses.asdict(drops)}
        write_record(self._report_path(chunk.number), report)

    def encode(
        self, encoders: Mapping[str, Any], chunk: Chunk
    ) -> tuple[np.ndarray, list[bytes], Drops]:
        """Filters and encodes a chunk.

        Returns: INDEX [records]; the records, in the frames of a TFRecord
          file; what is left out. They do not depend on where the split was cut.
        """
        from t2t_lite.text.encoder import EOS_ID

        drops = Drops()
        numbers, pairs, digests = self._choose(chunk, drops)
        sources = encoders["inputs"].encode([source for source, _ in pairs])
        targets = encoders["targets"].encode([target for _, target in pairs])
        drops.unknown_words = _unknown(encoders["inputs"], sources)
        drops.unknown_words += _unknown(encoders["targets"], targets)
        records = frame(serialize_pairs(sources, targets, last=EOS_ID))
        index = np.zeros(len(pairs), INDEX)
        index["pair"] = numbers
        index["source_tokens"] = [len(ids) + 1 for ids in sources]
        index["target_tokens"] = [len(ids) + 1 for ids in targets]
        index["bytes"] = [len(record) for record in records]
        if digests:
            both = np.frombuffer(b"".join(digests), "<u8").reshape(-1, 2)
            index["key"], index["check"] = both.T
        elif self.is_shuffled:
            places = index["pair"].astype(np.int64) - chunk.first
            index["key"] = _random_keys(self.seed, chunk)[places]
        else:
            index["key"] = numbers
        return index, records, drops

    def _choose(
        self, chunk: Chunk, drops: Drops
    ) -> tuple[list[int], list[tuple[str, str]], list[bytes]]:
        """Numbers and texts of the pairs to use; digests if `is_distinct`."""
        reason = filters.find_reason(self.filters, self.problem.source_tags)
        is_distinct = self.is_distinct
        key = self.seed.to_bytes(16, "little")  # another seed, another order
        numbers, pairs = [], []
        digests: dict[bytes, None] = {}  # in the order of the pairs
        for number, pair in enumerate(chunk.pairs, start=chunk.first):
            why = _empty(*pair) or reason(*pair)
            if is_distinct and not why:
                digest = digest_of(*pair, size=16, key=key)
                if digest in digests:
                    why = filters.DUPLICATES
                digests[digest] = None
            if why:
                drops.add(why, number, *pair)
            else:
                numbers.append(number)
                pairs.append(pair)
                if damage := damage_in(*pair):
                    drops.add(damage, number, *pair)
        return numbers, pairs, list(digests)


def _empty(source: str, target: str) -> str | None:
    """Which side has no text, or None."""
    if source.strip():
        return None if target.strip() else "empty target"
    return "empty source" if target.strip() else "both sides empty"


def _unknown(encoder: Any, rows: list[np.ndarray]) -> int:
    """How many ids are `unknown_id`; an encoder without one knows all."""
    unknown_id = getattr(encoder, "unknown_id", None)
    if unknown_id is None:
        return 0
    return sum(int(np.count_nonzero(ids == unknown_id)) for ids in rows)


def _random_keys(seed: int, chunk: Chunk) -> np.ndarray:
    """A random number for each pair of a chunk: the n-th of the seed."""
    generator = np.random.Philox(seed)
    step, place = divmod(chunk.first, 4)  # it makes four in one step
    generator.advance(step)
    return generator.random_raw(place + len(chunk.pairs))[place:]
