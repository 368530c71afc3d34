"""A corpus in segments: cut, filtered, encoded, each written when it is done.

A segment is what a process encodes at a time and what is not done again after
the process was killed. How a corpus is cut depends on the corpus alone.
"""

import dataclasses
import hashlib
import json
import pathlib
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np

from t2t_lite import files
from t2t_lite.corpus import filters
from t2t_lite.datagen.external_shuffle import INDEX, write_segment
from t2t_lite.datagen.serialization import frame
from t2t_lite.datagen.worker_pool import encode_chunk
from t2t_lite.errors import T2TLiteError
from t2t_lite.problem import Problem

SEGMENT_PAIRS = 32_768
SEGMENT_CHARACTERS = 1 << 25  # a segment ends earlier for longer lines
DROPPED_SAMPLES = 3
SAMPLE_CHARACTERS = 100
# A score is one of the whole set.
_FILTERED_SPLITS = ("train",)
_SHUFFLED_SPLITS = ("train",)  # the others keep the order of the corpus


class Segment(NamedTuple):
    """A part of a split.

    Attributes:
      number: from 0.
      first: the number in the split of its first pair, from 1.
      pairs: (source, target) texts.
    """

    number: int
    first: int
    pairs: list[tuple[str, str]]


def cut(pairs: Iterable[tuple[str, str]], place: str) -> Iterator[Segment]:
    """Yields the segments of a split.

    Args:
      pairs: (source, target) texts, streamed.
      place: what to call them where a pair is none: "wmt_ende train".

    Raises:
      T2TLiteError: something is no pair of texts.
    """
    number, first, held, characters = 0, 1, [], 0
    for pair in pairs:
        if not _is_text_pair(pair):
            raise T2TLiteError(
                "samples must yield (source, target) texts; got "
                f"{str(pair)[:SAMPLE_CHARACTERS]!r} as pair "
                f"{first + len(held)} of {place}."
            )
        held.append(pair)
        characters += len(pair[0]) + len(pair[1])
        if len(held) == SEGMENT_PAIRS or characters >= SEGMENT_CHARACTERS:
            yield Segment(number, first, held)
            number, first, held, characters = (
                number + 1,
                first + len(held),
                [],
                0,
            )
    if held:
        yield Segment(number, first, held)


def _is_text_pair(pair):
    return (
        isinstance(pair, (tuple, list))
        and len(pair) == 2
        and isinstance(pair[0], str)
        and isinstance(pair[1], str)
    )


class Drops:
    """What is left out of a split: how often, by reason, and three samples.

    Also words of what is kept that the vocabulary cannot write.
    """

    def __init__(self):
        self.unknown_words = 0
        self.counts: dict[str, int] = {}
        self.samples: dict[str, list[dict[str, Any]]] = {}

    def add(self, reason: str, number: int, source: str, target: str) -> None:
        """Counts a pair, by its number in the split."""
        self.counts[reason] = self.counts.get(reason, 0) + 1
        samples = self.samples.setdefault(reason, [])
        if len(samples) < DROPPED_SAMPLES:
            samples.append(sample(number, source, target))

    def merge(
        self,
        counts: dict[str, int],
        samples: dict[str, list[dict[str, Any]]],
        unknown_words: int = 0,
    ) -> None:
        """Adds those of another part of the split."""
        self.unknown_words += unknown_words
        for reason, count in counts.items():
            self.counts[reason] = self.counts.get(reason, 0) + count
            both = [*self.samples.get(reason, []), *samples.get(reason, [])]
            both.sort(key=lambda sample: sample["pair"])
            self.samples[reason] = both[:DROPPED_SAMPLES]

    def summary(self) -> str:
        """In words: "2 dropped (empty source)"."""
        dropped = ", ".join(
            f"{count:,} dropped ({reason})"
            for reason, count in sorted(self.counts.items())
        )
        return dropped or "none dropped"


def sample(number: int, source: str, target: str) -> dict[str, Any]:
    """A pair as the manifest shows it."""
    return {
        "pair": number,
        "source": source[:SAMPLE_CHARACTERS],
        "target": target[:SAMPLE_CHARACTERS],
    }


@dataclasses.dataclass(frozen=True)
class SegmentJob:
    """What is done with each segment of a split.

    Attributes:
      problem: whose split it is.
      split: which one.
      vocabulary_dir: where the vocabulary files are.
      folder: where the segments go.
      seed: of the order, where the split is shuffled.
    """

    problem: Problem
    split: str
    vocabulary_dir: pathlib.Path
    folder: pathlib.Path
    seed: int

    @property
    def filters(self) -> dict[str, Any]:
        """Those that the split has."""
        if self.split not in _FILTERED_SPLITS:
            return {}
        return filters.checked(self.problem.filters)

    @property
    def is_distinct(self) -> bool:
        """Whether each pair counts once."""
        return filters.DUPLICATES in self.filters

    @property
    def is_shuffled(self) -> bool:
        """Whether the split is in a random order."""
        return self.split in _SHUFFLED_SPLITS

    def path(self, number: int) -> pathlib.Path:
        """Where the records of a segment are."""
        return self.folder / f"segment-{number:05d}"

    def is_done(self, number: int) -> bool:
        """Whether the segment was written already."""
        return self._report_path(number).exists()

    def report(self, number: int) -> dict[str, Any]:
        """Of a segment that is done: examples, unknown_words and drops."""
        return json.loads(self._report_path(number).read_text("utf-8"))

    def _report_path(self, number):
        return self.folder / f"segment-{number:05d}.json"

    def run(self, encoders, segment: Segment) -> None:
        """Filters, encodes and writes a segment, the report last."""
        index, records, drops = self.encode(encoders, segment)
        write_segment(self.path(segment.number), index, records)
        report = {
            "examples": len(records),
            "dropped": drops.counts,
            "dropped_samples": drops.samples,
            "unknown_words": drops.unknown_words,
        }
        files.write_json(self._report_path(segment.number), report)

    def encode(
        self, encoders, segment: Segment
    ) -> tuple[np.ndarray, list[bytes], Drops]:
        """Filters and encodes a segment.

        Returns: INDEX [records], the records, in the frames of a TFRecord file,
          and what is left out. They do not depend on where the split was cut.
        """
        drops = Drops()
        numbers, pairs, hashes = self._choose(segment, drops)
        chunk = encode_chunk(encoders, pairs)
        drops.unknown_words = chunk.unknown
        index = np.zeros(len(pairs), INDEX)
        index["pair"] = numbers
        index["source_tokens"] = chunk.source_lengths
        index["target_tokens"] = chunk.target_lengths
        records = frame(chunk.examples)
        index["bytes"] = [len(record) for record in records]
        if hashes:
            both = np.frombuffer(b"".join(hashes), "<u8").reshape(-1, 2)
            index["key"], index["check"] = both.T
        elif self.is_shuffled:
            places = index["pair"].astype(np.int64) - segment.first
            index["key"] = _random_keys(self.seed, segment)[places]
        else:
            index["key"] = numbers
        return index, records, drops

    def _choose(self, segment, drops):
        """Numbers, texts and hashes of what is used; none without need."""
        reason = filters.find_reason(self.filters)
        is_distinct = self.is_distinct
        numbers, pairs, hashes = [], [], {}
        for number, pair in enumerate(segment.pairs, start=segment.first):
            why = _empty(*pair) or reason(*pair)
            if is_distinct and not why:
                digest = _hash(*pair, self.seed)
                if digest in hashes:
                    why = filters.DUPLICATES
                hashes[digest] = None
            if why:
                drops.add(why, number, *pair)
            else:
                numbers.append(number)
                pairs.append(pair)
        return numbers, pairs, hashes


def _empty(source, target):
    """Which side has no text, or None."""
    if source.strip():
        return None if target.strip() else "empty target"
    return "empty source" if target.strip() else "both sides empty"


def _random_keys(seed, segment):
    """A random number for each pair of a segment: the n-th of the seed."""
    generator = np.random.Philox(seed)
    step, place = divmod(segment.first, 4)  # it makes four in one step
    generator.advance(step)
    return generator.random_raw(place + len(segment.pairs))[place:]


def _hash(source, target, seed):
    """128 bits that stand for a pair; another order for another seed."""
    # The length tells where the source ends.
    text = f"{len(source)} {source}{target}".encode("utf-8", "surrogatepass")
    key = seed.to_bytes(16, "little")
    return hashlib.blake2b(text, digest_size=16, key=key).digest()
