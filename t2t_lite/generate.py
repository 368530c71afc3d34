"""A corpus to a vocabulary, TFRecord shards and a manifest.

Everything is written into a hidden folder, then renamed into the data folder,
the manifest last: data with a manifest is whole, and what a killed process left
behind is never taken for data.
"""

import collections
import contextlib
import fcntl
import itertools
import os
import pathlib
import shutil
from collections.abc import Iterable, Iterator
from importlib import metadata

import numpy as np

from t2t_lite import filters
from t2t_lite.encoding_pool import encode_pairs
from t2t_lite.errors import T2TLiteError, UsageError
from t2t_lite.external_shuffle import ExternalShuffle
from t2t_lite.manifest import (
    Manifest,
    ShardRecord,
    SplitRecord,
    check_data,
    sha256_of,
)
from t2t_lite.problem import Problem
from t2t_lite.progress import Counter, say
from t2t_lite.raw_files import RawFiles

# Half a window of the input pipeline, so that a window meets other shards in
# every epoch.
SHARD_EXAMPLES = 32_768
_SHARD = "[0-9]" * 5 + "-of-" + "[0-9]" * 5  # ends a shard's name
_SHUFFLED_SPLITS = ("train",)  # the others keep the order of the corpus
# A score is one of the whole set.
_FILTERED_SPLITS = ("train",)
_DROPPED_SAMPLES = 3
_SAMPLE_CHARACTERS = 100
_PACKAGES = ("t2t-lite", "tensorflow", "tensorflow-text", "sentencepiece")


def ensure_data(
    problem: Problem,
    data_dir: str | os.PathLike,
    raw_dir: str | os.PathLike | None = None,
    tfds_dir: str | os.PathLike | None = None,
    processes: int | None = None,
    seed: int = 0,
    progress: bool = True,
) -> Manifest:
    """The manifest of a problem's data, generated if there is none.

    Args: as of `generate`.

    Raises:
      T2TLiteError: the data is another definition's, incomplete or changed; or
        `generate` raises it.
    """
    return generate(
        problem, data_dir, raw_dir, tfds_dir, processes, seed, False, progress
    )


def generate(
    problem: Problem,
    data_dir: str | os.PathLike,
    raw_dir: str | os.PathLike | None = None,
    tfds_dir: str | os.PathLike | None = None,
    processes: int | None = None,
    seed: int = 0,
    overwrite: bool = False,
    progress: bool = True,
) -> Manifest:
    """Makes the data of a problem, unless it is there already and fits.

    The corpus is streamed. Pairs with an empty side are left out and counted,
    and of train also those that the problem's filters name. Train is shuffled;
    dev and test keep the order of the corpus. The same
    corpus, definition and seed give the same files, whatever `processes` is.

    Args:
      problem: either direction; they share their data.
      data_dir: where the data goes.
      raw_dir: a folder with the corpus; None downloads it.
      tfds_dir: where TensorFlow Datasets are, of problems that read them;
        None: where that library keeps them.
      processes: that encode text; None means one for each core.
      seed: of the order of train and of the vocabulary's sample.
      overwrite: make it anew even if there is data, fitting or not.
      progress: tell on stderr how it goes.

    Raises:
      T2TLiteError: there is data that does not fit; the corpus is missing,
        empty or bad; the folder cannot be written.
    """
    check_places(problem, raw_dir, tfds_dir)
    data_dir = pathlib.Path(data_dir).expanduser()
    if problem.reversed:
        problem = problem.reverse()
    if not overwrite and Manifest.path(data_dir, problem).exists():
        return _checked(data_dir, problem)
    with _file_errors_named(data_dir):
        data_dir.mkdir(parents=True, exist_ok=True)
        with _only_one(data_dir, problem, progress):
            # Another process may have made it while this one waited.
            if not overwrite and Manifest.path(data_dir, problem).exists():
                return _checked(data_dir, problem)
            downloads = data_dir / "downloads" / problem.base_name
            raw = RawFiles(
                problem.files, raw_dir, downloads, progress, tfds_dir
            )
            return _generate(problem, data_dir, raw, processes, seed, progress)


def check_places(
    problem: Problem,
    raw_dir: str | os.PathLike | None,
    tfds_dir: str | os.PathLike | None,
) -> None:
    """Raises UsageError for a folder that the problem would not read."""
    if tfds_dir is None:
        return
    if not problem.tfds_name:
        raise UsageError(
            f"{problem.base_name} reads no TensorFlow Datasets: leave "
            "--tfds_dir out."
        )
    if raw_dir is not None:
        raise UsageError(
            "A corpus is read from files or from TensorFlow Datasets: give "
            f"--raw_dir or --tfds_dir; got {raw_dir} and {tfds_dir}."
        )


def _checked(data_dir, problem):
    manifest = Manifest.load(data_dir, problem)
    check_data(data_dir, problem, manifest)
    return manifest


def _generate(problem, data_dir, raw, processes, seed, progress):
    aside = data_dir / f".{problem.base_name}.incomplete"
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir()
    try:
        if progress:
            say(f"{problem.base_name}: learning the vocabulary")
        problem.train_encoders(raw, aside, seed)
        splits = {
            split: _write_split(
                problem, split, raw, aside, processes, seed, progress
            )
            for split in problem.splits
        }
        manifest = Manifest(
            problem=problem.base_name,
            fingerprint=problem.fingerprint(),
            definition=problem.definition(),
            vocabulary={
                name: {
                    "sha256": sha256_of(aside / name),
                    "bytes": (aside / name).stat().st_size,
                }
                for name in sorted(set(problem.vocabulary_files().values()))
            },
            splits=splits,
            seed=seed,
            versions={name: metadata.version(name) for name in _PACKAGES},
        )
        _move_into_place(aside, data_dir, problem, manifest)
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    return Manifest.load(data_dir, problem)


def _write_split(problem, split, raw, folder, processes, seed, progress):
    """Writes the shards of a split into `folder`; returns its record."""
    chosen = problem.filters if split in _FILTERED_SPLITS else {}
    tally = _Tally(problem.base_name, split, chosen)
    pairs = tally.usable(problem.samples(split, raw))
    label = f"{problem.base_name} {split}"
    spill = folder / "shuffle"
    with Counter(label, "pairs", progress) as counter:
        records = _records(
            encode_pairs(pairs, problem, folder, processes), tally, counter
        )
        if split in _SHUFFLED_SPLITS:
            shuffle = ExternalShuffle(spill, seed)
            for record in records:
                shuffle.add(record)
            records = iter(shuffle)
        prefix = f"{problem.base_name}-{split}"
        shards = _write_shards(records, folder, prefix)
    shutil.rmtree(spill, ignore_errors=True)
    if not shards:
        raise T2TLiteError(
            f"The {split} split of {problem.base_name} has no pair to use: "
            f"{tally.summary()}. Check the corpus."
        )
    if progress:
        say(f"{label}: {tally.summary()}")
    return tally.split_record(shards)


def _records(chunks, tally, counter):
    """Yields the serialized examples of encoded chunks, counted."""
    for chunk in chunks:
        tally.count(chunk)
        counter.advance(len(chunk.examples))
        yield from chunk.examples


def _write_shards(records, folder, prefix):
    """Writes TFRecord files of SHARD_EXAMPLES each, named when all are there.

    Returns: a `ShardRecord` for each.
    """
    import tensorflow as tf

    written = []
    records = iter(records)
    while first := list(itertools.islice(records, 1)):
        shard = itertools.chain(
            first, itertools.islice(records, SHARD_EXAMPLES - 1)
        )
        path = folder / f"{prefix}-{len(written):05d}"
        examples = expected = 0
        with tf.io.TFRecordWriter(str(path)) as writer:
            for record in shard:
                writer.write(record)
                examples += 1
                expected += len(record) + 16  # length and checksums
        if path.stat().st_size != expected:
            raise T2TLiteError(
                f"{path} must have {expected} bytes; got "
                f"{path.stat().st_size}. Is the disk full?"
            )
        written.append((path, examples))
    shards = []
    for path, examples in written:
        named = path.with_name(f"{path.name}-of-{len(written):05d}")
        path.rename(named)
        size = named.stat().st_size
        shards.append(ShardRecord(named.name, examples, size, sha256_of(named)))
    return tuple(shards)


def _move_into_place(aside, data_dir, problem, manifest):
    """Renames what is complete into the data folder, the manifest last."""
    Manifest.path(data_dir, problem).unlink(missing_ok=True)
    for split in problem.splits:
        # No wider: the next problem may be called NAME-train.
        for old in data_dir.glob(f"{problem.base_name}-{split}-{_SHARD}"):
            old.unlink()
    for file in sorted(aside.iterdir()):
        with open(file, "rb") as opened:
            os.fsync(opened.fileno())
        os.replace(file, data_dir / file.name)
    manifest.save(data_dir)


class _Tally:
    """Counts what goes into a split and what is left out."""

    def __init__(self, problem_name, split, chosen):
        self.place = f"{problem_name} {split}"
        self._filtered = filters.find_reason(filters.checked(chosen))
        self.lengths = collections.Counter()
        self.examples = self.source_tokens = self.target_tokens = 0
        self.dropped = {}
        self.samples = {}

    def usable(
        self, pairs: Iterable[tuple[str, str]]
    ) -> Iterator[tuple[str, str]]:
        """Yields the pairs with text on both sides; counts the others."""
        for number, pair in enumerate(pairs, start=1):
            if not _is_text_pair(pair):
                raise T2TLiteError(
                    "samples must yield (source, target) texts; got "
                    f"{str(pair)[:_SAMPLE_CHARACTERS]!r} as pair {number} of "
                    f"{self.place}."
                )
            source, target = pair
            reason = _empty(source, target) or self._filtered(source, target)
            if reason:
                self._drop(reason, number, source, target)
            else:
                yield source, target

    def _drop(self, reason, number, source, target):
        self.dropped[reason] = self.dropped.get(reason, 0) + 1
        samples = self.samples.setdefault(reason, [])
        if len(samples) < _DROPPED_SAMPLES:
            samples.append(
                {
                    "pair": number,
                    "source": source[:_SAMPLE_CHARACTERS],
                    "target": target[:_SAMPLE_CHARACTERS],
                }
            )

    def count(self, chunk):
        """Adds an `EncodedChunk`."""
        longest = np.maximum(chunk.source_lengths, chunk.target_lengths)
        self.lengths.update(longest.tolist())
        self.examples += len(chunk.examples)
        self.source_tokens += int(chunk.source_lengths.sum())
        self.target_tokens += int(chunk.target_lengths.sum())

    def summary(self):
        """One line: "29,000 pairs, 2 dropped (empty source)"."""
        dropped = ", ".join(
            f"{count:,} dropped ({reason})"
            for reason, count in sorted(self.dropped.items())
        )
        return f"{self.examples:,} pairs, {dropped or 'none dropped'}"

    def split_record(self, shards):
        return SplitRecord(
            examples=self.examples,
            source_tokens=self.source_tokens,
            target_tokens=self.target_tokens,
            lengths=dict(sorted(self.lengths.items())),
            dropped=dict(sorted(self.dropped.items())),
            dropped_samples=dict(sorted(self.samples.items())),
            shards=shards,
        )


def _is_text_pair(pair):
    return (
        isinstance(pair, (tuple, list))
        and len(pair) == 2
        and all(isinstance(text, str) for text in pair)
    )


def _empty(source, target):
    """Which side has no text, or None."""
    if source.strip():
        return None if target.strip() else "empty target"
    return "empty source" if target.strip() else "both sides empty"


@contextlib.contextmanager
def _only_one(data_dir, problem, progress):
    """Lets one process at a time generate a problem into a folder.

    The system releases the lock of a process that dies.
    """
    with open(data_dir / f".{problem.base_name}.lock", "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if progress:
                say(
                    f"{problem.base_name}: another process is generating it "
                    f"in {data_dir}; waiting"
                )
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@contextlib.contextmanager
def _file_errors_named(data_dir):
    """Turns errors of writing into one that says what to do."""
    import tensorflow as tf

    try:
        yield
    except OSError as error:
        place = pathlib.Path(error.filename or data_dir)
        if place not in data_dir.parents and data_dir not in (
            place,
            *place.parents,
        ):
            raise  # it is about the corpus
        reason = error.strerror or str(error)
        raise _cannot_write(place, reason) from error
    except tf.errors.OpError as error:
        if str(data_dir) not in error.message:
            raise  # no file of ours is concerned
        raise _cannot_write(data_dir, error.message) from error


def _cannot_write(place, reason):
    return T2TLiteError(
        f"Cannot write data to {place}: {reason}. Make room or choose another "
        "--data_dir; nothing half-written is kept, the same command starts "
        "again."
    )
