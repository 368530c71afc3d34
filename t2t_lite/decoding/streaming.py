"""A stream of items through batches of similar length, order kept."""

import queue
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")

# Batches sorted by length together: more of them pad less but answer later.
_BATCHES_PER_CHUNK = 16
# How long a chunk waits for one more item, in seconds.
_PATIENCE = 0.02


class _End(NamedTuple):
    """What follows the last item of a stream."""

    error: Exception | None  # what ended it; None: all was read


def map_sorted(
    items: Iterable[Item],
    work: Callable[[list[Item]], Iterable[Result]],
    batch_size: int,
    length: Callable[[Item], int],
) -> Iterator[Result]:
    """Applies `work` to batches of items of similar length, order kept.

    It does not wait for more items while it has some to work on.

    Args:
      items: a thread reads them, not far ahead.
      work: a list of items to as many results.
      batch_size: the most items in a batch.
      length: an item to its length.

    Yields: the result of each item, in the order of the items.
    """
    if batch_size < 1:
        raise ValueError(f"batch_size must be at least 1; got {batch_size}.")
    for chunk in _chunks(items, batch_size * _BATCHES_PER_CHUNK):
        # Longest first: if memory does not suffice, it shows at once.
        order = sorted(range(len(chunk)), key=lambda i: -length(chunk[i]))
        results: dict[int, Result] = {}
        for start in range(0, len(chunk), batch_size):
            rows = order[start : start + batch_size]
            batch = [chunk[row] for row in rows]
            results.update(zip(rows, work(batch), strict=True))
        yield from (results[row] for row in range(len(chunk)))


def _chunks(items: Iterable[Item], size: int) -> Iterator[list[Item]]:
    """Lists of the items that have come: 1 to `size` of them, in order.

    A thread reads ahead, so that a slow source, a pipe or a person, is
    answered as soon as it pauses.
    """
    waiting: queue.Queue[Item | _End] = queue.Queue(maxsize=size)
    stopped = threading.Event()
    reader = threading.Thread(
        target=_read_ahead, args=(items, waiting, stopped), daemon=True
    )
    reader.start()
    try:
        end = None
        while end is None:
            chunk, end = _next_chunk(waiting, size)
            if chunk:
                yield chunk
        if end.error:
            raise end.error
    finally:
        stopped.set()


def _read_ahead(
    items: Iterable[Item],
    waiting: "queue.Queue[Item | _End]",
    stopped: threading.Event,
) -> None:
    """Puts the items in the queue, then the end."""

    def put(item: Item | _End) -> None:
        while not stopped.is_set():
            try:
                return waiting.put(item, timeout=0.5)
            except queue.Full:
                continue

    error = None
    try:
        for item in items:
            put(item)
            if stopped.is_set():
                return
    except Exception as raised:  # raised again where the chunks are read
        error = raised
    put(_End(error))


def _next_chunk(
    waiting: "queue.Queue[Item | _End]", size: int
) -> tuple[list[Item], _End | None]:
    """Waits for one item, then takes what comes without a pause.

    Returns: the items, and the end if it came after them.
    """
    chunk: list[Item] = []
    while len(chunk) < size:
        try:
            item = waiting.get(timeout=_PATIENCE if chunk else None)
        except queue.Empty:
            break
        if isinstance(item, _End):
            return chunk, item
        chunk.append(item)
    return chunk, None
