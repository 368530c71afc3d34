"""Segments of text pairs to serialized examples, in this process or in several.

The result does not depend on the number of processes, and however long the
corpus is, at most a few segments wait.
"""

import collections
import concurrent.futures
import contextlib
import itertools
import multiprocessing
import os
import pathlib
import pickle
import signal
import sys
import threading
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from t2t_lite.datagen.serialization import serialize_pairs

if TYPE_CHECKING:
    from t2t_lite.datagen.chunks import Segment, SegmentJob

# Two processes start and encode so many pairs in the time that one needs.
PAIRS_WORTH_A_POOL = 131_072
_WAITING_SEGMENTS = 2  # for each process

_worker = {}  # in a worker process: the job pickled, then unpickled


class EncodedChunk(NamedTuple):
    """Serialized tf.train.Examples and the lengths of their sides, EOS counted.

    Attributes:
      examples: list of bytes.
      source_lengths, target_lengths: int64 [examples].
      unknown: tokens that stand for what a vocabulary cannot write.
    """

    examples: list[bytes]
    source_lengths: np.ndarray
    target_lengths: np.ndarray
    unknown: int = 0


def encode_chunk(encoders, chunk: list[tuple[str, str]]) -> EncodedChunk:
    """Encodes some pairs: ids of both sides, EOS last, as examples."""
    from t2t_lite.text.encoder import EOS_ID

    sources = encoders["inputs"].encode([source for source, _ in chunk])
    targets = encoders["targets"].encode([target for _, target in chunk])
    return EncodedChunk(
        serialize_pairs(sources, targets, last=EOS_ID),
        np.array([len(ids) + 1 for ids in sources], np.int64),
        np.array([len(ids) + 1 for ids in targets], np.int64),
        _unknown(encoders["inputs"], sources)
        + _unknown(encoders["targets"], targets),
    )


def _unknown(encoder, rows):
    """How many ids are `unknown_id`; an encoder without one knows all."""
    unknown_id = getattr(encoder, "unknown_id", None)
    if unknown_id is None:
        return 0
    return sum(int(np.count_nonzero(ids == unknown_id)) for ids in rows)


def run_segments(
    job: "SegmentJob",
    segments: Iterable["Segment"],
    processes: int | None = None,
) -> Iterator[int]:
    """Does the job on all segments.

    Args:
      job: is sent to each process, which loads the encoders of its problem.
      segments: streamed.
      processes: None means one for each core. A corpus that is too small to be
        worth it is encoded in this process.

    Yields:
      how many pairs a segment has, when it is done.

    Raises:
      BrokenProcessPool: a worker process died.
    """
    processes = processes or _cores()
    segments = iter(segments)
    head, pairs = [], 0
    while pairs < PAIRS_WORTH_A_POOL and (segment := next(segments, None)):
        head.append(segment)
        pairs += len(segment.pairs)
    if not head:
        return
    is_small = pairs < PAIRS_WORTH_A_POOL
    segments = itertools.chain(_handed_over(head), segments)
    if processes == 1 or is_small:
        encoders = job.problem.load_encoders(job.vocabulary_dir)
        for segment in segments:
            job.run(encoders, segment)
            yield len(segment.pairs)
    else:
        yield from _in_processes(job, segments, processes)


def _handed_over(items):
    """Yields what is in a list and lets go of it."""
    items.reverse()
    while items:
        yield items.pop()


def _cores():
    """How many cores this process may use, where the system tells."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _in_processes(job, segments, processes):
    # TensorFlow does not survive a fork: workers start afresh.
    executor = concurrent.futures.ProcessPoolExecutor(
        processes,
        mp_context=multiprocessing.get_context("spawn"),
        initializer=_set_up_worker,
        initargs=_portable(job),
    )
    try:
        with _ctrl_c_ignored():  # inherited: it is for this process to handle
            for _ in range(processes):
                executor.submit(os.getpid)
        waiting = collections.deque()
        for segment in segments:
            future = executor.submit(_run_in_worker, segment)
            waiting.append((future, len(segment.pairs)))
            del segment  # the executor lets go of it when it is done
            if len(waiting) >= processes * _WAITING_SEGMENTS:
                yield _finished(waiting.popleft())
        while waiting:
            yield _finished(waiting.popleft())
    finally:
        executor.shutdown(wait=True, cancel_futures=True)


def _finished(waiting):
    future, pairs = waiting
    future.result()
    return pairs


def _portable(job):
    """The job pickled, and the folder its problem's top-level module is from.

    A package that a user names by its folder is not on the path of a process
    that starts afresh.
    """
    top = sys.modules[type(job.problem).__module__.partition(".")[0]]
    file = pathlib.Path(getattr(top, "__file__", None) or __file__)
    folder = file.parent.parent if file.stem == "__init__" else file.parent
    return pickle.dumps(job), str(folder)


def _set_up_worker(pickled, module_folder):
    """Runs in a worker first; what can fail is left to the first segment."""
    os.environ["CUDA_VISIBLE_DEVICES"] = "-1"  # leave the memory of GPUs alone
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    if module_folder not in sys.path:
        sys.path.append(module_folder)
    _worker["pickled"] = pickled
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent():
    """A worker whose parent was killed would wait for work for ever."""
    multiprocessing.parent_process().join()
    os._exit(1)


def _run_in_worker(segment):
    if "job" not in _worker:
        _start_tensorflow()
        job = pickle.loads(_worker["pickled"])
        encoders = job.problem.load_encoders(job.vocabulary_dir)
        _worker["job"] = job, encoders
    job, encoders = _worker["job"]
    job.run(encoders, segment)


def _start_tensorflow():
    """Imports TensorFlow on one thread, silently: the parent speaks."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)


@contextlib.contextmanager
def _ctrl_c_ignored():
    """Processes started inside never see Ctrl-C; Python's threads do not ask.

    Only the main thread may change what a signal does; others leave it.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
