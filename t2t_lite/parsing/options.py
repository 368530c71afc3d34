"""The options of a `ParsingProblem`: their types and ranges."""

import os
from collections.abc import Mapping
from typing import Any

from t2t_lite.errors import UsageError
from t2t_lite.parsing.treebank import Numbers

LEAVES = ("XX", "tags")


def typed_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options with values of their types; see `ParsingProblem`.

    Raises:
      UsageError: a value is none that the option can have.
    """
    return {name: _typed(name, value) for name, value in options.items()}


def _typed(name, value):
    if name in ("train", "dev", "test"):
        return str(Numbers.parse(str(value), name))
    if name == "leaves":
        if value not in LEAVES:
            raise UsageError(
                f"leaves must be {' or '.join(LEAVES)}; got {value!r}."
            )
        return value
    if name == "trees":
        paths = [path for path in str(value).split(":") if path]
        return ":".join(
            os.path.abspath(os.path.expanduser(path)) for path in paths
        )
    rule, kind, holds = {
        "vocab_size": ("at least 1", int, lambda size: size >= 1),
        "subtrees": ("at least 2", int, lambda words: words >= 2),
        "treebank_share": (
            "above 0 and below 1",
            float,
            lambda share: 0 < share < 1,
        ),
    }[name]
    try:
        number = kind(value)
    except ValueError:
        number = None
    if number is None or not holds(number):
        raise UsageError(f"{name} must be a number {rule}; got {value!r}.")
    return number
