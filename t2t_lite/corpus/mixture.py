"""Several corpora as one: their files, the share of each, and its tag."""

import dataclasses
import os
import random
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from t2t_lite.corpus.lines import PACKED
from t2t_lite.corpus.pair_files import FORMATS, format_of
from t2t_lite.errors import T2TLiteError, UsageError
from t2t_lite.text.tags import tag_of
from t2t_lite.values import file_path, text

Pairs = Iterable[tuple[str, str]]

_ROUNDING = 0.01  # of a sum of shares: three times 0.33 is enough
_FORM = "FILE, FILE:SHARE, FILE:TAG or FILE:SHARE:TAG"


def _any_of(endings):
    return "|".join(map(re.escape, endings))


# A comma belongs to the name of a file unless an ending stands before it. So
# does a colon, as in `C:\a.tsv`; and behind an ending if a slash follows.
_CORPUS = re.compile(
    rf"(?P<file>.+?(?:{_any_of(FORMATS)})(?:{_any_of(PACKED)})?)"
    r"(?P<rest>(?::[^:,/\\]*)*)(?:,|$)"
)
_NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?")


@dataclasses.dataclass(frozen=True)
class Corpus:
    """Some of the pairs that a split is made of.

    Attributes:
      files: one that has both sides, or one for each.
      share: of the pairs of train, in (0, 1]; None: each pair is there once.
      tag: what stands before its source texts, such as "<2de>"; or nothing.
    """

    files: tuple[str, ...]
    share: float | None = None
    tag: str = ""

    def __str__(self) -> str:
        share = "" if self.share is None else f":{self.share!r}"
        tag = f":{self.tag[1:-1]}" if self.tag else ""
        return f"{','.join(self.files)}{share}{tag}"


def read_corpora(value: str) -> tuple[Corpus, ...]:
    """The corpora that an option names, joined by commas.

    Example: "a.tsv:0.7:2de,b.tsv.gz:0.3".

    Raises:
      UsageError: it is not of that form, or the shares do not go together.
    """
    corpora, place = [], 0
    while place < len(value):
        found = _CORPUS.match(value, place)
        if found is None:
            format_of(value[place:])  # says what it must end in
            raise UsageError(f"A corpus is {_FORM}; got {value[place:]!r}.")
        corpora.append(_corpus(found))
        place = found.end()
    _require_shares(corpora, value)
    files = [corpus.files for corpus in corpora]
    if len(set(files)) < len(files):
        raise UsageError(f"Each file of pairs can be named once; got {value}.")
    return tuple(corpora)


def _corpus(found):
    """The corpus of a match of `_CORPUS`."""
    words = found["rest"].split(":")[1:]
    share = None
    tag: str | None = ""
    if words and _NUMBER.fullmatch(words[0]):
        share = float(words.pop(0))
    if words:
        tag = tag_of(words.pop(0))
    if words or tag is None:
        raise UsageError(
            f"A corpus is {_FORM}, where a TAG has letters, digits, _ and -; "
            f"got {found[0].removesuffix(',')!r}."
        )
    return Corpus((found["file"],), share, tag)


def _require_shares(corpora, value):
    shares = [c.share for c in corpora if c.share is not None]
    if not shares:
        return
    if len(shares) < len(corpora):
        raise UsageError(f"Give all corpora shares or none; got {value}.")
    if min(shares) <= 0:
        raise UsageError(
            f"A share must be more than 0; got {min(shares):g} in {value}."
        )
    if round(abs(sum(shares) - 1), 6) > _ROUNDING:
        raise UsageError(
            f"The shares of the corpora must add up to 1; got {sum(shares):g} "
            f"in {value}."
        )


def checked(value: Any) -> str:
    """The kind of an option that names corpora: as text, paths absolute."""
    name = text(os.fspath(value) if isinstance(value, os.PathLike) else value)
    corpora = read_corpora(name)
    return ",".join(
        str(
            dataclasses.replace(
                corpus, files=tuple(map(file_path, corpus.files))
            )
        )
        for corpus in corpora
    )


def checked_once(value: Any) -> str:
    """As `checked`, for a split in which each pair counts once."""
    name = checked(value)
    if any(corpus.share is not None for corpus in read_corpora(name)):
        raise UsageError(
            "Shares are for train: of dev and test each pair counts once; got "
            f"{value}."
        )
    return name


def copies_for(counts: Sequence[int], shares: Sequence[float]) -> list[int]:
    """How many pairs each corpus gives, so that it has its share.

    That is the fewest that leave no pair out: the corpus that is largest for
    its share gives each pair once.

    Example: 300 and 10 pairs, shares 0.75 and 0.25 -> 300 and 100.

    Args:
      counts: pairs of each corpus, at least 1.
      shares: of each.
    """
    total = max(n / share for n, share in zip(counts, shares, strict=True))
    return [
        max(n, round(total * share))
        for n, share in zip(counts, shares, strict=True)
    ]


def repeated(
    pairs: Pairs, count: int, copies: int, is_usable: Callable[..., bool]
) -> Iterator[tuple[str, str]]:
    """Pairs with their copies behind them, `copies` in all of what is usable.

    Each is there `copies // count` times, some once more; which ones is drawn,
    always alike. The others, which are left out later, come once.

    Args:
      pairs: of a corpus.
      count: how many of them are usable.
      copies: at least as many.
      is_usable: whether a pair is.
    """
    draw = random.Random(count).random
    times, more = divmod(copies, count)
    left = count
    for pair in pairs:
        if not is_usable(*pair):
            yield pair
            continue
        chosen = draw() * left < more  # so that exactly `more` are chosen
        more, left = more - chosen, left - 1
        for _ in range(times + chosen):
            yield pair


def count_usable(
    pairs: Pairs, corpus: Corpus, is_usable: Callable[..., bool]
) -> int:
    """How many pairs of a corpus are usable.

    Raises:
      T2TLiteError: none is, and the corpus must give a share.
    """
    count = sum(is_usable(*pair) for pair in pairs)
    if corpus.share is not None and not count:
        raise T2TLiteError(
            f"{' and '.join(corpus.files)} must give a share of "
            f"{corpus.share:g}, but has no pair to use. Check the file, "
            "--filters and --holdout."
        )
    return count
