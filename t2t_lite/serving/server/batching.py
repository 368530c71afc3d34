"""Dynamic batching of requests. Independent of TensorFlow and of the APIs."""

import asyncio
import dataclasses
import functools
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeAlias

import grpc
import numpy as np

from t2t_lite.serving.server import metrics
from t2t_lite.serving.server.refusal import Refusal

Tensors: TypeAlias = dict[str, np.ndarray]
Run: TypeAlias = Callable[[Tensors], Tensors]

# Rows of up to this length are treated as equally long.
_SHORT = 32
# A batch exceeds this size only if enough rows are left for other workers.
_LARGE = 16


@dataclasses.dataclass(frozen=True)
class Batching:
    """The settings of a `Batcher`."""

    workers: int = 1  # concurrent batches, one thread each
    max_batch_size: int = 32  # rows; larger requests are split
    timeout: float = 0.0  # seconds to wait for others while a batch runs
    max_queue: int = 1024  # rows; an empty queue takes a larger request


@dataclasses.dataclass(eq=False)
class _Job:
    """A request, or a part of a large one."""

    run: Run
    group: Hashable
    inputs: Tensors
    rows: int
    length: int
    arrived: float
    answer: "asyncio.Future[Tensors]"

    def goes_with(self, other: "_Job") -> bool:
        """Return whether both jobs may share a batch: group, similar length."""
        if self is other:
            return True
        short, long = sorted((self.length, other.length))
        alike = long <= 2 * max(short, _SHORT)
        return self.group is not None and self.group == other.group and alike


_Answers: TypeAlias = list[tuple[_Job, Tensors | Exception]]


class Batcher:
    """Runs requests in batches, the oldest request first.

    A batch is filled with requests of the same group that are closest in
    length. So long texts do not delay short ones, and no request starves.

    Attributes:
      running: number of running batches.

    Args:
      how: the settings.
    """

    def __init__(self, how: Batching):
        self._how = how
        self._waiting: dict[_Job, None] = {}  # oldest first
        self._rows = 0  # in the queue
        self.running = 0
        self._running_rows = 0
        self._timer: asyncio.TimerHandle | None = None
        self._pool = ThreadPoolExecutor(how.workers, "batch")

    async def answer(
        self,
        run: Run,
        inputs: Tensors,
        lengths: Sequence[int],
        group: Hashable,
        deadline: float | None = None,
    ) -> Tensors:
        """Return the outputs of one request.

        Args:
          run: computes a batch; called in a worker thread.
          inputs: arrays by name.
          lengths: the length of each row; the run time grows with it.
          group: requests of equal groups may share a batch: their inputs are
            concatenated along the first dimension and their outputs are split
            along it. None: the request runs alone and is not split.
          deadline: in the time of the event loop.

        Raises:
          Refusal: the queue is full, or the deadline has passed.
          Exception: any error of `run` for this request.
        """
        loop = asyncio.get_running_loop()
        now = loop.time()
        if deadline is not None and deadline <= now:
            raise _too_late()
        if self._rows and self._rows + len(lengths) > self._how.max_queue:
            raise Refusal(
                grpc.StatusCode.RESOURCE_EXHAUSTED,
                f"The queue is full ({self._rows} texts of at most "
                f"{self._how.max_queue}). Try again later.",
            )
        order = list(range(len(lengths)))
        parts = [order]
        size = self._how.max_batch_size
        if group is not None and len(lengths) > size:
            order.sort(key=lengths.__getitem__)
            parts = [order[i : i + size] for i in range(0, len(order), size)]
        jobs = [
            _Job(
                run,
                group,
                {
                    k: v[rows] if len(parts) > 1 else v
                    for k, v in inputs.items()
                },
                len(rows),
                max((lengths[row] for row in rows), default=0),
                now,
                loop.create_future(),
            )
            for rows in parts
        ]
        self._waiting |= dict.fromkeys(jobs)
        self._rows += len(lengths)
        metrics.QUEUE.set(self._rows)
        self._start_batches()
        try:
            async with asyncio.timeout_at(deadline):
                if len(jobs) == 1:  # quicker than gather
                    return await jobs[0].answer
                answers = await asyncio.gather(*(job.answer for job in jobs))
        except TimeoutError:
            raise _too_late() from None
        finally:
            for job in jobs:
                job.answer.cancel()
            self._leave(jobs)
        back = np.argsort(order)
        return {
            name: np.concatenate([answer[name] for answer in answers])[back]
            for name in answers[0]
        }

    def close(self) -> None:
        """Stop the threads; the queue must be empty."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _leave(self, jobs: Sequence[_Job]) -> None:
        """Remove jobs from the queue, if they are in it."""
        for job in jobs:
            if job in self._waiting:
                del self._waiting[job]
                self._rows -= job.rows
        metrics.QUEUE.set(self._rows)

    def _start_batches(self) -> None:
        """Start batches on free workers, or set a timer."""
        if self._timer:
            self._timer.cancel()
            self._timer = None
        loop = asyncio.get_running_loop()
        while self._waiting and self.running < self._how.workers:
            batch = self._next_batch()
            rows = sum(job.rows for job in batch)
            ready_at = batch[0].arrived + self._how.timeout
            full = rows >= self._most_rows() or batch[0].group is None
            if self.running and not full and loop.time() < ready_at:
                self._timer = loop.call_at(ready_at, self._start_batches)
                return
            self._leave(batch)
            self.running += 1
            self._running_rows += rows
            loop.run_in_executor(self._pool, _compute, batch).add_done_callback(
                functools.partial(self._finish, rows)
            )

    def _next_batch(self) -> list[_Job]:
        """Return the oldest job and the jobs that share its batch."""
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
        """Return the size limit of the next batch.

        A batch takes about half of a worker's share of all rows, so that other
        rows can be computed while its answers are sent.
        """
        share = (self._rows + self._running_rows) // (2 * self._how.workers)
        return min(self._how.max_batch_size, max(_LARGE, share))

    def _finish(self, rows: int, future: asyncio.Future[_Answers]) -> None:
        """Distribute the answers of a batch that was started with `rows`."""
        self.running -= 1
        self._running_rows -= rows
        for job, answer in future.result():
            if job.answer.done():
                continue
            if isinstance(answer, Exception):
                job.answer.set_exception(answer)
            else:
                job.answer.set_result(answer)
        self._start_batches()


def _too_late() -> Refusal:
    return Refusal(grpc.StatusCode.DEADLINE_EXCEEDED, "The deadline passed.")


def _compute(batch: Sequence[_Job]) -> _Answers:
    """Run a batch without its cancelled jobs, in a worker thread."""
    batch = [job for job in batch if not job.answer.done()]
    if not batch:
        return []
    metrics.BATCH.observe(sum(job.rows for job in batch))
    with metrics.BATCH_SECONDS.time():
        return list(zip(batch, _run(batch), strict=True))


def _run(batch: Sequence[_Job]) -> list[Tensors | Exception]:
    """Return the answer to each job, or the error that it causes alone."""
    if len(batch) > 1:
        try:
            return _run_joined(batch)
        except Exception:  # find the job that causes it
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
