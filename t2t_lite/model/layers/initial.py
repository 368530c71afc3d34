"""What weights begin with: drawn numbers, unless a checkpoint gives them."""

import contextlib
import contextvars
from collections.abc import Iterator
from typing import Any

from t2t_lite.model.layers.backend import unset_values

_is_set = contextvars.ContextVar("is_set", default=True)


@contextlib.contextmanager
def unset(really: bool = True) -> Iterator[None]:
    """Weights that are made within have any values, until they are read."""
    token = _is_set.set(not really)
    try:
        yield
    finally:
        _is_set.reset(token)


def drawn(initializer: Any) -> Any:
    """The initializer of a weight, or one of any values within `unset()`."""
    return initializer if _is_set.get() else unset_values
