"""Batches of similar length from a stream; results keep the stream's order."""

import contextlib
import dataclasses
import itertools
import queue
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from t2t_lite.validators import check, integer, optional

Item = TypeVar("Item")
Piece = TypeVar("Piece")
Result = TypeVar("Result")

DEFAULT_SIZE = 64
# Batches that are sorted by length together; more pad less but answer later.
_BATCHES_PER_CHUNK = 16
# The search of a shorter text costs as much as one of this many tokens.
_MIN_TOKENS = 8
_TYPICAL_TOKENS = 32  # tokens of a text, to estimate the size of a chunk
_FLUSH_SECONDS = 0.02  # how long a chunk waits for the next item
_END: Any = object()  # marks the end of a stream


@dataclasses.dataclass(frozen=True)
class Batching:
    """Limits of a batch.

    Raises:
      UsageError: `size` or `tokens` is less than 1.
    """

    # Maximum number of texts; None: 64, or unlimited if `tokens` is set.
    size: int | None = None
    # Maximum number of positions, padding and EOS included. A longer text is a
    # batch of its own.
    tokens: int | None = None
    # Process the items that have arrived when the stream pauses. If False,
    # batches do not depend on the time of arrival.
    flush_early: bool = True

    def __post_init__(self) -> None:
        for name in ("size", "tokens"):
            value = getattr(self, name)
            check(f"batch_{name}", value, optional(integer(1)))

    def chunk(self, workers: int) -> int:
        """Return the number of items to sort together."""
        size = self.size or DEFAULT_SIZE
        if self.tokens:
            typical = max(1, self.tokens // _TYPICAL_TOKENS)
            size = min(self.size or typical, typical)
        return size * _BATCHES_PER_CHUNK * workers

    def batches(
        self, lengths: Sequence[int], workers: int = 1
    ) -> list[list[int]]:
        """Return the indices of each batch, the longest texts first.

        The largest batch comes first, so out-of-memory errors occur early.

        Example: with a size of 2, lengths [3, 9, 4, 8] -> [[1, 3], [2, 0]].

        Args:
          lengths: length of each text, in tokens if `tokens` is set.
          workers: a batch has at most 1 / workers of the texts, rounded up.
        """
        order = sorted(range(len(lengths)), key=lambda i: -lengths[i])
        share = -(-len(order) // workers)
        batches = []
        while order:
            size = self.size or DEFAULT_SIZE
            if self.tokens:
                longest = max(lengths[order[0]], _MIN_TOKENS)
                size = max(1, self.tokens // longest)
                size = min(size, self.size or size)
            size = min(size, share)
            batches.append(order[:size])
            order = order[size:]
        return batches


DEFAULT_BATCHING = Batching()


def map_sorted(
    items: Iterable[Item],
    split: Callable[[Item], Sequence[Piece]],
    work: Sequence[Callable[[list[Piece]], Iterable[Result]]],
    lengths: Callable[[list[Piece]], Sequence[int]],
    batching: Batching,
) -> Iterator[tuple[Item, list[Result]]]:
    """Yield each item with the results of its pieces, in order.

    Args:
      items: the stream; a thread reads at most one chunk ahead.
      split: returns the pieces of an item, usually one; may return none.
      work: workers, functions from a list of pieces of similar length to one
        result each. Several workers run in threads, which Ctrl-C does not wait
        for.
      lengths: returns the lengths of pieces, in the unit of `batching`.
      batching: limits of a batch; a few pieces are divided among all workers.
    """
    threads = ThreadPoolExecutor(len(work))
    free: queue.SimpleQueue = queue.SimpleQueue()
    for each in work:
        free.put(each)

    def run(batch: list[Piece]) -> list[Result]:
        worker = free.get()
        try:
            return list(worker(batch))
        finally:
            free.put(worker)

    run_all = map if len(work) == 1 else threads.map
    try:
        size = batching.chunk(len(work))
        for chunk in _chunks(items, size, batching.flush_early):
            item_pieces = [split(item) for item in chunk]
            flat = list(itertools.chain.from_iterable(item_pieces))
            counts = lengths(flat) if flat else []
            batches = batching.batches(counts, len(work))
            batch_results = run_all(
                run, [[flat[i] for i in indices] for indices in batches]
            )
            results: dict[int, Result] = {}
            for indices, values in zip(batches, batch_results, strict=True):
                results.update(zip(indices, values, strict=True))
            in_order = iter([results[i] for i in range(len(flat))])
            for item, own in zip(chunk, item_pieces, strict=True):
                yield item, list(itertools.islice(in_order, len(own)))
    finally:
        threads.shutdown(wait=False, cancel_futures=True)


def _chunks(
    items: Iterable[Item], size: int, flush_early: bool
) -> Iterator[list[Item]]:
    """Yield lists of 1 to `size` items, in order.

    A thread reads ahead. With `flush_early`, a list ends when the source, such
    as a pipe or a terminal, pauses.
    """
    arrived: queue.Queue[Item] = queue.Queue(maxsize=size)
    errors: list[Exception] = []
    stopped = threading.Event()
    timeout = _FLUSH_SECONDS if flush_early else None

    def _read_ahead() -> None:
        try:
            for item in items:
                arrived.put(item)
                if stopped.is_set():
                    return
        except Exception as error:  # raised again by the reader of the chunks
            errors.append(error)
        arrived.put(_END)

    threading.Thread(target=_read_ahead, daemon=True).start()
    try:
        while True:
            chunk: list[Item] = []
            item = arrived.get()
            while item is not _END:
                chunk.append(item)
                if len(chunk) == size:
                    break
                try:
                    item = arrived.get(timeout=timeout)
                except queue.Empty:
                    break
            if chunk:
                yield chunk
            if item is _END:
                for error in errors:
                    raise error
                return
    finally:
        stopped.set()
        with contextlib.suppress(queue.Empty):
            while True:  # unblock the thread if it waits to add an item
                arrived.get_nowait()
