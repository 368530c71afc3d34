"""Which pairs of a corpus are held out: by a hash of their text.

The pairs with the smallest hashes are taken. So the choice depends neither on
the order of the corpus nor on a seed, equal pairs are in the same split, and
one pass is enough, which remembers no more than the chosen pairs.
"""

import hashlib
import heapq
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from t2t_lite.errors import T2TLiteError

MOST_BY_DEFAULT = 2000  # different pairs of a split
SHARE_BY_DEFAULT = 100  # one pair of so many goes to a split


def hash_of(source: str, target: str) -> int:
    """64 bits that stand for a pair, the same in every process."""
    return int.from_bytes(digest_of(source, target, size=8), "big")


def digest_of(source: str, target: str, size: int, key: bytes = b"") -> bytes:
    """So many bytes that stand for a pair; another key gives other ones."""
    # The length tells where the source ends.
    text = f"{len(source)} {source}{target}".encode("utf-8", "surrogatepass")
    return hashlib.blake2b(text, digest_size=size, key=key).digest()


class HeldOut(NamedTuple):
    """A split that was cut from a corpus.

    Attributes:
      pairs: with all their copies, in the order of the corpus.
      hashes: of these pairs.
    """

    pairs: list[tuple[str, str]]
    hashes: frozenset[int]


def choose_held_out(
    pairs: Iterable[tuple[str, str]],
    splits: Sequence[str],
    count: int | None = None,
) -> dict[str, HeldOut]:
    """The pairs that each split gets.

    A pair without text on both sides is never chosen. A pair that is there
    several times counts once, and all its copies go to the same split.

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
    for pair in pairs:
        if all(text.strip() for text in pair):
            total += 1
            smallest.add(hash_of(*pair), (total, pair))
    each = count or max(1, min(MOST_BY_DEFAULT, total // SHARE_BY_DEFAULT))
    hashes = sorted(smallest.items)
    needed = each * len(splits)
    if len(hashes) <= needed:
        raise T2TLiteError(
            f"Holding out {each} for {' and '.join(splits)} needs more than "
            f"{needed} different pairs with text on both sides; got "
            f"{len(hashes)}. Give a smaller --holdout, or files for "
            f"{' and '.join(splits)}."
        )
    held_out = {}
    for split, start in zip(splits, range(0, needed, each), strict=True):
        chosen = hashes[start : start + each]
        copies = sorted(item for key in chosen for item in smallest.items[key])
        held_out[split] = HeldOut(
            [pair for _, pair in copies], frozenset(chosen)
        )
    return held_out


class _Smallest:
    """Keeps what belongs to the smallest of many keys.

    Args:
      most: how many keys.

    Attributes:
      items: lists, by key.
    """

    def __init__(self, most: int):
        self._most = most
        self._heap: list[int] = []  # negated: the largest key is on top
        self.items: dict[int, list] = {}

    def add(self, key: int, item: object) -> None:
        """Keeps the item if its key is among the smallest so far."""
        if key in self.items:
            self.items[key].append(item)
            return
        if len(self._heap) < self._most:
            heapq.heappush(self._heap, -key)
        elif key < -self._heap[0]:
            del self.items[-heapq.heapreplace(self._heap, -key)]
        else:
            return
        self.items[key] = [item]
