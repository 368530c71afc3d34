"""Filters that drop pairs of train.

A problem declares filters and their limits: `filters = {"length": 80,
"identical": True}`, on a command line `length=80,identical`. A table in
docs/your-text.md describes each filter.

Lengths are counted in words, as in the tools that cleaned the corpora of
arXiv:1706.03762. A word is a run of characters other than white space and
punctuation; each punctuation mark counts as one more. In scripts without spaces
between words, a word is one character, or up to four in alphabetic scripts.
"""

import functools
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from t2t_lite import validators
from t2t_lite.errors import UsageError, did_you_mean
from t2t_lite.tokenizers.tags import split_tag

DUPLICATES = "duplicates"  # `datagen` finds them in the whole corpus

# ASCII, then quotes and inverted marks of Latin-1, then general and CJK.
_PUNCTUATION = r"!-/:-@\[-`{-~\xa1\xab\xbb\xbf\u2010-\u205e\u3001-\u301f"
# Scripts without spaces: Han, kana and bopomofo; Thai, Lao, Myanmar and Khmer.
_CHARACTERS = (
    "\u2e80-\u2fdf\u3005-\u3007\u3021-\u312f\u31a0-\u31ff\u3400-\u9fff"
    "\uf900-\ufaff\uff66-\uff9f\U0001b000-\U0001b16f\U00020000-\U0003ffff"
)
_LETTERS = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\uaa60-\uaa7f"
_WORD = re.compile(
    rf"[^\s{_PUNCTUATION}{_CHARACTERS}{_LETTERS}]+|[{_LETTERS}]{{1,4}}"
    rf"|[{_PUNCTUATION}{_CHARACTERS}]"
)
_CONTROL = re.compile(r"[\0-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")


@functools.lru_cache(maxsize=2)  # several filters count the same pair
def count_words(text: str) -> int:
    """Return the number of words: "Don't go, Ann." has 7."""
    return len(_WORD.findall(text))


def _length_ratio(limit, source, target):
    shorter, longer = sorted(map(count_words, (source, target)))
    return longer > limit * shorter


def _control_characters(_, source, target):
    text = f"{source} {target}"
    # U+FFFD replaces most of them; `isprintable` is cheaper than a search.
    return "\ufffd" in text or bool(
        not text.isprintable() and _CONTROL.search(text)
    )


def _true(value):
    if value not in (True, "true"):
        raise ValueError
    return True


_count = validators.integer(1)
_no_value = validators.Validator("without a value", _true)
# In this order: a pair counts under the first filter that drops it.
_FILTERS: dict[str, tuple[validators.Validator, Callable[..., bool] | None]] = {
    "broken_encoding": (_no_value, lambda _, a, b: "\ufffd" in a + b),
    "control_characters": (_no_value, _control_characters),
    "identical": (_no_value, lambda _, a, b: a.strip() == b.strip()),
    "characters": (_count, lambda n, *pair: max(map(len, pair)) > n),
    "length": (_count, lambda n, *pair: max(map(count_words, pair)) > n),
    "length_ratio": (validators.real(at_least=1), _length_ratio),
    DUPLICATES: (_no_value, None),
}


def make_filter(
    filters: Mapping[str, Any], tags: Sequence[str] = ()
) -> Callable[[str, str], str | None]:
    """Return a function from a pair to the filter that drops it, or None.

    `filters` are limits by name, without DUPLICATES; `tags` are not counted.
    """
    predicates = [
        (name, functools.partial(predicate, filters[name]))
        for name, (_, predicate) in _FILTERS.items()
        if name in filters and predicate
    ]

    def drop_reason(source, target):
        if tags:
            _, source = split_tag(source, tags)
        for name, predicate in predicates:
            if predicate(source, target):
                return name
        return None

    return drop_reason


def normalize_filters(filters: str | Mapping[str, Any]) -> dict[str, Any]:
    """Return the limits of filters by name, in a fixed order.

    Example: "length=80,identical" -> {"length": 80, "identical": True}.

    Raises:
      UsageError: a filter is unknown, repeated or has an invalid limit.
    """
    if isinstance(filters, str):
        filters = validators.parse_key_values(
            filters, "filters", allow_bare_keys=True
        )
    for name in filters:
        if name not in _FILTERS:
            raise UsageError(
                f"Unknown filter {name!r}.{did_you_mean(name, _FILTERS)} "
                f"Valid filters: {', '.join(_FILTERS)}."
            )
    return {
        name: validators.check(f"The filter {name}", filters[name], validator)
        for name, (validator, _) in _FILTERS.items()
        if name in filters
    }
