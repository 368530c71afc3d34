"""What is left out of a split, and what of the rest cannot be written."""

import dataclasses
from typing import Any

MOST_SAMPLES = 3  # of each reason
SAMPLE_CHARACTERS = 100


@dataclasses.dataclass
class Drops:
    """What is left out of a split or of a part of it.

    Attributes:
      counts: number of pairs by the reason why they were left out.
      samples: the first of them, by reason, as the manifest shows them.
      unknown_words: in what is kept, that the vocabulary cannot write.
    """

    counts: dict[str, int] = dataclasses.field(default_factory=dict)
    samples: dict[str, list[dict[str, Any]]] = dataclasses.field(
        default_factory=dict
    )
    unknown_words: int = 0

    def add(self, reason: str, number: int, source: str, target: str) -> None:
        """Counts a pair, by its number in the split."""
        self.counts[reason] = self.counts.get(reason, 0) + 1
        samples = self.samples.setdefault(reason, [])
        if len(samples) < MOST_SAMPLES:
            samples.append(sample_of(number, source, target))

    def merge(self, other: "Drops") -> None:
        """Adds those of another part of the split."""
        self.unknown_words += other.unknown_words
        for reason, count in other.counts.items():
            self.counts[reason] = self.counts.get(reason, 0) + count
            both = [*self.samples.get(reason, []), *other.samples[reason]]
            both.sort(key=lambda sample: sample["pair"])
            self.samples[reason] = both[:MOST_SAMPLES]


def sample_of(number: int, source: str, target: str) -> dict[str, Any]:
    """A pair as the manifest shows it."""
    return {
        "pair": number,
        "source": source[:SAMPLE_CHARACTERS],
        "target": target[:SAMPLE_CHARACTERS],
    }
