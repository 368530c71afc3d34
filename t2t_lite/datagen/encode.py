"""Filter and encode a split in chunks, in one or several processes.

The result depends only on the pairs and the seed, not on the number of
processes or machines.
"""

import concurrent.futures
import dataclasses
import functools
import itertools
import multiprocessing
import os
import pickle
import signal
import sys
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from t2t_lite.corpus import filters
from t2t_lite.corpus.splits import pair_hash
from t2t_lite.problem import Problem
from t2t_lite.problem.base import validate_pairs
from t2t_lite.tf_setup import num_cpus
from t2t_lite.tokenizers.tags import is_blank

CHUNK_PAIRS = 32_768
CHUNK_CHARACTERS = 1 << 25  # a chunk of longer lines has fewer pairs
# One process encodes fewer chunks faster than two processes, start included.
MIN_CHUNKS_FOR_POOL = 5
_QUEUED_CHUNKS = 2  # per process

_INVALID_BY_CHARACTER = {"\ufffd": "invalid characters", "\0": "NUL"}
INVALID_TEXT = tuple(_INVALID_BY_CHARACTER.values())

# A fixed-size description of a record.
INDEX = np.dtype(
    [
        ("key", "<u8"),  # sort key
        ("check", "<u8"),  # second half of a hash; the key is the first half
        ("pair", "<u8"),  # number of the pair in the split, from 1
        ("source_tokens", "<u4"),
        ("target_tokens", "<u4"),
        ("bytes", "<u4"),  # size of the record
    ]
)


class Chunk(NamedTuple):
    """Consecutive pairs of a split."""

    number: int  # index of the chunk, from 0
    first: int  # number of the first pair in the split, from 1
    pairs: list[tuple[str, str]]  # source and target texts


def split_into_chunks(
    pairs: Iterable[tuple[str, str]], label: str
) -> Iterator[Chunk]:
    """Yield the chunks of a split; the number of processes has no effect."""
    number, first = 0, 1
    chunk: list[tuple[str, str]] = []
    characters = 0
    for pair in validate_pairs(pairs, label):
        chunk.append(pair)
        characters += len(pair[0]) + len(pair[1])
        if len(chunk) == CHUNK_PAIRS or characters >= CHUNK_CHARACTERS:
            yield Chunk(number, first, chunk)
            number, first = number + 1, first + len(chunk)
            chunk, characters = [], 0
    if chunk:
        yield Chunk(number, first, chunk)


@dataclasses.dataclass
class Counts:
    """Sums over some pairs of a split, see `SplitRecord`."""

    lengths: Counter[int] = dataclasses.field(default_factory=Counter)
    source_tokens: int = 0
    target_tokens: int = 0
    unknown_words: int = 0
    # Dropped pairs by reason, and kept pairs by type of INVALID_TEXT.
    reasons: Counter[str] = dataclasses.field(default_factory=Counter)

    def merge(self, other: "Counts") -> None:
        """Add the counts of other pairs of the split."""
        self.lengths += other.lengths
        self.source_tokens += other.source_tokens
        self.target_tokens += other.target_tokens
        self.unknown_words += other.unknown_words
        self.reasons += other.reasons


@dataclasses.dataclass(frozen=True)
class SplitEncoder:
    """An encoder of the chunks of a split, with its filters.

    Only train is filtered and shuffled, because scores require complete splits
    in their order.
    """

    problem: Problem
    split: str  # "train", "dev" or "test"
    seed: int  # of the order of train

    @property
    def label(self) -> str:
        """The name of the split in messages, such as "wmt_ende train"."""
        return f"{self.problem.base_name} {self.split}"

    @property
    def is_shuffled(self) -> bool:
        """True if the split is shuffled and filtered."""
        return self.split == "train"

    @property
    def filters(self) -> dict[str, Any]:
        """The filters of the split; {} if it is not filtered."""
        limits = self.problem.filters if self.is_shuffled else {}
        return filters.normalize_filters(limits)

    def encode(
        self, encoders: Mapping[str, Any], chunk: Chunk
    ) -> tuple[np.ndarray, list[bytes], Counts]:
        """Filter and encode a chunk.

        Returns:
          INDEX [records]; the serialized tf.train.Examples; the counts.
        """
        from t2t_lite.tokenizers.base import EOS_ID

        counts = Counts()
        numbers, pairs, digests = self._filter(chunk, counts)
        sources = encoders["inputs"].encode([source for source, _ in pairs])
        targets = encoders["targets"].encode([target for _, target in pairs])
        for side, rows in (("inputs", sources), ("targets", targets)):
            unknown = getattr(encoders[side], "unknown_id", None)
            if unknown is not None:
                words = (np.count_nonzero(ids == unknown) for ids in rows)
                counts.unknown_words += int(sum(words))
        index = np.zeros(len(pairs), INDEX)
        index["pair"] = numbers
        index["source_tokens"] = [len(ids) + 1 for ids in sources]
        index["target_tokens"] = [len(ids) + 1 for ids in targets]
        if digests:
            halves = np.frombuffer(b"".join(digests), "<u8").reshape(-1, 2)
            index["key"], index["check"] = halves.T
        elif self.is_shuffled:
            positions = index["pair"].astype(np.int64) - chunk.first
            index["key"] = _random_keys(self.seed, chunk)[positions]
        else:
            index["key"] = numbers
        records = serialize_pairs(sources, targets, eos_id=EOS_ID)
        index["bytes"] = [len(record) for record in records]
        return index, records, counts

    def _filter(self, chunk: Chunk, counts: Counts) -> tuple[list, list, list]:
        """Return numbers, texts and (for DUPLICATES) hashes of kept pairs."""
        tags = self.problem.source_tags
        drop_reason = filters.make_filter(self.filters, tags)
        deduplicate = filters.DUPLICATES in self.filters
        key = self.seed.to_bytes(16, "little")  # the order depends on the seed
        numbers, pairs = [], []
        digests: dict[bytes, None] = {}  # in the order of the pairs
        for number, pair in enumerate(chunk.pairs, start=chunk.first):
            reason = _empty_side(*pair) or drop_reason(*pair)
            if deduplicate and not reason:
                digest = pair_hash(*pair, size=16, key=key)
                if digest in digests:
                    reason = filters.DUPLICATES
                digests[digest] = None
            if reason:
                counts.reasons[reason] += 1
                continue
            numbers.append(number)
            pairs.append(pair)
            for character, invalid in _INVALID_BY_CHARACTER.items():
                if character in pair[0] or character in pair[1]:
                    counts.reasons[invalid] += 1
                    break
        return numbers, pairs, list(digests)


def _empty_side(source: str, target: str) -> str | None:
    if not is_blank(source):
        return "empty target" if is_blank(target) else None
    return "both sides empty" if is_blank(target) else "empty source"


def serialize_pairs(
    sources: Sequence[np.ndarray], targets: Sequence[np.ndarray], eos_id: int
) -> list[bytes]:
    """Return a serialized tf.train.Example for each pair.

    Example: sources [[5, 6]] and targets [[7]] with EOS 1 give the int64
    features `inputs` [5, 6, 1] and `targets` [7, 1].
    """
    import tensorflow as tf

    examples = []
    for source, target in zip(sources, targets, strict=True):
        example = tf.train.Example()
        feature = example.features.feature
        for name, ids in (("inputs", source), ("targets", target)):
            feature[name].int64_list.value.extend([*ids.tolist(), eos_id])
        examples.append(example.SerializeToString(deterministic=True))
    return examples


def _random_keys(seed: int, chunk: Chunk) -> np.ndarray:
    """Return a random key for each pair; pair n gets the n-th random number."""
    generator = np.random.Philox(seed)
    blocks, rest = divmod(chunk.first, 4)  # Philox draws four numbers at a time
    generator.advance(blocks)
    return generator.random_raw(rest + len(chunk.pairs))[rest:]


def encode_chunks(
    work: Callable[[Mapping[str, Any], Chunk], None],
    chunks: Iterable[Chunk],
    problem: Problem,
    vocabulary_dir: Path,
    processes: int | None,
    report_done: Callable[[int], None],
) -> None:
    """Call the picklable `work(encoders, chunk)` for each chunk.

    Each of the processes, one per core if None, loads the encoders once; fewer
    chunks than MIN_CHUNKS_FOR_POOL are encoded in this process. Only a few
    chunks are in memory. `report_done` gets the number of pairs of each chunk.
    """
    processes = processes or num_cpus()
    chunks = iter(chunks)
    first = list(itertools.islice(chunks, MIN_CHUNKS_FOR_POOL))
    chunks = itertools.chain(first, chunks)
    is_small = len(first) < MIN_CHUNKS_FOR_POOL
    if processes == 1 or is_small or not _can_spawn(problem):
        encoders = problem.load_encoders(vocabulary_dir)
        for chunk in chunks:
            work(encoders, chunk)
            report_done(len(chunk.pairs))
        return
    task = pickle.dumps((work, problem, vocabulary_dir))
    queue = deque[tuple[concurrent.futures.Future, int]]()

    def wait_for_oldest() -> None:
        future, pairs = queue.popleft()
        future.result()
        report_done(pairs)

    # TensorFlow does not support fork.
    executor = concurrent.futures.ProcessPoolExecutor(
        processes,
        mp_context=multiprocessing.get_context("spawn"),
        initializer=_initialize_worker,
        initargs=(module_folder(problem),),
    )
    try:
        # Workers inherit the signal mask, so only this process handles Ctrl-C.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
        try:
            for _ in range(processes):
                executor.submit(os.getpid)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        for chunk in chunks:
            if len(queue) >= processes * _QUEUED_CHUNKS:
                wait_for_oldest()
            future = executor.submit(_work_in_worker, task, chunk)
            queue.append((future, len(chunk.pairs)))
        while queue:
            wait_for_oldest()
    finally:
        executor.shutdown(wait=True, cancel_futures=True)


def module_folder(problem: Problem) -> str:
    """Return the import folder of a problem's module, for new processes."""
    top = sys.modules[type(problem).__module__.partition(".")[0]]
    file = Path(getattr(top, "__file__", None) or __file__)
    return str(file.parent.parent if file.stem == "__init__" else file.parent)


def _initialize_worker(module_folder: str) -> None:
    os.environ["CUDA_VISIBLE_DEVICES"] = "-1"  # allocate no GPU memory
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    if module_folder not in sys.path:
        sys.path.append(module_folder)
    threading.Thread(target=_exit_with_parent, daemon=True).start()


def _exit_with_parent() -> None:
    """Exit when the parent is killed; otherwise a worker would wait forever."""
    parent = multiprocessing.parent_process()
    assert parent
    parent.join()
    os._exit(1)


def _can_spawn(problem: Problem) -> bool:
    """Return whether a new process can import the problem's class."""
    file = getattr(sys.modules["__main__"], "__file__", None)
    if file is None:  # a notebook
        return type(problem).__module__ != "__main__"
    return os.path.isfile(file)  # not "<stdin>"


def _work_in_worker(task: bytes, chunk: Chunk) -> None:
    work, encoders = _load_task(task)
    work(encoders, chunk)


@functools.lru_cache(maxsize=1)
def _load_task(task: bytes) -> tuple[Callable, Mapping[str, Any]]:
    """Load the work and the encoders for the first chunk of a worker."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # the parent reports errors
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    work, problem, vocabulary_dir = pickle.loads(task)
    return work, problem.load_encoders(vocabulary_dir)
