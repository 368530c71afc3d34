"""Tags: pieces of a vocabulary that are put before source texts.

A tag selects the output, such as the target language in arXiv:1611.04558, or
marks the origin of a pair, such as back-translation in arXiv:1906.06442. Users
name it `2de`; in a text it is `<2de>`. The tags of MarianMT are `>>deu<<`.
"""

import re
from collections.abc import Sequence

from t2t_lite.errors import UsageError

# Matches texts without a visible character, in Python and RE2: control
# characters, white space as in `str.isspace`, and invisible characters such as
# soft hyphens, zero-width spaces, BOMs, fillers and variation selectors.
BLANK = (
    r"[\x00-\x20\x7f-"
    "\xa0\xad\u034f\u061c\u115f\u1160\u1680\u17b4\u17b5\u180b-\u180f\u2000-\u200f"
    "\u2028-\u202f\u205f-\u206f\u2800\u3000\u3164\ufe00-\ufe0f\ufeff\uffa0"
    "\ufff9-\ufffb\U0001d173-\U0001d17a\U000e0000-\U000e0fff]*"
)
# At least one letter because a number is a share; no reserved pieces.
_NAME = re.compile(
    r"<?(?!(?:pad|unk|s|0x[0-9A-F]{2})\b)"
    r"([0-9_-]*+[A-Za-z][A-Za-z0-9_-]*)>?"
    r"|(>>[A-Za-z0-9_-]+<<)"
)


def tag_of(name: str) -> str | None:
    """Return the tag of a name: "2de" -> "<2de>"; None if it is invalid."""
    match = _NAME.fullmatch(name)
    return match and (match[2] or f"<{match[1]}>")


def check_tag(name: str, tags: Sequence[str]) -> str:
    """Return the tag of a name; raise UsageError if it is not in `tags`."""
    for tag in tags:
        if tag in (tag_of(name), f">>{name}<<"):
            return tag
    raise UsageError(
        "tag must be one of the tags of the training corpora: "
        f"{', '.join(tags) or '(none)'}; got {name!r}."
    )


def add_tag(tag: str, text: str) -> str:
    """Put a tag before a text: "<2de> Two men."; not before a blank text."""
    return text if not tag or is_blank(text) else f"{tag} {text}"


def is_blank(text: str) -> bool:
    """Return whether a text has no visible character."""
    return re.fullmatch(BLANK, text) is not None


def split_tag(text: str, tags: Sequence[str]) -> tuple[str, str]:
    """Split a text into its tag ("" without one) and the rest."""
    tag, space, rest = text.partition(" ")
    return (tag, rest) if space and tag in tags else ("", text)
