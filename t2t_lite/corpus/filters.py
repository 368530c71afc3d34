"""Filters: which pairs of train are left out because a problem predicate so.

A problem names them with what they allow, `filters = {"length": 80,
"identical": True}`; on a command line they are `length=80,identical`. The table
of docs/your-data.md shows which pairs each leaves out.

Lengths are counted in words, as by the tools that cleaned the corpora of the
paper's time; `max_length` bounds the pieces when batches are made. A word is a
run of anything but white space and punctuation; each punctuation mark counts as
one more. For scripts without spaces there is `characters`.
"""

import functools
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from t2t_lite.errors import UsageError, did_you_mean
from t2t_lite.tokenizers.tags import split_tag
from t2t_lite.validators import (
    Validator,
    check,
    integer,
    parse_key_values,
    real,
)

DUPLICATES = "duplicates"  # `datagen` finds them, in the whole corpus

# ASCII's, then Latin-1's quotes and inverted marks, then general and CJK ones.
_PUNCTUATION = r"!-/:-@\[-`{-~\xa1\xab\xbb\xbf\u2010-\u205e\u3001-\u301f"
_WORD = re.compile(rf"[^\s{_PUNCTUATION}]+|[{_PUNCTUATION}]")
_CONTROL = re.compile(r"[\0-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
# ASCII that does not end a word.
_INSIDE = re.sub(
    rf"[\s{_PUNCTUATION}]", "", bytes(range(128)).decode()
).encode()


def count_words(text: str) -> int:
    """Return the number of words: "Don't go, Ann." has 7."""
    return len(_WORD.findall(text))


def _max_words(text):
    """Return an upper bound of `count_words`, which is cheaper."""
    ends = text.encode("utf-8", "surrogatepass").translate(None, _INSIDE)
    return 2 * len(ends) + 1  # each may be a mark, and end a word before it


def _length(most, source, target):
    return any(
        _max_words(text) > most and count_words(text) > most
        for text in (source, target)
    )


def _length_ratio(most, source, target):
    # A text has no more words than characters, and no fewer than runs between
    # spaces: most pairs need no counting.
    if len(source) <= most * len(target.split()) and (
        len(target) <= most * len(source.split())
    ):
        return False
    shorter, longer = sorted((count_words(source), count_words(target)))
    return longer > most * shorter


def _control_characters(_, source, target):
    text = f"{source} {target}"
    # The first is cheaper, and enough for most texts.
    return not text.isprintable() and bool(_CONTROL.search(text))


def _true(value):
    if value not in (True, "true"):
        raise ValueError
    return True


_no_value = Validator("without a value", _true)
# In this order: a pair counts under the first filter that leaves it out.
_FILTERS: dict[str, tuple[Validator, Callable[..., bool] | None]] = {
    "broken_encoding": (
        _no_value,
        lambda _, a, b: "\ufffd" in a or "\ufffd" in b,
    ),
    "control_characters": (_no_value, _control_characters),
    "identical": (_no_value, lambda _, a, b: a.strip() == b.strip()),
    "characters": (integer(1), lambda most, a, b: max(len(a), len(b)) > most),
    "length": (integer(1), _length),
    "length_ratio": (real(at_least=1), _length_ratio),
    DUPLICATES: (_no_value, None),
}


def make_filter(
    filters: Mapping[str, Any], tags: Sequence[str] = ()
) -> Callable[[str, str], str | None]:
    """Return a function that gives the first filter that drops a pair, or None.

    It looks at one pair at a time, so it finds no duplicates.

    Args:
      filters: by name.
      tags: that may stand before a source text; they do not count.
    """
    asked = [
        (name, functools.partial(predicate, filters[name]))
        for name, (_, predicate) in _FILTERS.items()
        if name in filters and predicate
    ]

    def reason(source, target):
        if tags:
            _, source = split_tag(source, tags)
        for name, predicate in asked:
            if predicate(source, target):
                return name
        return None

    return reason


def checked(filters: str | Mapping[str, Any]) -> dict[str, Any]:
    """Return the filters by name, in a fixed order.

    Args:
      filters: by name; or as a command line gives them: "length=80,identical"
        is {"length": 80, "identical": True}.

    Raises:
      UsageError: there is no such filter, which names the nearest ones; the
        filter does not take that value; or it is there twice.
    """
    if isinstance(filters, str):
        filters = parse_key_values(filters, "filters", allow_bare_keys=True)
    for name in filters:
        if name not in _FILTERS:
            raise UsageError(
                f"There is no filter {name!r}.{did_you_mean(name, _FILTERS)} "
                f"The filters: {', '.join(_FILTERS)}."
            )
    return {
        name: check(f"The filter {name}", filters[name], validator)
        for name, (validator, _) in _FILTERS.items()
        if name in filters
    }
