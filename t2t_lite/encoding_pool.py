"""Text pairs to serialized examples, in this process or in several.

The result does not depend on the number of processes: chunks come back in the
order they went in, and at most a few wait, however long the corpus is.
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
from concurrent.futures.process import BrokenProcessPool
from typing import NamedTuple

import numpy as np

from t2t_lite.errors import T2TLiteError
from t2t_lite.problem import Problem

CHUNK_PAIRS = 4096
# Two processes start and encode so many pairs in the time that one needs.
PAIRS_WORTH_A_POOL = 131_072
_WAITING_CHUNKS = 2  # for each process

_worker = {}  # in a worker process: how to make the encoders, then the encoders


class EncodedChunk(NamedTuple):
    """Serialized tf.train.Examples and the lengths of their sides, EOS counted.

    Attributes:
      examples: list of bytes.
      source_lengths, target_lengths: int64 [examples].
    """

    examples: list[bytes]
    source_lengths: np.ndarray
    target_lengths: np.ndarray


def encode_pairs(
    pairs: Iterable[tuple[str, str]],
    problem: Problem,
    vocabulary_dir: str | os.PathLike,
    processes: int | None = None,
) -> Iterator[EncodedChunk]:
    """Encodes text pairs with the problem's encoders, in order.

    Args:
      pairs: (source, target) texts, streamed.
      problem: its `load_encoders` is called in each process.
      vocabulary_dir: where the vocabulary files are.
      processes: None means one for each core. A corpus that is too small to be
        worth it is encoded in this process.

    Yields:
      one `EncodedChunk` for every CHUNK_PAIRS pairs.

    Raises:
      T2TLiteError: a worker process died.
    """
    processes = processes or _cores()
    pairs = iter(pairs)
    chunks = iter(lambda: list(itertools.islice(pairs, CHUNK_PAIRS)), [])
    head = list(itertools.islice(chunks, PAIRS_WORTH_A_POOL // CHUNK_PAIRS))
    is_small = sum(map(len, head)) < PAIRS_WORTH_A_POOL
    chunks = itertools.chain(head, chunks)
    del head  # the chain lets go of it as it goes on
    if processes == 1 or is_small:
        encoders = problem.load_encoders(vocabulary_dir)
        for chunk in chunks:
            yield encode_chunk(encoders, chunk)
    else:
        yield from _in_processes(chunks, problem, vocabulary_dir, processes)


def encode_chunk(encoders, chunk: list[tuple[str, str]]) -> EncodedChunk:
    """Encodes one chunk: ids of both sides, EOS last, as examples."""
    import tensorflow as tf

    from t2t_lite.text_encoder import EOS_ID

    sources = encoders["inputs"].encode([source for source, _ in chunk])
    targets = encoders["targets"].encode([target for _, target in chunk])

    def example(source, target):
        record = tf.train.Example()
        for side, ids in (("inputs", source), ("targets", target)):
            values = record.features.feature[side].int64_list.value
            values.extend([*ids.tolist(), EOS_ID])
        return record.SerializeToString(deterministic=True)

    return EncodedChunk(
        list(map(example, sources, targets)),
        np.array([len(ids) + 1 for ids in sources], np.int64),
        np.array([len(ids) + 1 for ids in targets], np.int64),
    )


def _cores():
    """How many cores this process may use, where the system tells."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _in_processes(chunks, problem, vocabulary_dir, processes):
    # TensorFlow does not survive a fork: workers start afresh.
    executor = concurrent.futures.ProcessPoolExecutor(
        processes,
        mp_context=multiprocessing.get_context("spawn"),
        initializer=_set_up_worker,
        initargs=(*_portable(problem), str(vocabulary_dir)),
    )
    try:
        with _ctrl_c_ignored():  # inherited: it is for this process to handle
            for _ in range(processes):
                executor.submit(os.getpid)
        waiting = collections.deque()
        for chunk in chunks:
            waiting.append(executor.submit(_encode_in_worker, chunk))
            if len(waiting) > processes * _WAITING_CHUNKS:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    except BrokenProcessPool as error:
        raise T2TLiteError(
            f"One of the {processes} encoding processes died, most likely for "
            "lack of memory. Use fewer with --processes."
        ) from error
    finally:
        executor.shutdown(wait=True, cancel_futures=True)


def _portable(problem):
    """The problem pickled, and the folder its top-level module comes from.

    A package that a user names by its folder is not on the path of a process
    that starts afresh.
    """
    top = sys.modules[type(problem).__module__.partition(".")[0]]
    file = pathlib.Path(getattr(top, "__file__", None) or __file__)
    folder = file.parent.parent if file.stem == "__init__" else file.parent
    return pickle.dumps(problem), str(folder)


def _set_up_worker(pickled, module_folder, vocabulary_dir):
    """Runs in a worker first; what can fail is left to the first chunk."""
    os.environ["CUDA_VISIBLE_DEVICES"] = "-1"  # leave the memory of GPUs alone
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    if module_folder not in sys.path:
        sys.path.append(module_folder)
    _worker["problem"] = pickled, vocabulary_dir
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent():
    """A worker whose parent was killed would wait for work for ever."""
    multiprocessing.parent_process().join()
    os._exit(1)


def _encode_in_worker(chunk):
    if "encoders" not in _worker:
        pickled, vocabulary_dir = _worker["problem"]
        _start_tensorflow()
        problem = pickle.loads(pickled)
        _worker["encoders"] = problem.load_encoders(vocabulary_dir)
    return encode_chunk(_worker["encoders"], chunk)


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
