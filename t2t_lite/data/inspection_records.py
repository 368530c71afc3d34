"""What an inspection of data found: plain records of a problem's splits."""

import dataclasses
import math
from typing import Any

import numpy as np


@dataclasses.dataclass(frozen=True)
class Pair:
    """A pair as it comes back from the shards.

    Attributes:
      number: its place in the shards of its split, from 1.
      source_tokens, target_tokens: EOS counted.
      source, target: the decoded texts.
    """

    number: int
    source_tokens: int
    target_tokens: int
    source: str
    target: str


@dataclasses.dataclass(frozen=True)
class Side:
    """One side of a split.

    Attributes:
      lengths: number of pairs by the tokens of this side, EOS counted.
      byte_tokens: how many of them are bytes of characters that the vocabulary
        lacks; None if it has no pieces for bytes.
      sampled_tokens, sampled_words: of the sample; EOS not counted, words are
        what white space separates.
    """

    lengths: dict[int, int]
    byte_tokens: int | None
    sampled_tokens: int
    sampled_words: int

    @property
    def tokens(self) -> int:
        """Of all pairs, EOS counted."""
        return sum(length * count for length, count in self.lengths.items())

    @property
    def byte_share(self) -> float | None:
        """Bytes among the tokens without EOS, 0-1; None as `byte_tokens`."""
        if self.byte_tokens is None:
            return None
        text_tokens = self.tokens - sum(self.lengths.values())
        return self.byte_tokens / text_tokens if text_tokens else 0.0

    @property
    def tokens_per_word(self) -> float | None:
        """In the sample; None if that has no word."""
        if not self.sampled_words:
            return None
        return self.sampled_tokens / self.sampled_words

    def to_json(self) -> dict[str, Any]:
        """Fit for JSON, with what follows from the attributes."""
        return {
            "tokens": self.tokens,
            "tokens_per_word": self.tokens_per_word,
            "byte_share": self.byte_share,
            **dataclasses.asdict(self),
        }


@dataclasses.dataclass(frozen=True)
class SplitInspection:
    """One split, in the direction that was asked for.

    Attributes:
      examples: pairs in the shards.
      dropped, dropped_samples: of `SplitRecord`: the sides that they name are
        those of the direction without `_rev`.
      source, target: the sides.
      lengths: number of pairs by the tokens of their longer side.
      sampled: pairs that were decoded; equal to `examples` if that is few.
      longest: the pairs with the longest sides, longest first.
      drawn: pairs drawn at random.
    """

    examples: int
    dropped: dict[str, int]
    dropped_samples: dict[str, list[dict[str, Any]]]
    source: Side
    target: Side
    lengths: dict[int, int]
    sampled: int
    longest: tuple[Pair, ...]
    drawn: tuple[Pair, ...]

    def quantile(self, share: float) -> int:
        """The least length that the longer sides of such a share keep to.

        Args:
          share: 0-1, of the pairs.
        """
        lengths = np.array(sorted(self.lengths))
        covered = np.cumsum([self.lengths[length] for length in lengths])
        return int(lengths[np.searchsorted(covered, share * covered[-1])])

    def length_classes(
        self, most: int, share: float = 0.99
    ) -> list[tuple[int, float]]:
        """Ranges of lengths for a histogram, each as wide as the others.

        Longest 43, at most 10: (1, 5), (6, 10), ... (41, 45).

        Args:
          most: that many at most.
          share: 0-1, of the pairs; where a few are much longer than these, the
            last range goes on to infinity.

        Returns: first and last length of each, in order.
        """
        end = self.quantile(share)
        least = max(1, end / (most - 1))
        scale = 10 ** math.floor(math.log10(least))
        step = next(n * scale for n in (1, 2, 5, 10) if n * scale >= least)
        classes = [(n, n + step - 1) for n in range(1, end + 1, step)]
        if max(self.lengths) > classes[-1][1]:
            classes.append((classes[-1][1] + 1, math.inf))
        return classes

    def to_json(self) -> dict[str, Any]:
        """Fit for JSON."""
        sides = {
            "source": self.source.to_json(),
            "target": self.target.to_json(),
        }
        return {**dataclasses.asdict(self), **sides}


@dataclasses.dataclass(frozen=True)
class Inspection:
    """The data of a problem.

    Attributes:
      problem: its name, `NAME_rev` where that direction was asked for.
      data_dir: where the data is.
      vocabulary: by side, the file and the number of pieces.
      seed: of all that was drawn.
      splits: a `SplitInspection` by split.
    """

    problem: str
    data_dir: str
    vocabulary: dict[str, dict[str, Any]]
    seed: int
    splits: dict[str, SplitInspection]

    def to_json(self) -> dict[str, Any]:
        """Fit for JSON."""
        splits = {name: split.to_json() for name, split in self.splits.items()}
        return {**dataclasses.asdict(self), "splits": splits}
