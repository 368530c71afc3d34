"""Requests that wait together run together.

It needs an event loop and numpy, and knows of no model.
"""

import asyncio
import contextlib
import dataclasses
import time
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol, TypeAlias

import numpy as np

from t2t_lite.serving.server.refusal import Refusal, Status

Tensors: TypeAlias = dict[str, np.ndarray]
Run: TypeAlias = Callable[[Tensors], Tensors]

# Rows of up to this length count as equally long.
_SHORT = 32
# Beyond this size, a batch leaves some of what waits to the other workers.
_LARGE = 16


class Observer(Protocol):
    """What is told of batches: metrics."""

    def ran(self, rows: int, seconds: float) -> None:
        """A batch of so many rows took so long."""

    def waiting(self, rows: int) -> None:
        """So many rows wait from now on."""


@dataclasses.dataclass(frozen=True)
class Batching:
    """How to batch.

    Attributes:
      workers: batches that run at once, each in a thread.
      max_batch_size: rows of a batch; a larger request is cut.
      timeout: seconds that a request waits for others to join it. An idle
        server does not wait.
      max_queue: rows that may wait; a request that adds to them is refused.
    """

    workers: int = 1
    max_batch_size: int = 32
    timeout: float = 0.0
    max_queue: int = 1024


@dataclasses.dataclass(eq=False)
class _Job:
    """A request, or a part of a large one.

    Jobs of equal groups may be joined; one without a group runs alone.
    """

    run: Run
    group: Hashable
    inputs: Tensors
    rows: int
    length: int
    arrived: float
    answer: "asyncio.Future[Tensors]"

    def goes_with(self, other: "_Job") -> bool:
        """Whether the two may share a batch, and neither holds up the other."""
        if self is other:
            return True
        short, long = sorted((self.length, other.length))
        alike = long <= 2 * max(short, _SHORT)
        return self.group is not None and self.group == other.group and alike


class Batcher:
    """Runs requests in batches, the one that waits longest first.

    Those of its group that are nearest to it in length go along. So no long
    text holds up short ones, and none waits for ever.

    Args:
      how: see `Batching`.
      observer: is told of batches.
    """

    def __init__(self, how: Batching, observer: Observer):
        self._how = how
        self._observer = observer
        self._waiting: dict[_Job, None] = {}  # oldest first
        self._rows = 0  # that wait
        self._running = 0  # batches
        self._running_rows = 0
        self._ahead: list[_Job] = []  # waits for a worker, not for the loop
        self._timer: asyncio.TimerHandle | None = None
        self._pool = ThreadPoolExecutor(how.workers, "batch")

    @property
    def running(self) -> int:
        """How many batches run now."""
        return self._running

    async def answer(
        self,
        run: Run,
        inputs: Tensors,
        lengths: Sequence[int],
        group: Hashable,
        deadline: float | None = None,
    ) -> Tensors:
        """The outputs for the inputs of one request.

        Args:
          run: computes a batch; called in a worker's thread.
          inputs: of the request.
          lengths: of its rows, in any unit that the time to run grows with.
          group: requests of equal groups may be joined along the first
            dimension of their inputs, which is the rows; their outputs are
            then cut apart there. None: the request runs alone and whole.
          deadline: in the time of the loop.

        Raises:
          Refusal: the queue is full, or the deadline passed.
          Exception: what `run` raises for this request.
        """
        loop = asyncio.get_running_loop()
        now = loop.time()
        if deadline is not None and deadline <= now:
            raise _too_late()
        if self._rows and self._rows + len(lengths) > self._how.max_queue:
            raise Refusal(
                Status.RESOURCE_EXHAUSTED,
                f"The queue is full: {self._rows} texts wait of at most "
                f"{self._how.max_queue}. Try again later.",
            )
        parts, order = [(inputs, lengths)], None
        if group is not None and len(lengths) > self._how.max_batch_size:
            order = sorted(range(len(lengths)), key=lengths.__getitem__)
            parts = self._cut(inputs, lengths, order)
        jobs = [
            _Job(
                run,
                group,
                part,
                len(own),
                max(own, default=0),
                now,
                loop.create_future(),
            )
            for part, own in parts
        ]
        timer = None
        if deadline is not None:
            timer = loop.call_at(deadline, _give_up, jobs)
        self._waiting |= dict.fromkeys(jobs)
        self._count(len(lengths))
        self._start_batches()
        try:
            if order is None:  # what gathers many costs more than one
                return await jobs[0].answer
            answers = await asyncio.gather(*(job.answer for job in jobs))
        finally:
            if timer:
                timer.cancel()
            self._withdraw(jobs)
        return _rejoin(answers, order)

    def close(self) -> None:
        """Ends the threads; nothing must be waiting."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _cut(
        self, inputs: Tensors, lengths: Sequence[int], order: Sequence[int]
    ) -> list[tuple[Tensors, Sequence[int]]]:
        """The batches of a request, its rows in this order: inputs, lengths."""
        size = self._how.max_batch_size
        picks = [order[at : at + size] for at in range(0, len(order), size)]
        return [
            (
                {name: value[rows] for name, value in inputs.items()},
                [lengths[row] for row in rows],
            )
            for rows in picks
        ]

    def _withdraw(self, jobs: Sequence[_Job]) -> None:
        """Nobody waits for these jobs any more."""
        for job in jobs:
            job.answer.cancel()
        self._leave(jobs)

    def _leave(self, jobs: Sequence[_Job]) -> None:
        """Those of these jobs that wait do so no more."""
        rows = 0
        for job in jobs:
            if job in self._waiting:
                del self._waiting[job]
                rows += job.rows
        if rows:
            self._count(-rows)

    def _count(self, rows: int) -> None:
        self._rows += rows
        self._observer.waiting(self._rows)

    def _start_batches(self) -> None:
        """Gives work to free workers, or has a look again later."""
        if self._timer:
            self._timer.cancel()
            self._timer = None
        loop = asyncio.get_running_loop()
        while self._waiting and self._running < self._how.workers:
            batch = self._next_batch()
            rows = sum(job.rows for job in batch)
            ready_at = batch[0].arrived + self._how.timeout
            full = rows >= self._most_rows() or batch[0].group is None
            if self._running and not full and loop.time() < ready_at:
                self._timer = loop.call_at(ready_at, self._start_batches)
                return
            self._begin(batch)
            self._pool.submit(self._work, batch, loop)
        if self._waiting and not self._ahead:
            self._send_ahead(next(iter(self._waiting)))

    def _begin(self, batch: Sequence[_Job]) -> None:
        """A worker has these jobs now."""
        self._leave(batch)
        self._running += 1
        self._running_rows += sum(job.rows for job in batch)

    def _send_ahead(self, job: _Job) -> None:
        """Leaves a job that fills a large batch to the next free worker.

        So that one goes on at once, and not when the loop has the time.
        """
        if job.rows >= max(self._how.max_batch_size, _LARGE):
            self._ahead = [job]
            loop = asyncio.get_running_loop()
            self._pool.submit(self._work, self._ahead, loop)

    def _next_batch(self) -> list[_Job]:
        """The oldest job, and those that go with it."""
        oldest = next(iter(self._waiting))
        others = [job for job in self._waiting if oldest.goes_with(job)]
        others.sort(key=lambda job: abs(job.length - oldest.length))
        others.remove(oldest)
        batch, room = [oldest], self._most_rows() - oldest.rows
        for job in others:
            if job.rows <= room:
                batch.append(job)
                room -= job.rows
        return batch

    def _most_rows(self) -> int:
        """Of the next batch.

        While a batch is answered, others must be waiting: so each worker has
        about half of its share of all rows.
        """
        share = (self._rows + self._running_rows) // (2 * self._how.workers)
        return min(self._how.max_batch_size, max(_LARGE, share))

    def _work(
        self, batch: Sequence[_Job], loop: asyncio.AbstractEventLoop
    ) -> None:
        """Runs what is still wanted of a batch; what a worker does."""
        rows = sum(job.rows for job in batch)
        batch = [job for job in batch if not job.answer.done()]
        start = time.perf_counter()
        answers = _run(batch)
        seconds = time.perf_counter() - start
        with contextlib.suppress(RuntimeError):  # the loop is closed: too late
            loop.call_soon_threadsafe(
                self._finish, rows, batch, answers, seconds
            )

    def _finish(
        self,
        rows: int,
        batch: Sequence[_Job],
        answers: Sequence[Tensors | Exception],
        seconds: float,
    ) -> None:
        """Gives out the answers of a batch that had so many rows."""
        self._running -= 1
        self._running_rows -= rows
        if self._ahead:
            self._begin(self._ahead)
            self._ahead = []
        if batch:
            self._observer.ran(sum(job.rows for job in batch), seconds)
        for job, answer in zip(batch, answers, strict=True):
            if job.answer.done():
                continue
            if isinstance(answer, Exception):
                job.answer.set_exception(answer)
            else:
                job.answer.set_result(answer)
        self._start_batches()


def _too_late() -> Refusal:
    return Refusal(Status.DEADLINE_EXCEEDED, "The deadline passed.")


def _give_up(jobs: Sequence[_Job]) -> None:
    """Refuses what is not answered."""
    for job in jobs:
        if not job.answer.done():
            job.answer.set_exception(_too_late())


def _run(batch: Sequence[_Job]) -> list[Tensors | Exception]:
    """The answer to each job, or what went wrong with it alone."""
    if len(batch) > 1:
        try:
            return _run_joined(batch)
        except Exception:  # one of them is to blame: see which
            return [answer for job in batch for answer in _run([job])]
    try:
        return [job.run(job.inputs) for job in batch]
    except Exception as error:
        return [error]


def _run_joined(batch: Sequence[_Job]) -> list[Tensors | Exception]:
    inputs = {
        name: np.concatenate([job.inputs[name] for job in batch])
        for name in batch[0].inputs
    }
    ends = np.cumsum([job.rows for job in batch])
    outputs = batch[0].run(inputs)
    for name, value in outputs.items():
        if len(value) != ends[-1]:
            raise ValueError(f"{name} has {len(value)} rows, not {ends[-1]}")
    return [
        {name: value[end - job.rows : end] for name, value in outputs.items()}
        for job, end in zip(batch, ends, strict=True)
    ]


def _rejoin(answers: Sequence[Tensors], order: Sequence[int]) -> Tensors:
    """The parts of a request as one, its rows as they came."""
    back = np.argsort(order)
    return {
        name: np.concatenate([answer[name] for answer in answers])[back]
        for name in answers[0]
    }
