"""A stream of items through batches of similar length, order kept."""

import itertools
import queue
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple, TypeVar

Item = TypeVar("Item")
Part = TypeVar("Part")
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
    parts: Callable[[Item], Sequence[Part]],
    work: Callable[[list[Part]], Iterable[Result]],
    batch_size: int,
    length: Callable[[Part], int],
) -> Iterator[tuple[Item, list[Result]]]:
    """Applies `work` to batches of parts of similar length, order kept.

    It does not wait for more items while it has some to work on.

    Args:
      items: a thread reads them, not far ahead.
      parts: an item to what is to be worked on, often one part; an item
        without any is answered in its place, too.
      work: a list of parts to as many results.
      batch_size: the most parts in a batch.
      length: a part to its length.

    Yields: each item and the results of its parts, in the order of the items.
    """
    if batch_size < 1:
        raise ValueError(f"batch_size must be at least 1; got {batch_size}.")
    for chunk in _chunks(items, batch_size * _BATCHES_PER_CHUNK):
        parts_of = [parts(item) for item in chunk]
        flat = list(itertools.chain.from_iterable(parts_of))
        # Longest first: if memory does not suffice, it shows at once.
        order = sorted(range(len(flat)), key=lambda i: -length(flat[i]))
        results: dict[int, Result] = {}
        for start in range(0, len(flat), batch_size):
            rows = order[start : start + batch_size]
            batch = [flat[row] for row in rows]
            results.update(zip(rows, work(batch), strict=True))
        in_order = iter([results[row] for row in range(len(flat))])
        for item, own in zip(chunk, parts_of, strict=True):
            yield item, list(itertools.islice(in_order, len(own)))


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
