"""What weights begin with: drawn numbers, unless a checkpoint gives them."""

import contextlib
import contextvars
from collections.abc import Iterator
from typing import Any

_drawing = contextvars.ContextVar("drawing", default=True)


@contextlib.contextmanager
def zeros() -> Iterator[None]:
    """Weights that are made within are zeros, for values read afterwards."""
    token = _drawing.set(False)
    try:
        yield
    finally:
        _drawing.reset(token)


def drawn(initializer: Any) -> Any:
    """The initializer of a weight, or zeros within `zeros()`."""
    return initializer if _drawing.get() else "zeros"
