"""Tags: pieces of a vocabulary that stand before source texts.

A tag says what is wanted, as the target language in arXiv:1611.04558, or where
a pair is from, as of back-translated pairs in arXiv:1906.06442. People name it
`2de`; in a text it is `<2de>`.
"""

import re
from collections.abc import Callable, Sequence

from t2t_lite.errors import UsageError

# At least one letter: a number is a share. Some pieces are there already.
_NAME = re.compile(
    r"<?(?!(?:pad|unk|s|0x[0-9A-F]{2})\b)"
    r"([A-Za-z0-9_-]*[A-Za-z][A-Za-z0-9_-]*)>?"
)


def tag_of(name: str) -> str | None:
    """Return the tag of a name: "2de" and "<2de>" give "<2de>"; None if bad."""
    found = _NAME.fullmatch(name)
    return f"<{found[1]}>" if found else None


def check_tag(name: str, tags: Sequence[str]) -> str:
    """Return the tag of a name, or raise UsageError if `tags` lack it."""
    tag = tag_of(name)
    if tag is None or tag not in tags:
        raise UsageError(
            f"tag must be one of those of the corpora, "
            f"{', '.join(tags) or 'which have none'}; got {name!r}."
        )
    return tag


def add_tag(tag: str, text: str) -> str:
    """Return a text with a tag, "<2de> Two men."; one that is blank stays."""
    return f"{tag} {text}" if tag and text.strip() else text


def split_tag(text: str, tags: Sequence[str]) -> tuple[str, str]:
    """Return the tag before a text, "" without one, and the text itself."""
    tag, space, rest = text.partition(" ")
    return (tag, rest) if space and tag in tags else ("", text)


def split_keeping_tag(
    text: str, tags: Sequence[str], split: Callable[[str], Sequence[str]]
) -> list[str]:
    """Return the sentences of a text; each has the tag of the text, if any."""
    tag, rest = split_tag(text, tags)
    return [add_tag(tag, sentence) for sentence in split(rest)]
