"""Background compilation of the search for single texts.

XLA's search is faster for one text but takes seconds to compile. So texts use
the search that is not compiled until XLA has compiled their shape.
"""

import collections
from collections.abc import Callable, Hashable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Generic, TypeVar

T = TypeVar("T")

# Requests of a shape before it is compiled, so that a single request does not
# use the processor for a compilation.
MIN_REQUESTS = 3


class BackgroundJit(Generic[T]):
    """Compiles a function for the shapes that are requested repeatedly.

    Args:
      compiled: the function. Its first call with a shape compiles it.
    """

    def __init__(self, compiled: Callable[..., T]):
        self._compiled = compiled
        self._requests: collections.Counter[Hashable] = collections.Counter()
        self._compilations: dict[Hashable, Future[T]] = {}
        self._thread = ThreadPoolExecutor(1, "background-jit")

    def find(self, shape: Hashable, *args: Any) -> Callable[..., T] | None:
        """Return the function if the shape is compiled, else None.

        `args` are arguments of this shape, with which it is compiled. An error
        of the compilation is raised by the first call after it.
        """
        self._requests[shape] += 1
        if self._requests[shape] < MIN_REQUESTS:
            return None
        if shape not in self._compilations:
            compilation = self._thread.submit(self._compiled, *args)
            self._compilations[shape] = compilation
        compilation = self._compilations[shape]
        if not compilation.done():
            return None
        compilation.result()
        return self._compiled
