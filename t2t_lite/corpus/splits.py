"""Hold out pairs of a corpus, selected by a hash of their text.

The pairs with the smallest hashes are taken. So the choice depends neither on
the order of the corpus nor on a seed, equal pairs are in the same split, and
one pass is enough, which remembers at most twice the pairs it may choose.
"""

import hashlib
import heapq
from collections.abc import Iterable, Sequence

from t2t_lite.errors import T2TLiteError

MOST_BY_DEFAULT = 2000  # different pairs of a split
SHARE_BY_DEFAULT = 100  # one pair of so many goes to a split
_DIGEST_BYTES = 8


def pair_hash(source: str, target: str, size: int, key: bytes = b"") -> bytes:
    """Return `size` bytes that stand for a pair and a key everywhere."""
    # The length tells where the source ends.
    text = f"{len(source)} {source}{target}".encode("utf-8", "surrogatepass")
    return hashlib.blake2b(text, digest_size=size, key=key).digest()


def choose_held_out(
    pairs: Iterable[tuple[str, ...]],
    splits: Sequence[str],
    count: int | None = None,
) -> dict[str, list[tuple[str, ...]]]:
    """Return the pairs of each split, in the order of the corpus.

    A pair without text on both sides is never chosen. A pair that is there
    several times counts once, and all its copies go to the same split.

    Args:
      pairs: (source, target, ...), streamed; only the first two count.
      splits: those that are held out of the corpus.
      count: different pairs of each; None takes one in SHARE_BY_DEFAULT, at
        least 1 and at most MOST_BY_DEFAULT.

    Raises:
      T2TLiteError: nothing would be left for the corpus itself.
    """
    # One more than is held out, to know that something is left.
    most = len(splits) * (count or MOST_BY_DEFAULT) + 1
    # Numbered copies of each pair, by its hash.
    smallest: dict[bytes, list] = {}
    total, largest = 0, b"\xff" * _DIGEST_BYTES
    for pair in pairs:
        source, target = pair[:2]
        if source.strip() and target.strip():
            total += 1
            if (key := pair_hash(source, target, _DIGEST_BYTES)) <= largest:
                smallest.setdefault(key, []).append((total, pair))
            if len(smallest) > 2 * most:
                kept = heapq.nsmallest(most, smallest)
                smallest = {key: smallest[key] for key in kept}
                largest = kept[-1]
    each = count or max(1, min(MOST_BY_DEFAULT, total // SHARE_BY_DEFAULT))
    digests = sorted(smallest)
    needed = each * len(splits)
    if len(digests) <= needed:
        names = " and ".join(splits)
        smaller = "a smaller `holdout`, or " if each > 1 else ""
        raise T2TLiteError(
            f"Holding out {each} for {names} needs more than {needed} "
            "different pairs with text on both sides; got "
            f"{len(digests)}. Give {smaller}files for {names}."
        )
    held_out = {}
    for split, start in zip(splits, range(0, needed, each), strict=True):
        chosen = digests[start : start + each]
        copies = sorted(item for key in chosen for item in smallest[key])
        held_out[split] = [pair for _, pair in copies]
    return held_out
