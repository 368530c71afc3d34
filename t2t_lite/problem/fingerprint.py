"""The part of a problem's declaration that shapes its data."""

import contextlib
import inspect
import json
from typing import Any

# Attributes that score or describe: a change of them leaves the data valid.
# The options count if there are some, see `Problem.definition`.
_DO_NOT_SHAPE_DATA = frozenset(
    ("name", "options", "known_options", "metric", "reversed", "tfds_bytes")
)


def attributes_of(cls: type) -> dict[str, Any]:
    """Return the public class attributes that are plain data, by name.

    `version` is one of them: a problem raises it when its code changes in a way
    that changes the data.
    """
    attributes = {}
    for name in dir(cls):
        if name.startswith("_") or name in _DO_NOT_SHAPE_DATA:
            continue
        value = inspect.getattr_static(cls, name)
        if name == "filters" and not value:
            continue  # the same as no filters
        if name == "files":  # an address may move, the content may not
            attributes[name] = [[file.name, file.sha256] for file in value]
        else:
            with contextlib.suppress(TypeError):  # it is not plain
                json.dumps(value, sort_keys=True)
                attributes[name] = value
    return attributes
