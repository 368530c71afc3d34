"""Which pairs of a corpus are held out: by a hash of their text.

The pairs with the smallest hashes are taken. So the choice depends neither on
the order of the corpus nor on a seed, equal pairs are on the same side, and
one pass that remembers no more than the chosen hashes is enough.
"""

import hashlib
import heapq
from collections.abc import Iterable, Sequence

from t2t_lite.errors import T2TLiteError

MOST_BY_DEFAULT = 2000  # different pairs of a split
SHARE_BY_DEFAULT = 100  # one pair of so many goes to a split


def hash_of(source: str, target: str) -> int:
    """64 bits that stand for a pair, the same in every process."""
    # The length tells where the source ends.
    text = f"{len(source)} {source}{target}".encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "big")


def choose_held_out(
    pairs: Iterable[tuple[str, str]],
    splits: Sequence[str],
    count: int | None = None,
) -> dict[str, frozenset[int]]:
    """The hashes of the pairs that each split gets.

    A pair without text on both sides is never chosen. A pair that is there
    several times counts once; all its copies have the same hash.

    Args:
      pairs: (source, target) texts, streamed.
      splits: those that are cut from the corpus.
      count: different pairs of each; None takes one in SHARE_BY_DEFAULT, at
        least 1 and at most MOST_BY_DEFAULT.

    Raises:
      T2TLiteError: nothing would be left for the corpus itself.
    """
    # One more than is held out, to know that something is left.
    most = len(splits) * (count or MOST_BY_DEFAULT) + 1
    smallest = _Smallest(most)
    total = 0
    for source, target in pairs:
        if source.strip() and target.strip():
            total += 1
            smallest.add(hash_of(source, target))
    each = count or _default_count(total)
    hashes = smallest.sorted()
    needed = each * len(splits)
    if len(hashes) <= needed:
        raise T2TLiteError(
            f"Holding out {each} for {' and '.join(splits)} needs more than "
            f"{needed} different pairs with text on both sides; got "
            f"{len(hashes)}. Give a smaller --holdout, or files for "
            f"{' and '.join(splits)}."
        )
    return {
        split: frozenset(hashes[start : start + each])
        for split, start in zip(splits, range(0, needed, each), strict=True)
    }


def _default_count(total):
    return max(1, min(MOST_BY_DEFAULT, total // SHARE_BY_DEFAULT))


class _Smallest:
    """Keeps the smallest of many numbers, each once.

    Args:
      most: how many.
    """

    def __init__(self, most):
        self._most = most
        self._heap = []  # negated, so that the largest kept one is on top
        self._kept = set()

    def add(self, value):
        if value in self._kept:
            return
        if len(self._heap) < self._most:
            heapq.heappush(self._heap, -value)
        elif value < -self._heap[0]:
            self._kept.discard(-heapq.heapreplace(self._heap, -value))
        else:
            return
        self._kept.add(value)

    def sorted(self):
        return sorted(self._kept)
