"""Chunks are encoded in this process, or in several if there are many.

The result does not depend on the number of processes, and however long the
corpus is, only a few chunks are in memory.
"""

import collections
import concurrent.futures
import functools
import itertools
import multiprocessing
import os
import pathlib
import pickle
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from t2t_lite.datagen.chunks import Chunk
from t2t_lite.datagen.split_job import SplitJob
from t2t_lite.runtime import usable_cores

# Two processes start and encode so many pairs in the time that one needs.
PAIRS_WORTH_A_POOL = 131_072
_WAITING_CHUNKS = 2  # for each process


def run_job(
    job: SplitJob,
    chunks: Iterable[Chunk],
    processes: int | None,
    tell_done: Callable[[int], None],
) -> None:
    """Does a job on chunks.

    Args:
      job: what is done; goes to each process, which loads the encoders.
      chunks: of the split, streamed.
      processes: None means one for each core. A split that is too small for
        several is encoded in this process.
      tell_done: called with the number of pairs of each finished chunk.

    Raises:
      BrokenProcessPool: a worker process died.
    """
    processes = processes or usable_cores()
    are_many = False
    if processes > 1:
        chunks, are_many = _look_ahead(chunks)
    if are_many:
        _run_in_pool(job, chunks, processes, tell_done)
        return
    encoders = job.problem.load_encoders(job.vocabulary_dir)
    for chunk in chunks:
        job.run(encoders, chunk)
        tell_done(len(chunk.pairs))


def _look_ahead(chunks: Iterable[Chunk]) -> tuple[Iterator[Chunk], bool]:
    """The same chunks, and whether they are worth several processes."""
    chunks = iter(chunks)
    held, pairs = [], 0
    for chunk in chunks:
        held.append(chunk)
        pairs += len(chunk.pairs)
        if pairs >= PAIRS_WORTH_A_POOL:
            break
    return itertools.chain(held, chunks), pairs >= PAIRS_WORTH_A_POOL


def _run_in_pool(
    job: SplitJob,
    chunks: Iterable[Chunk],
    processes: int,
    tell_done: Callable[[int], None],
) -> None:
    pickled_job = pickle.dumps(job)
    # What the processes have to do, each with its number of pairs.
    under_way = collections.deque[tuple[concurrent.futures.Future, int]]()

    def wait_for_oldest() -> None:
        future, pairs = under_way.popleft()
        future.result()
        tell_done(pairs)

    executor = _start(processes, job)
    try:
        for chunk in chunks:
            if len(under_way) >= processes * _WAITING_CHUNKS:
                wait_for_oldest()
            future = executor.submit(_run_in_worker, pickled_job, chunk)
            under_way.append((future, len(chunk.pairs)))
        while under_way:
            wait_for_oldest()
    finally:
        executor.shutdown(wait=True, cancel_futures=True)


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
