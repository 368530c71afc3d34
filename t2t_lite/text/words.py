"""Which words of a text its pieces lie in; a word is what `str.split` finds."""

import os
from collections.abc import Iterable, Sequence

Span = tuple[int, int]  # the bytes from the first number up to the second


def words_of_spans(text: bytes, spans: Iterable[Span]) -> list[range]:
    """The numbers of the words that each span touches.

    Example: b"Two men." and (0, 2), (2, 4), (4, 7), (7, 8) -> 0, 0, 1, 1. A
    span of white space touches none. An empty span touches what begins there.

    Args:
      text: valid UTF-8.
      spans: in bytes of `text`.
    """
    numbers: list[int | None] = []  # of the word at each byte
    count, inside = 0, False
    for character in text.decode():
        white = character.isspace()
        count += not white and not inside
        inside = not white
        number = count - 1 if inside else None
        numbers.extend([number] * len(character.encode()))
    return [
        range(touched[0], touched[-1] + 1) if touched else range(0)
        for touched in (
            [n for n in numbers[start : max(end, start + 1)] if n is not None]
            for start, end in spans
        )
    ]


def words_of_prefixes(prefixes: Sequence[bytes]) -> list[range]:
    """As `words_of_spans`, for the text that its first pieces tell.

    Args:
      prefixes: see `spans_of_prefixes`.
    """
    text = prefixes[-1] if prefixes else b""
    return words_of_spans(text, spans_of_prefixes(prefixes))


def spans_of_prefixes(prefixes: Sequence[bytes]) -> list[Span]:
    """Where each piece of a text lies, by the texts of its first pieces.

    Example: b"Two", b"Two m", b"Two men" -> (0, 3), (3, 5), (5, 7).

    Args:
      prefixes: what the first n pieces say, for n = 1, 2, ... up to all. Where
        a character takes several pieces it may say something else at first:
        these lie where the piece does that ends the character.
    """
    spans: list[Span | None] = []
    start = 0
    for prefix in prefixes:
        common = len(os.path.commonprefix([prefix, prefixes[-1]]))
        if common > start:
            spans.append((start, common))
            start = common
        elif common == len(prefix):  # it adds nothing to what is there
            spans.append((max(start - 1, 0), start))
        else:
            spans.append(None)
    later: list[Span] = []
    for span in reversed(spans):
        later.append(later[-1] if span is None else span)
    return later[::-1]
