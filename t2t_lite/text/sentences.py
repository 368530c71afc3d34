"""Paragraphs to sentences, by the rules of Moses's split-sentences.perl.

A full stop ends a sentence where a capital, a digit or a letter of a script
without capitals follows and the word before it is no abbreviation. The
abbreviations of some forty languages are sacremoses's copy of Moses's lists,
which needs no download; it has no splitter itself, and nltk's Punkt knows no
abbreviation without its data.
"""

import functools
import re
import unicodedata
from collections.abc import Callable

_CLOSERS = "\"'”’»›)\\]}」』）】"
_OPENERS = "\"'“‘„«‹([{¿¡「『（【"
# What may end a sentence, what closes behind it, and white space; of Chinese
# and Japanese none is needed.
_END = re.compile(
    rf"(?P<mark>[.?!…।॥؟۔։።]+)(?P<closers>(?:\s?[»›]|[{_CLOSERS}])*)\s+"
    rf"|[。．！？｡]+[{_CLOSERS}]*\s*"
)
_ACRONYM = re.compile(r"(\.|^)[^\W\d_](\.[^\W\d_])+")  # of U.S. before its end
_NUMERIC_ONLY = "#NUMERIC_ONLY#"


@functools.cache
def sentence_splitter(language: str) -> Callable[[str], list[str]]:
    """A function that gives the sentences of a text, in order.

    Example, English: "Mr. Smith left. Why?" -> ["Mr. Smith left.", "Why?"].

    Only white space between sentences is lost; a text of one sentence, or
    without any, comes back as it is.

    Args:
      language: such as "de"; English abbreviations stand in for those of one
        that is not known.
    """
    from sacremoses.corpus import NonbreakingPrefixes

    words = list(NonbreakingPrefixes().words(language))
    before_numbers = {
        word.split()[0] for word in words if _NUMERIC_ONLY in word
    }
    abbreviations = {word for word in words if _NUMERIC_ONLY not in word}

    def is_end(text: str, found: re.Match) -> bool:
        mark = found["mark"]
        if mark is None:
            return True
        rest = text[found.end() : found.end() + 9].lstrip(_OPENERS + " ")
        if not rest or not _starts(rest[0]):
            return False
        if mark != "." or found["closers"]:
            return True
        word = _last_word(text, found.start())
        if word in before_numbers and rest[0].isdigit():
            return False
        return word not in abbreviations and not _ACRONYM.search(word)

    def split(text: str) -> list[str]:
        sentences = []
        start = 0
        for found in _END.finditer(text):
            if found.end() < len(text) and is_end(text, found):
                sentences.append(text[start : found.end()].rstrip())
                start = found.end()
        return [*sentences, text[start:]]

    return split


def _starts(character: str) -> bool:
    """Whether a sentence may start with it: a lower-case letter goes on."""
    category = unicodedata.category(character)
    return category in ("Lu", "Lt", "Lo", "Nd")


def _last_word(text: str, end: int) -> str:
    """The word before a full stop, without what opens it."""
    before = text[max(0, end - 40) : end].split()
    return before[-1].lstrip(_OPENERS) if before else ""
