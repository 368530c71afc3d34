"""What is left out of a split, and what of the rest is damaged or unknown."""

import dataclasses
from typing import Any

MOST_SAMPLES = 3  # of each reason
SAMPLE_CHARACTERS = 100
_SIGNS = {"\ufffd": "invalid UTF-8", "\0": "NUL"}
DAMAGE = tuple(_SIGNS.values())


def damage_in(source: str, target: str) -> str | None:
    """Why a pair is damaged, one of DAMAGE, or None."""
    for sign, reason in _SIGNS.items():
        if sign in source or sign in target:
            return reason
    return None


@dataclasses.dataclass
class Drops:
    """What is left out of a split or of a part of it, or worth a remark.

    Attributes:
      counts: number of pairs by the reason why they were left out; or why
        they are damaged, if that is one of DAMAGE: these pairs are kept.
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
