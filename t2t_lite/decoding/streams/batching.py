"""A stream of items through batches of similar length, order kept."""

import contextlib
import dataclasses
import itertools
import queue
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple, TypeVar

Item = TypeVar("Item")
Part = TypeVar("Part")
Result = TypeVar("Result")

DEFAULT_SIZE = 64
# Batches sorted by length together: more of them pad less but answer later.
_BATCHES_PER_CHUNK = 16
# What a text counts as at least: a search over a short one costs as much.
_LEAST_TOKENS = 8
_USUAL_TOKENS = 32  # of a text, to tell how many batches a chunk will be
# How long a chunk waits for one more item, in seconds.
_PATIENCE = 0.02


class _End(NamedTuple):
    """What follows the last item of a stream."""

    error: Exception | None  # what ended it; None: all was read


@dataclasses.dataclass(frozen=True)
class Batching:
    """What goes together in a batch.

    Attributes:
      size: the most texts of a batch; None: 64, or any number with `tokens`.
      tokens: the most positions of a batch, padding and EOS included; a text
        that has more is a batch of its own.
      prompt: answer what has come as soon as a stream pauses. If False, what
        goes together does not depend on when it comes.
    """

    size: int | None = None
    tokens: int | None = None
    prompt: bool = True

    def __post_init__(self) -> None:
        for name in ("size", "tokens"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(
                    f"batch_{name} must be at least 1; got {value}."
                )

    def chunk(self, workers: int) -> int:
        """How many items are sorted together, at most, for so many workers."""
        size = self.size or DEFAULT_SIZE
        if self.tokens:
            usual = max(1, self.tokens // _USUAL_TOKENS)
            size = min(self.size or usual, usual)
        return size * _BATCHES_PER_CHUNK * workers

    def batches(
        self, lengths: Sequence[int], shares: int = 1
    ) -> list[list[int]]:
        """Which texts go together, by their lengths: similar ones.

        No batch has more than a share of the texts, rounded up.

        Example: with a size of 2, lengths [3, 9, 4, 8] -> [[1, 3], [2, 0]].
        """
        # Longest first: if memory does not suffice, it shows at once.
        order = sorted(range(len(lengths)), key=lambda i: -lengths[i])
        share = -(-len(order) // shares)
        made = []
        start = 0
        while start < len(order):
            end = start + min(share, self._room(lengths[order[start]]))
            made.append(order[start:end])
            start = end
        return made

    def _room(self, longest: int) -> int:
        """How many texts a batch takes whose longest has such a length."""
        if self.tokens is None:
            return self.size or DEFAULT_SIZE
        room = max(1, self.tokens // max(longest, _LEAST_TOKENS))
        return min(room, self.size or room)


def map_sorted(
    items: Iterable[Item],
    parts: Callable[[Item], Sequence[Part]],
    work: Sequence[Callable[[list[Part]], Iterable[Result]]],
    lengths: Callable[[list[Part]], Sequence[int]],
    batching: Batching,
    share_out: bool = False,
) -> Iterator[tuple[Item, list[Result]]]:
    """Applies work to batches of parts of similar length, order kept.

    Args:
      items: a thread reads them, not far ahead.
      parts: an item to what is to be worked on, often one part; an item
        without any is answered in its place, too.
      work: each takes a list of parts to as many results. The batches go to
        whichever is free, each in a thread of its own if there are several;
        Ctrl-C does not wait for these.
      lengths: parts to their lengths, in what `batching` counts.
      batching: what goes together.
      share_out: whether few parts become more batches, smaller ones, so that
        none of several workers is left idle.

    Yields: each item and the results of its parts, in the order of the items.
    """
    with _threads(len(work)) as threads:
        size = batching.chunk(len(work))
        for chunk in _chunks(items, size, batching.prompt):
            parts_of = [parts(item) for item in chunk]
            flat = list(itertools.chain.from_iterable(parts_of))
            shares = len(work) if share_out else 1
            batches = batching.batches(lengths(flat) if flat else [], shares)
            found = _in_turn(
                [[flat[row] for row in rows] for rows in batches], work, threads
            )
            results: dict[int, Result] = {}
            for rows, row_results in zip(batches, found, strict=True):
                results.update(zip(rows, row_results, strict=True))
            in_order = iter([results[row] for row in range(len(flat))])
            for item, own in zip(chunk, parts_of, strict=True):
                yield item, list(itertools.islice(in_order, len(own)))


@contextlib.contextmanager
def _threads(count: int) -> Iterator[ThreadPoolExecutor]:
    """Threads; at the end it waits for what they do, but for Ctrl-C."""
    threads = ThreadPoolExecutor(count)
    wait = True
    try:
        yield threads
    except KeyboardInterrupt:
        wait = False
        raise
    finally:
        threads.shutdown(wait, cancel_futures=True)


def _in_turn(
    batches: Sequence[list[Part]],
    work: Sequence[Callable[[list[Part]], Iterable[Result]]],
    threads: ThreadPoolExecutor,
) -> Iterator[list[Result]]:
    """The results of each batch, from whichever worker was free."""
    if len(work) == 1:
        return (list(work[0](batch)) for batch in batches)
    free: queue.SimpleQueue = queue.SimpleQueue()
    for worker in work:
        free.put(worker)

    def ask_one(batch: list[Part]) -> list[Result]:
        worker = free.get()
        try:
            return list(worker(batch))
        finally:
            free.put(worker)

    return threads.map(ask_one, batches)


def _chunks(
    items: Iterable[Item], size: int, prompt: bool
) -> Iterator[list[Item]]:
    """Lists of the items that have come: 1 to `size` of them, in order.

    A thread reads ahead, so that a slow source, a pipe or a person, is
    answered as soon as it pauses, if it is to be prompt.
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
            chunk, end = _next_chunk(waiting, size, prompt)
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
    waiting: "queue.Queue[Item | _End]", size: int, prompt: bool
) -> tuple[list[Item], _End | None]:
    """Waits for one item, then takes what comes; a prompt one without a pause.

    Returns: the items, and the end if it came after them.
    """
    chunk: list[Item] = []
    while len(chunk) < size:
        try:
            pause = _PATIENCE if chunk and prompt else None
            item = waiting.get(timeout=pause)
        except queue.Empty:
            break
        if isinstance(item, _End):
            return chunk, item
        chunk.append(item)
    return chunk, None
