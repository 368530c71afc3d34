"""Background compilation of the search for single texts.

XLA's search takes seconds to compile. So a text uses the plain search until
XLA has compiled its shape, and then the faster of the two.
"""

import collections
import functools
import timeit
from collections.abc import Callable, Hashable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import tensorflow as tf

from t2t_lite.errors import format_error
from t2t_lite.progress import log

# Requests of a shape before it is compiled, so that a single request does not
# use the processor for a compilation.
MIN_REQUESTS = 3


class BackgroundJit:
    """Compiles a function for the shapes that are requested repeatedly.

    Args:
      plain: the function without compilation.
      compiled: the same function; its first call with a shape compiles it.
    """

    def __init__(self, plain: Callable, compiled: Callable):
        self._plain, self._compiled = plain, compiled
        self._requests: collections.Counter[Hashable] = collections.Counter()
        self._fastest: dict[Hashable, Future[Callable]] = {}
        self._thread = ThreadPoolExecutor(1, "background-jit")

    def call(self, shape: Hashable, *args: Any) -> Any:
        """Call the compiled function if it is ready and faster, else the other.

        An error of TensorFlow in the compilation is logged, and not repeated.
        """
        self._requests[shape] += 1
        fastest = self._fastest.get(shape)
        if fastest is None and self._requests[shape] >= MIN_REQUESTS:
            self._fastest[shape] = self._thread.submit(self._select, *args)
        if fastest is None or not fastest.done():
            return self._plain(*args)
        return fastest.result()(*args)

    def _select(self, *args: Any) -> Callable:
        """Compile the function for the arguments; return the faster one."""

        def measure(function):
            call = functools.partial(function, *args)
            return min(timeit.repeat(call, number=1, repeat=2))

        try:
            self._compiled(*args)
            return min(self._plain, self._compiled, key=measure)
        except tf.errors.OpError as error:
            log(f"WARNING: No faster search: {format_error(error)}.")
            return self._plain
