"""A mixture of several corpora, each with its files, share and tag."""

import dataclasses
import math
import os
import random
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from t2t_lite.corpus.parallel import format_of, match_dataset
from t2t_lite.errors import UsageError
from t2t_lite.tokenizers.tags import tag_of
from t2t_lite.validators import file_path, text

Pairs = Iterable[tuple[str, str]]

_TOLERANCE = 0.01  # of the sum of shares, for three times 0.33
_NUMBER = re.compile(r"[-+]?(\d+(\.\d*)?|\.\d+)(e[-+]?\d+)?")


@dataclasses.dataclass(frozen=True)
class Corpus:
    """A corpus of a split."""

    # Absolute paths: one file (or a dataset) with both sides, or one for each.
    files: tuple[str, ...]
    # Fraction of the training pairs, in (0, 1]; None: each pair once.
    share: float | None = None
    tag: str = ""  # before the source texts, such as "<2de>"

    def __str__(self) -> str:
        share = "" if self.share is None else f":{self.share!r}"
        name = self.tag.removeprefix("<").removesuffix(">")
        tag = f":{name}" if name else ""
        return f"{','.join(self.files)}{share}{tag}"


def read_corpora(value: str) -> tuple[Corpus, ...]:
    """Parse corpora in the form FILE[:SHARE][:TAG],...

    Example: "a.tsv:0.7:2de,hf:x/y/de-en:0.3". A colon in FILE follows the kind
    of a dataset only, and FILE contains no comma.

    Raises:
      UsageError: the text has another form, or the sum of the shares is not 1.
    """
    corpora = [_read_corpus(item) for item in value.split(",")]
    shares = [c.share for c in corpora if c.share is not None]
    if shares and (
        len(shares) < len(corpora)
        or min(shares) <= 0
        or round(abs(sum(shares) - 1), 6) > _TOLERANCE
    ):
        raise UsageError(
            "All corpora or none must have shares, each more than 0, with the "
            f"sum 1 (got {value}, sum {sum(shares):g})."
        )
    if len({corpus.files for corpus in corpora}) < len(corpora):
        raise UsageError(f"Each file can be given only once (got {value}).")
    return tuple(corpora)


def _read_corpus(value):
    match = match_dataset(value)
    scheme = match[0] if match else ""
    file, *words = value.removeprefix(scheme).split(":")
    format_of(scheme + file)
    if not scheme or file.startswith(("/", ".", "~")):
        file = file_path(file)
    share = None
    tag: str | None = ""
    if words and _NUMBER.fullmatch(words[0]):
        share = float(words.pop(0))
    if words:
        tag = tag_of(words.pop(0))
    if words or tag is None or share == math.inf:
        raise UsageError(
            "A corpus must be FILE, FILE:SHARE, FILE:TAG or FILE:SHARE:TAG, "
            f"where TAG has letters, digits, _ and - (got {value!r})."
        )
    return Corpus((scheme + file,), share, tag)


def normalize_corpora(value: Any) -> str:
    """Validate a text of corpora and return it with absolute paths."""
    name = text(os.fspath(value) if isinstance(value, os.PathLike) else value)
    return ",".join(map(str, read_corpora(name)))


def target_counts(counts: Sequence[int], shares: Sequence[float]) -> list[int]:
    """Return the smallest numbers of pairs, copies included, with these shares.

    The largest corpus relative to its share contributes each pair once.

    Example: 300 and 10 pairs, shares 0.75 and 0.25 -> 300 and 100.
    """
    pairs = list(zip(counts, shares, strict=True))
    total = max(n / share for n, share in pairs)
    return [max(n, round(total * share)) for n, share in pairs]


def oversample(
    pairs: Pairs, count: int, copies: int, is_usable: Callable[..., bool]
) -> Iterator[tuple[str, str]]:
    """Yield each of `count` usable pairs several times, `copies` in total.

    Copies follow each other. The remainder of `copies / count` is distributed
    at random with a fixed seed. Unusable pairs are yielded once and dropped
    later.
    """
    draw = random.Random(count).random
    times, extra = divmod(copies, count)
    remaining = count
    for pair in pairs:
        if not is_usable(*pair):
            yield pair
            continue
        is_extra = draw() * remaining < extra  # true exactly `extra` times
        extra, remaining = extra - is_extra, remaining - 1
        for _ in range(times + is_extra):
            yield pair
