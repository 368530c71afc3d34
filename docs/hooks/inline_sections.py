"""Lets griffe read docstrings that are generated or have sections on one line.

`Returns: bool [B, S], True where a token is real.` is a section to us; griffe
takes one only if the text begins on the next line.
"""

import inspect
import re
from typing import Any

import griffe

_INLINE = re.compile(r"^(Args|Returns|Yields|Raises): (.+(?:\n {2,}.*)*)", re.M)


class InlineSections(griffe.Extension):
    """Puts a line end behind the names of such sections."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Rewrites the docstring of an object that has one."""
        if obj.path == "t2t_lite.api.train":
            from t2t_lite.api import train

            obj.docstring.value = inspect.getdoc(train)
        if obj.docstring:
            obj.docstring.value = _INLINE.sub(_as_block, obj.docstring.value)


def _as_block(match):
    name, text = match.groups()
    if name in ("Args", "Raises"):  # "Args: as in `generate`." lists nothing
        return f"**{name}**: {text}"
    lines = [line.strip() for line in text.split("\n")]
    return "\n  ".join([f"{name}:", *lines])
