"""Several corpora as one: their files, the share of each, and its tag."""

import dataclasses
import math
import os
import random
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from t2t_lite.corpus.parallel import format_of
from t2t_lite.errors import UsageError
from t2t_lite.tokenizers.tags import tag_of
from t2t_lite.validators import file_path, text

Pairs = Iterable[tuple[str, str]]

_ROUNDING = 0.01  # of a sum of shares: three times 0.33 is enough
_NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?")


@dataclasses.dataclass(frozen=True)
class Corpus:
    """Some of the pairs of a split.

    Attributes:
      files: absolute paths; one that has both sides, or one for each.
      share: of the pairs of train, in (0, 1]; None: each pair is there once.
      tag: the word before its source texts, such as "<2de>"; or "".
    """

    files: tuple[str, ...]
    share: float | None = None
    tag: str = ""

    def __str__(self) -> str:
        share = "" if self.share is None else f":{self.share!r}"
        tag = f":{self.tag[1:-1]}" if self.tag else ""
        return f"{','.join(self.files)}{share}{tag}"


def read_corpora(value: str) -> tuple[Corpus, ...]:
    """Return the corpora in a text FILE[:SHARE][:TAG],...

    Example: "a.tsv:0.7:2de,b.tsv.gz:0.3". Names of files have no comma and no
    colon.

    Raises:
      UsageError: the text has another form, or the shares do not go together.
    """
    corpora = [_read_corpus(part) for part in value.split(",")]
    shares = [c.share for c in corpora if c.share is not None]
    if shares and (
        len(shares) < len(corpora)
        or min(shares) <= 0
        or round(abs(sum(shares) - 1), 6) > _ROUNDING
    ):
        raise UsageError(
            "All corpora have shares or none, each more than 0; they must add "
            f"up to 1, not {sum(shares):g}; got {value}."
        )
    if len({corpus.files for corpus in corpora}) < len(corpora):
        raise UsageError(f"Each file can be named once; got {value}.")
    return tuple(corpora)


def _read_corpus(value):
    file, *words = value.split(":")
    format_of(file)
    share = None
    tag: str | None = ""
    if words and _NUMBER.fullmatch(words[0]):
        share = float(words.pop(0))
    if words:
        tag = tag_of(words.pop(0))
    if words or tag is None or share == math.inf:
        raise UsageError(
            "A corpus is FILE, FILE:SHARE, FILE:TAG or FILE:SHARE:TAG, where a "
            f"TAG has letters, digits, _ and -; got {value!r}."
        )
    return Corpus((file_path(file),), share, tag)


def checked(value: Any) -> str:
    """Return the text of corpora with absolute paths; a validator."""
    name = text(os.fspath(value) if isinstance(value, os.PathLike) else value)
    return ",".join(map(str, read_corpora(name)))


def target_counts(counts: Sequence[int], shares: Sequence[float]) -> list[int]:
    """Return the fewest pairs that each corpus gives to have its share.

    The corpus that is largest for its share gives each pair once.

    Example: 300 and 10 pairs, shares 0.75 and 0.25 -> 300 and 100.
    """
    total = max(n / share for n, share in zip(counts, shares, strict=True))
    return [
        max(n, round(total * share))
        for n, share in zip(counts, shares, strict=True)
    ]


def oversample(
    pairs: Pairs, count: int, copies: int, is_usable: Callable[..., bool]
) -> Iterator[tuple[str, str]]:
    """Yield pairs, each followed by its copies, `copies` usable ones in all.

    Each of `count` is there `copies // count` times, some once more; the same
    ones each time. Pairs that are not usable are dropped later and come once.
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
