"""Hold out pairs of a corpus, selected by a hash of their text.

The pairs with the smallest hashes are held out. The selection depends neither
on the order of the corpus nor on a seed, and equal pairs are in the same split.
One pass over the corpus keeps at most twice the maximum selection in memory.
"""

import hashlib
import heapq
from collections.abc import Iterable, Sequence

from t2t_lite.errors import T2TLiteError
from t2t_lite.tokenizers.tags import is_blank

DEFAULT_MAX_PAIRS = 2000  # distinct pairs of a split
HELD_OUT_DIVISOR = 100  # a split gets one in 100 pairs
_DIGEST_BYTES = 8


def pair_hash(source: str, target: str, size: int, key: bytes = b"") -> bytes:
    """Return a hash of `size` bytes of a pair, the same on all machines."""
    # The length makes the end of the source unambiguous.
    text = f"{len(source)} {source}{target}".encode("utf-8", "surrogatepass")
    return hashlib.blake2b(text, digest_size=size, key=key).digest()


def choose_held_out(
    pairs: Iterable[tuple[str, ...]],
    splits: Sequence[str],
    count: int | None = None,
) -> dict[str, list[tuple[str, ...]]]:
    """Return the held-out pairs of each split, in the order of the corpus.

    Pairs with an empty side are never held out. All copies of a pair go to the
    same split and count as one.

    Args:
      pairs: (source, target, ...), streamed; only these two are hashed.
      splits: the names of the splits to hold out.
      count: distinct pairs per split; None is one in HELD_OUT_DIVISOR, at
        least 1 and at most DEFAULT_MAX_PAIRS.

    Raises:
      T2TLiteError: no pair would remain in the corpus.
    """
    # One more than is held out, to check that a pair remains.
    max_hashes = len(splits) * (count or DEFAULT_MAX_PAIRS) + 1
    # (number, pair) of all copies of a pair, by its hash.
    smallest: dict[bytes, list] = {}
    total, largest = 0, b"\xff" * _DIGEST_BYTES
    for pair in pairs:
        source, target = pair[:2]
        if not (is_blank(source) or is_blank(target)):
            total += 1
            if (key := pair_hash(source, target, _DIGEST_BYTES)) <= largest:
                smallest.setdefault(key, []).append((total, pair))
            if len(smallest) > 2 * max_hashes:
                kept = heapq.nsmallest(max_hashes, smallest)
                smallest = {key: smallest[key] for key in kept}
                largest = kept[-1]
    size = count or max(1, min(DEFAULT_MAX_PAIRS, total // HELD_OUT_DIVISOR))
    digests = sorted(smallest)
    needed = size * len(splits)
    if len(digests) <= needed:
        names = " and ".join(splits)
        raise T2TLiteError(
            f"Holding out {size} pairs for {names} requires more than {needed} "
            f"distinct pairs with text on both sides; got {len(digests)}. Give "
            f"a smaller `holdout`, or files for {names}."
        )
    held_out = {}
    for split, start in zip(splits, range(0, needed, size), strict=True):
        selected = digests[start : start + size]
        copies = sorted(item for key in selected for item in smallest[key])
        held_out[split] = [pair for _, pair in copies]
    return held_out
