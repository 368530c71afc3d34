"""Numbers, years, ordinals and amounts, written out in two languages.

The embedded problems: their text is generated (num2words), not downloaded, and
is the same on every machine. `twenty-one euros and five cents` in English is
`einundzwanzig Euro und fünf Cent` in German. To get it right a model must turn
words around, split and join compounds and agree numbers with nouns.
"""

import functools
import hashlib
import itertools
import re
from collections.abc import Iterator
from importlib import metadata
from typing import Any

from t2t_lite.problem import RawFiles, Text2TextProblem
from t2t_lite.registry import register_problem

_DEV_PAIRS = 500
_TEST_PAIRS = 1000

# How often each kind occurs in all.
_CARDINALS = 9000
_ORDINALS = 4000
_AMOUNTS = 8000
_WHOLE_AMOUNTS = 1500

_YEARS = range(1100, 2100)
_YEAR_PHRASES = {
    "en": ("in the year {}", "since {}", "until {}"),
    "de": ("im Jahr {}", "seit {}", "bis {}"),
    "fr": ("en l'an {}", "depuis {}", "jusqu'en {}"),
}
_UNITS = {  # (one, more), (one, more); num2words has them wrong here and there
    "en": {
        "EUR": (("euro", "euros"), ("cent", "cents")),
        "USD": (("dollar", "dollars"), ("cent", "cents")),
    },
    "de": {
        "EUR": (("Euro", "Euro"), ("Cent", "Cent")),
        "USD": (("Dollar", "Dollar"), ("Cent", "Cent")),
    },
    "fr": {
        "EUR": (("euro", "euros"), ("centime", "centimes")),
        "USD": (("dollar", "dollars"), ("cent", "cents")),
    },
}
_AND = {"en": "and", "de": "und", "fr": "et"}


class _Spellout(Text2TextProblem):
    """Written-out numbers from English into the target language."""

    source_language = "en"
    vocab_size = 600

    def samples(self, split: str, raw: RawFiles) -> Iterator[tuple[str, str]]:
        del raw  # generated
        pairs = _pairs(self.target_language)
        held_out = _DEV_PAIRS + _TEST_PAIRS
        return iter(
            {
                "test": pairs[:_TEST_PAIRS],
                "dev": pairs[_TEST_PAIRS:held_out],
                "train": pairs[held_out:],
            }[split]
        )

    def definition(self) -> dict[str, Any]:
        return super().definition() | {
            "num2words": metadata.version("num2words")
        }


@register_problem("spellout_ende")
class SpelloutEnDe(_Spellout):
    """Numbers written out in English, to German; embedded, no download."""

    target_language = "de"


@register_problem("spellout_enfr")
class SpelloutEnFr(_Spellout):
    """Numbers written out in English, to French; embedded, no download."""

    target_language = "fr"


@functools.lru_cache(maxsize=2)
def _pairs(language: str) -> list[tuple[str, str]]:
    """All pairs, each source and each target once, in a random fixed order."""
    pairs, sources, targets = [], set(), set()
    for source, target in zip(_texts("en"), _texts(language), strict=True):
        if source not in sources and target not in targets:
            sources.add(source)
            targets.add(target)
            pairs.append((source, target))
    return sorted(pairs, key=lambda pair: _digest(pair[0]))


def _texts(language: str) -> Iterator[str]:
    """Return the numbers to write out, among them all short ones."""
    for number in _spread(_CARDINALS, 1000, 100_000):
        yield _words(number, language)
    for number in _spread(_ORDINALS, 1000, 10_000):
        if number:
            yield _words(number, language, to="ordinal")
    for year in _YEARS:
        for phrase in _YEAR_PHRASES[language]:
            yield phrase.format(_words(year, language, to="year"))
    amounts = itertools.product(_UNITS["en"], range(1, 200), range(1, 100))
    whole = itertools.product(_UNITS["en"], range(1, 1000), [0])
    for items, count in ((amounts, _AMOUNTS), (whole, _WHOLE_AMOUNTS)):
        chosen = sorted((("amount", *item) for item in items), key=_digest)
        for _, currency, number, cents in chosen[:count]:
            main, small = _UNITS[language][currency]
            text = _counted(number, main, language)
            if cents:
                text += f" {_AND[language]} {_counted(cents, small, language)}"
            yield text


def _spread(count: int, dense: int, most: int) -> list[int]:
    """Return `count` numbers, sorted: all below `dense`, then a sample."""
    sparse = sorted(range(dense, most), key=_digest)[: count - dense]
    return [*range(dense), *sorted(sparse)]


def _digest(item: Any) -> bytes:
    """A fixed random key: the same on every machine and Python."""
    return hashlib.sha256(repr(item).encode()).digest()


def _counted(number: int, unit: tuple[str, str], language: str) -> str:
    """`number` of a unit (one, more): 21, ("euro", "euros") -> "... euros"."""
    words = _words(number, language)
    if language == "de":
        words = re.sub("eins$", "ein", words)  # "ein Euro", not "eins Euro"
    return f"{words} {unit[number != 1]}"


@functools.lru_cache(maxsize=200_000)
def _words(number: int, language: str, to: str = "cardinal") -> str:
    from num2words import num2words

    words = num2words(number, lang=language, to=to).replace(",", "")
    # num2words 0.5 writes "quatre-vingtsième" and "deux centsième".
    return words.replace("tsième", "tième")
