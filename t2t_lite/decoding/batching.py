"""A stream of items in batches of similar length, in the order of the items."""

import contextlib
import dataclasses
import itertools
import queue
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple, TypeVar

from t2t_lite.errors import UsageError

Item = TypeVar("Item")
Part = TypeVar("Part")
Result = TypeVar("Result")

DEFAULT_SIZE = 64
# Batches sorted by length together: more of them pad less but answer later.
_BATCHES_PER_CHUNK = 16
# A short text counts as this many tokens: its search costs as much.
_LEAST_TOKENS = 8
_USUAL_TOKENS = 32  # of a text, to estimate the batches of a chunk
_FLUSH_SECONDS = 0.02  # a chunk waits this long for one more item


class _End(NamedTuple):
    """The end of a stream, with the exception that ended it."""

    error: Exception | None


@dataclasses.dataclass(frozen=True)
class Batching:
    """Rules of which texts form a batch.

    Attributes:
      size: the most texts of a batch; None: 64, or any number with `tokens`.
      tokens: the most positions of a batch, padding and EOS included; a longer
        text is a batch of its own.
      prompt: answer the items that have arrived as soon as a stream pauses. If
        False, the batches do not depend on the time of arrival.

    Raises:
      UsageError: a size is less than 1.
    """

    size: int | None = None
    tokens: int | None = None
    prompt: bool = True

    def __post_init__(self) -> None:
        for name in ("size", "tokens"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise UsageError(
                    f"batch_{name} must be at least 1; got {value}."
                )

    def chunk(self, workers: int) -> int:
        """Return how many items are sorted together."""
        size = self.size or DEFAULT_SIZE
        if self.tokens:
            usual = max(1, self.tokens // _USUAL_TOKENS)
            size = min(self.size or usual, usual)
        return size * _BATCHES_PER_CHUNK * workers

    def batches(
        self, lengths: Sequence[int], shares: int = 1
    ) -> list[list[int]]:
        """Return the indices of each batch, the longest texts first.

        So a lack of memory shows immediately. No batch has more than a share of
        the texts, rounded up.

        Example: with a size of 2, lengths [3, 9, 4, 8] -> [[1, 3], [2, 0]].
        """
        order = sorted(range(len(lengths)), key=lambda i: -lengths[i])
        share = -(-len(order) // shares)
        batches = []
        while order:
            room = self.size or DEFAULT_SIZE
            if self.tokens:
                longest = max(lengths[order[0]], _LEAST_TOKENS)
                room = max(1, self.tokens // longest)
                room = min(room, self.size or room)
            room = min(room, share)
            batches.append(order[:room])
            order = order[room:]
        return batches


DEFAULT_BATCHING = Batching()


def map_sorted(
    items: Iterable[Item],
    parts: Callable[[Item], Sequence[Part]],
    work: Sequence[Callable[[list[Part]], Iterable[Result]]],
    lengths: Callable[[list[Part]], Sequence[int]],
    batching: Batching,
) -> Iterator[tuple[Item, list[Result]]]:
    """Apply work to batches of parts of similar length; keep the order.

    Args:
      items: read by a thread, not far ahead.
      parts: the parts of an item, often one; an item may have none.
      work: functions from a list of parts to as many results. A batch goes to
        whichever is free; several have a thread each, and Ctrl-C does not wait
        for them.
      lengths: the lengths of parts, in the unit of `batching`.
      batching: which parts form a batch; few parts are shared out, so that all
        work.

    Yields:
      Each item and the results of its parts.
    """
    threads = ThreadPoolExecutor(len(work))
    free: queue.SimpleQueue = queue.SimpleQueue()
    for each in work:
        free.put(each)

    def run(batch: list[Part]) -> list[Result]:
        worker = free.get()
        try:
            return list(worker(batch))
        finally:
            free.put(worker)

    run_all = map if len(work) == 1 else threads.map
    try:
        size = batching.chunk(len(work))
        for chunk in _chunks(items, size, batching.prompt):
            parts_of = [parts(item) for item in chunk]
            flat = list(itertools.chain.from_iterable(parts_of))
            counts = lengths(flat) if flat else []
            batches = batching.batches(counts, len(work))
            found = run_all(run, [[flat[i] for i in rows] for rows in batches])
            results: dict[int, Result] = {}
            for rows, row_results in zip(batches, found, strict=True):
                results.update(zip(rows, row_results, strict=True))
            in_order = iter([results[row] for row in range(len(flat))])
            for item, own in zip(chunk, parts_of, strict=True):
                yield item, list(itertools.islice(in_order, len(own)))
    finally:
        threads.shutdown(wait=False, cancel_futures=True)


def _chunks(
    items: Iterable[Item], size: int, prompt: bool
) -> Iterator[list[Item]]:
    """Yield lists of 1 to `size` items that have arrived, in order.

    A thread reads ahead, so that a slow source, such as a pipe or a person, is
    answered as soon as it pauses, if `prompt`.
    """
    arrived: queue.Queue[Item | _End] = queue.Queue(maxsize=size)
    stopped = threading.Event()
    patience = _FLUSH_SECONDS if prompt else None

    def _read_ahead() -> None:
        end = _End(None)
        try:
            for item in items:
                arrived.put(item)
                if stopped.is_set():
                    return
        except Exception as error:  # raised again where the chunks are read
            end = _End(error)
        arrived.put(end)

    threading.Thread(target=_read_ahead, daemon=True).start()
    try:
        while True:
            chunk: list[Item] = []
            item: Item | _End = arrived.get()
            while not isinstance(item, _End):
                chunk.append(item)
                if len(chunk) == size:
                    break
                try:
                    item = arrived.get(timeout=patience)
                except queue.Empty:
                    break
            if chunk:
                yield chunk
            if isinstance(item, _End):
                if item.error:
                    raise item.error
                return
    finally:
        stopped.set()
        with contextlib.suppress(queue.Empty):
            while True:  # make room for a reader that waits to add an item
                arrived.get_nowait()
