"""A split in chunks: what a process encodes at a time.

A chunk that is encoded is not encoded again after the process was killed. How a
split is cut depends on its pairs alone.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from t2t_lite.problem.pairs import checked_pairs

CHUNK_PAIRS = 32_768
CHUNK_CHARACTERS = 1 << 25  # a chunk ends earlier for longer lines


class Chunk(NamedTuple):
    """A part of a split.

    Attributes:
      number: from 0.
      first: the number in the split of its first pair, from 1.
      pairs: (source, target) texts.
    """

    number: int
    first: int
    pairs: list[tuple[str, str]]


def cut(pairs: Iterable[tuple[str, str]], place: str) -> Iterator[Chunk]:
    """Yields the chunks of a split.

    Args:
      pairs: (source, target) texts, streamed.
      place: what an error calls them, such as "wmt_ende train".

    Raises:
      T2TLiteError: something is not a pair of texts.
    """
    number, first = 0, 1
    held: list[tuple[str, str]] = []
    characters = 0
    for pair in checked_pairs(pairs, place):
        held.append(pair)
        characters += len(pair[0]) + len(pair[1])
        if len(held) == CHUNK_PAIRS or characters >= CHUNK_CHARACTERS:
            yield Chunk(number, first, held)
            number, first = number + 1, first + len(held)
            held, characters = [], 0
    if held:
        yield Chunk(number, first, held)
