"""Chunks are encoded in this process, or in several if there are many.

The result does not depend on the number of processes, and however long the
corpus is, only a few chunks are in memory.
"""

import collections
import concurrent.futures
import functools
import multiprocessing
import os
import pathlib
import pickle
import signal
import sys
import threading
from collections.abc import Callable, Mapping
from typing import Any, Self

from t2t_lite.datagen.chunks import Chunk
from t2t_lite.datagen.split_job import SplitJob

# Two processes start and encode so many pairs in the time that one needs.
PAIRS_WORTH_A_POOL = 131_072
_WAITING_CHUNKS = 2  # for each process


class WorkerPool:
    """Does a job on chunks.

    Enter it, and `add` the chunks. After the block all of them are done.

    Args:
      job: what is done; goes to each process, which loads the encoders.
      processes: None means one for each core. A split that is too small for
        several is encoded in this process.
      tell_done: called with the number of pairs of each finished chunk.

    Raises:
      BrokenProcessPool: a worker process died.
    """

    def __init__(
        self,
        job: SplitJob,
        processes: int | None,
        tell_done: Callable[[int], None],
    ):
        self._job = job
        self._processes = processes or _cores()
        self._tell_done = tell_done
        self._held = collections.deque[Chunk]()
        self._executor: concurrent.futures.Executor | None = None
        # What the processes have to do: each with its number of pairs.
        self._under_way = collections.deque[
            tuple[concurrent.futures.Future, int]
        ]()

    def __enter__(self) -> Self:
        return self

    def add(self, chunk: Chunk) -> None:
        """Does the job on a chunk, now or later.

        Chunks are held back until there are enough for several processes.
        """
        self._held.append(chunk)
        held_pairs = sum(len(held.pairs) for held in self._held)
        if self._processes == 1:
            self._run_held_here()
        elif held_pairs >= PAIRS_WORTH_A_POOL or self._executor:
            self._hand_over_held()

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None:
                self._run_held_here()
                while self._under_way:
                    self._wait_for_oldest()
        finally:
            if self._executor:
                self._executor.shutdown(wait=True, cancel_futures=True)

    def _run_held_here(self) -> None:
        while self._held:
            chunk = self._held.popleft()
            self._job.run(self._encoders, chunk)
            self._tell_done(len(chunk.pairs))

    @functools.cached_property
    def _encoders(self) -> Mapping[str, Any]:
        return self._job.problem.load_encoders(self._job.vocabulary_dir)

    @functools.cached_property
    def _pickled_job(self) -> bytes:
        return pickle.dumps(self._job)

    def _hand_over_held(self) -> None:
        executor = self._executor = self._executor or _start(
            self._processes, self._job
        )
        while self._held:
            if len(self._under_way) >= self._processes * _WAITING_CHUNKS:
                self._wait_for_oldest()
            chunk = self._held.popleft()
            future = executor.submit(_run_in_worker, self._pickled_job, chunk)
            self._under_way.append((future, len(chunk.pairs)))

    def _wait_for_oldest(self) -> None:
        future, pairs = self._under_way.popleft()
        future.result()
        self._tell_done(pairs)


def _cores() -> int:
    """How many cores this process may use, where the system tells."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _start(processes: int, job: SplitJob) -> concurrent.futures.Executor:
    # TensorFlow does not survive a fork: workers start from scratch.
    executor = concurrent.futures.ProcessPoolExecutor(
        processes,
        mp_context=multiprocessing.get_context("spawn"),
        initializer=_set_up_worker,
        initargs=(_module_folder(job.problem),),
    )
    # They inherit that Ctrl-C is blocked: it is for this process to handle.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        for _ in range(processes):
            executor.submit(os.getpid)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return executor


def _module_folder(problem: Any) -> str:
    """The folder that a problem's top-level module is imported from.

    A package that a user names by its folder is not on the path of a process
    that starts from scratch.
    """
    top = sys.modules[type(problem).__module__.partition(".")[0]]
    file = pathlib.Path(getattr(top, "__file__", None) or __file__)
    return str(file.parent.parent if file.stem == "__init__" else file.parent)


# All below runs in the worker processes.


def _set_up_worker(module_folder: str) -> None:
    """Runs first. What can fail is left to `_load`, whose errors are told."""
    os.environ["CUDA_VISIBLE_DEVICES"] = "-1"  # leave the memory of GPUs alone
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    if module_folder not in sys.path:
        sys.path.append(module_folder)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """A worker whose parent was killed would wait for work forever."""
    parent = multiprocessing.parent_process()
    assert parent  # this is a worker
    parent.join()
    os._exit(1)


def _run_in_worker(pickled_job: bytes, chunk: Chunk) -> None:
    job, encoders = _load(pickled_job)
    job.run(encoders, chunk)


@functools.lru_cache(maxsize=1)
def _load(pickled_job: bytes) -> tuple[SplitJob, Mapping[str, Any]]:
    """The job and its encoders; a worker loads them with its first chunk."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # the parent speaks
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    job = pickle.loads(pickled_job)
    return job, job.problem.load_encoders(job.vocabulary_dir)
