"""Split paragraphs into sentences by the rules of Moses's split-sentences.perl.

A full stop ends a sentence if a capital, a digit or a letter of a script
without capitals follows, and sacremoses does not list the word before it as an
abbreviation. Other maintained splitters require models or are not linear.
"""

import functools
import re
import unicodedata
from collections.abc import Callable

_CLOSERS = "\"'”’»›)\\]}」』）】"
_OPENERS = "\"'“‘„«‹([{¿¡「『（【"
# Marks, closing quotes or brackets, and white space (optional in Chinese and
# Japanese). Possessive quantifiers make the time linear for any text.
_MARKS = ".?!…।॥؟۔։។"
_END = re.compile(
    rf"(?<![{_MARKS}])(?P<mark>[{_MARKS}]++)(?P<closers>(?:\s?[»›]|[{_CLOSERS}])*+)"
    rf"\s+|[。．！？｡]++[{_CLOSERS}]*+\s*"
)
_ACRONYM = re.compile(r"(\.|^)[^\W\d_](\.[^\W\d_])+")  # U.S without last "."


@functools.cache
def sentence_splitter(language: str) -> Callable[[str], list[str]]:
    """Return a function that splits a text into sentences.

    Example, English: "Mr. Smith left. Why?" -> ["Mr. Smith left.", "Why?"].
    The function drops only white space between sentences.

    Args:
      language: a code such as "de"; an unknown language is split as English.
    """
    from sacremoses.corpus import NonbreakingPrefixes

    words = set(NonbreakingPrefixes().words(language))
    numeric = {w.split()[0] for w in words if "#NUMERIC_ONLY#" in w}

    def ends(text: str, found: re.Match) -> bool:
        rest = text[found.end() : found.end() + 9].lstrip(_OPENERS + " ")
        if found["mark"] is None or not rest:
            return found["mark"] is None and found.end() < len(text)
        if unicodedata.category(rest[0]) not in ("Lu", "Lt", "Lo", "Nd"):
            return False  # a lower-case letter continues the sentence
        if found["mark"] != "." or found["closers"]:
            return True
        before = text[max(0, found.start() - 40) : found.start()].split()
        word = before[-1].lstrip(_OPENERS) if before else ""
        if word in numeric and rest[0].isdigit():
            return False
        return word not in words and not _ACRONYM.search(word)

    def split(text: str) -> list[str]:
        starts = [m.end() for m in _END.finditer(text) if ends(text, m)]
        sentences = zip([0, *starts], [*starts, len(text)], strict=True)
        *first, last = [text[start:end] for start, end in sentences]
        return [*map(str.rstrip, first), last]

    return split
