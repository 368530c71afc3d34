"""Dynamic batching of requests, independent of TensorFlow and the APIs."""

import asyncio
import dataclasses
import functools
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeAlias

import numpy as np

from t2t_lite.serving.options import ServerOptions
from t2t_lite.serving.server import requests
from t2t_lite.serving.server.requests import ApiError

Tensors: TypeAlias = dict[str, np.ndarray]
Run: TypeAlias = Callable[[Tensors], Tensors]

# Rows of up to this length count as equally long.
_SHORT = 32
# A batch exceeds this size only if enough rows remain for other workers.
_LARGE = 16


@dataclasses.dataclass(eq=False)
class _Job:
    """A request, or a part of a large request."""

    run: Run
    group: Hashable
    inputs: Tensors
    rows: int
    length: int
    answer: "asyncio.Future[Tensors]"

    def is_compatible(self, other: "_Job") -> bool:
        """Return whether group and length allow both jobs to share a batch."""
        short, long = sorted((self.length, other.length))
        similar = long <= 2 * max(short, _SHORT)
        return self.group is not None and self.group == other.group and similar


_Answer: TypeAlias = tuple[_Job, Tensors | Exception]


class Batcher:
    """Runs requests in batches, the oldest request first.

    A batch contains the oldest request and the requests of its group with the
    most similar lengths. So long texts do not delay short ones, and no request
    starves. The options limit batches and the queue.
    """

    def __init__(self, options: ServerOptions):
        self._options = options
        self._waiting: dict[_Job, None] = {}  # oldest first
        self._rows = 0  # rows in the queue
        self.running = 0  # batches
        self._running_rows = 0
        self._pool = ThreadPoolExecutor(options.workers, "batch")

    async def answer(
        self,
        run: Run,
        inputs: Tensors,
        lengths: Sequence[int],
        group: Hashable,
        deadline: float | None = None,
    ) -> Tensors:
        """Return the outputs of one request, which `run` computes in a thread.

        Raises ApiError if the queue is full or the deadline has passed.

        Args:
          run: computes a batch.
          inputs: arrays by name.
          lengths: length of each row, in characters or another unit of cost.
          group: requests of equal groups may share a batch, concatenated along
            the first dimension. None: the request runs alone, in one part.
          deadline: in seconds of the event loop's clock.
        """
        loop = asyncio.get_running_loop()
        if deadline is not None and deadline <= loop.time():
            raise ApiError("The deadline has passed.", "DEADLINE_EXCEEDED")
        if self._rows and self._rows + len(lengths) > self._options.max_queue:
            raise ApiError(
                f"The queue is full ({self._rows} texts of at most "
                f"{self._options.max_queue}). Try again later.",
                "RESOURCE_EXHAUSTED",
            )
        order = list(range(len(lengths)))
        chunks, size = [order], self._options.max_batch_size
        if group is not None and len(lengths) > size:
            order.sort(key=lengths.__getitem__)
            chunks = [order[i : i + size] for i in range(0, len(order), size)]
        jobs = []
        for rows in chunks:
            chunk = {name: value[rows] for name, value in inputs.items()}
            length = max((lengths[row] for row in rows), default=0)
            future = loop.create_future()
            jobs.append(_Job(run, group, chunk, len(rows), length, future))
        self._waiting |= dict.fromkeys(jobs)
        self._rows += len(lengths)
        requests.QUEUE.set(self._rows)
        self._start_batches()
        try:
            async with asyncio.timeout_at(deadline):
                if len(jobs) == 1:  # faster than gather
                    return await jobs[0].answer
                answers = await asyncio.gather(*(job.answer for job in jobs))
        except TimeoutError:
            reason = "The deadline has passed."
            raise ApiError(reason, "DEADLINE_EXCEEDED") from None
        finally:
            for job in jobs:
                job.answer.cancel()
            self._remove(jobs)
        original = np.argsort(order)
        return {
            name: np.concatenate([answer[name] for answer in answers])[original]
            for name in answers[0]
        }

    def close(self) -> None:
        """Stop the threads; the queue must be empty."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _remove(self, jobs: Sequence[_Job]) -> None:
        for job in jobs:
            if job in self._waiting:
                del self._waiting[job]
                self._rows -= job.rows
        requests.QUEUE.set(self._rows)

    def _start_batches(self) -> None:
        loop = asyncio.get_running_loop()
        while self._waiting and self.running < self._options.workers:
            batch = self._next_batch()
            rows = sum(job.rows for job in batch)
            self._remove(batch)
            self.running += 1
            self._running_rows += rows
            loop.run_in_executor(self._pool, _compute, batch).add_done_callback(
                functools.partial(self._finish, rows)
            )

    def _next_batch(self) -> list[_Job]:
        """Select the oldest job and the jobs that share its batch."""
        oldest, *others = self._waiting
        others = [job for job in others if oldest.is_compatible(job)]
        others.sort(key=lambda job: abs(job.length - oldest.length))
        # A batch contains about half of a worker's share of all rows, so that
        # the worker can compute the other half while the answers are sent.
        rows = self._rows + self._running_rows
        share = rows // (2 * self._options.workers)
        maximum = min(self._options.max_batch_size, max(_LARGE, share))
        batch, room = [oldest], maximum - oldest.rows
        for job in others:
            if job.rows <= room:
                batch.append(job)
                room -= job.rows
        return batch

    def _finish(self, rows: int, future: asyncio.Future[list[_Answer]]) -> None:
        """Distribute the answers of a batch; `rows` counts cancelled jobs."""
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


def _compute(batch: Sequence[_Job]) -> list[_Answer]:
    """Run a batch without its cancelled jobs; after an error, one by one."""
    batch = [job for job in batch if not job.answer.done()]
    if not batch:
        return []
    first, rows = batch[0], sum(job.rows for job in batch)
    requests.BATCH.observe(rows)
    try:
        inputs = {
            name: np.concatenate([job.inputs[name] for job in batch])
            for name in first.inputs
        }
        with requests.BATCH_SECONDS.time():
            outputs = first.run(inputs)
        if len(batch) == 1:
            return [(first, outputs)]
        for name, value in outputs.items():
            if len(value) != rows:
                raise ValueError(f"{name} has {len(value)} rows, not {rows}")
    except Exception as error:
        if len(batch) == 1:
            return [(first, error)]
        return [answer for job in batch for answer in _compute([job])]
    answers: list[_Answer] = []
    start = 0
    for job in batch:
        part = slice(start, start := start + job.rows)
        answers.append((job, {name: x[part] for name, x in outputs.items()}))
    return answers
