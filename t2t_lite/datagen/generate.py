"""Generate a vocabulary, TFRecord shards and a manifest from a corpus.

Files are written to a hidden folder and then renamed into the data folder, the
manifest last, so data with a manifest is complete. The same command resumes an
interrupted job after its last finished step; the files are identical.
"""

import contextlib
import dataclasses
import errno
import functools
import json
import os
import shutil
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures.process import BrokenProcessPool
from importlib import metadata
from pathlib import Path
from typing import Any

import filelock

from t2t_lite import files
from t2t_lite.corpus import filters
from t2t_lite.corpus.download import RawFiles, file_stat
from t2t_lite.data.manifest import (
    DEFAULT_SEED,
    Manifest,
    ShardRecord,
    SplitRecord,
    check_data,
    check_sources,
    sha256_of,
)
from t2t_lite.datagen import encode, shuffle
from t2t_lite.errors import T2TLiteError, UsageError, format_error
from t2t_lite.files import PathLike
from t2t_lite.problem import Problem, TextFiles
from t2t_lite.progress import Counter, log

_SHARD = "[0-9]" * 5 + "-of-" + "[0-9]" * 5  # ends a shard's name
_PACKAGES = ("t2t-lite", "tensorflow", "tensorflow-text", "sentencepiece")


@dataclasses.dataclass
class DataGenerator:
    """A generator of the data of a problem; see `run`.

    The corpus is streamed. Pairs with an empty side are dropped and counted; in
    train, the problem's filters drop pairs, too. Train is shuffled; dev and
    test keep the order of the corpus. The same corpus, definition and seed give
    the same files for any number of processes.
    """

    problem: Problem  # both directions share the data
    data_dir: PathLike
    raw_dir: PathLike | None = None  # None downloads the corpus
    tfds_dir: PathLike | None = None  # of TensorFlow Datasets
    # Of the order of train and of the vocabulary's sample; None is the seed of
    # existing data, or DEFAULT_SEED.
    seed: int | None = None
    processes: int | None = None  # for encoding; None is one per core
    progress: bool = True  # report progress on stderr

    def __post_init__(self) -> None:
        name = self.problem.registered_name
        if self.raw_dir is not None and isinstance(self.problem, TextFiles):
            raise UsageError(
                f"`raw_dir` is not supported by {name}, which reads `source` "
                f"and `target`, or `pairs` (got {self.raw_dir})."
            )
        if self.tfds_dir is not None and (
            self.raw_dir is not None or not self.problem.tfds_name
        ):
            raise UsageError(
                "`tfds_dir` conflicts with `raw_dir` and requires a problem "
                f"with a TensorFlow dataset; {name} has "
                f"{self.problem.tfds_name or 'no dataset'} (got "
                f"{self.tfds_dir})."
            )
        if self.problem.reversed:
            self.problem = self.problem.reverse()
        self._folder = Path(self.data_dir).expanduser()

    def run(self, overwrite: bool = False) -> Manifest:
        """Generate the data unless valid data exists, or `overwrite` it."""
        if not overwrite and (manifest := self._find_valid_data()):
            return manifest
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            with self._lock():
                # Another process may have generated the data in the meantime.
                if not overwrite and (manifest := self._find_valid_data()):
                    return manifest
                return self._generate(overwrite)
        except OSError as error:
            path = Path(error.filename or self._folder)
            is_parent = path in self._folder.parents
            is_ours = is_parent or path.is_relative_to(self._folder)
            if error.errno is None or not is_ours:
                raise  # an error of the corpus
            error.filename = str(path)
            raise T2TLiteError(
                f"Cannot write data: {format_error(error)}. The same command "
                "resumes; or use another `data_dir`."
            ) from error
        except BrokenProcessPool as error:
            raise T2TLiteError(
                "An encoding process died, probably out of memory. The same "
                "command resumes; reduce `processes`."
            ) from error

    def _find_valid_data(self) -> Manifest | None:
        """Return the manifest of valid existing data; None without data."""
        if not Manifest.path(self._folder, self.problem).exists():
            return None
        manifest = Manifest.load(self._folder, self.problem)
        check_data(self._folder, self.problem, manifest)
        check_sources(self._folder, self.problem, manifest)
        if self.seed not in (None, manifest.seed):
            raise UsageError(
                f"{self._folder} holds data of {self.problem.base_name} with "
                f"`seed={manifest.seed}` (got {self.seed}). Omit `seed`, use "
                "another `data_dir`, or add `overwrite` to generate the data "
                "again."
            )
        return manifest

    def _generate(self, overwrite: bool) -> Manifest:
        problem, seed = self.problem, self.seed
        if seed is None:
            seed = DEFAULT_SEED
            # An unreadable manifest will be replaced.
            with contextlib.suppress(T2TLiteError):
                seed = Manifest.load(self._folder, problem).seed
        folders = self.raw_dir, self._folder / "downloads" / problem.base_name
        raw = RawFiles(problem.files, *folders, self.progress, self.tfds_dir)
        if raw.raw_dir is not None and not raw.raw_dir.is_dir():
            raise T2TLiteError(f"`raw_dir`: {raw.raw_dir} is not a folder.")
        problem.check_sources(raw)  # before hours of work
        identity = {
            "definition": problem.definition(),
            "seed": seed,
            "raw_dir": raw.raw_dir and os.path.abspath(raw.raw_dir),
            "tfds_dir": raw.tfds_dir and os.path.abspath(raw.tfds_dir),
            "versions": versions(),
        }
        folder = self._folder / f".{problem.base_name}.incomplete"
        job = UnfinishedJob(folder, identity, raw)
        if overwrite:
            job.remove()
        if message := job.start():
            self._log(message)
        try:
            if not Manifest.path(folder, problem).exists():
                self._write_files(job, seed).save(folder)
            manifest = _move_files(folder, self._folder, problem)
        except T2TLiteError as error:
            if not isinstance(error.__cause__, OSError):  # a lost connection
                job.remove()  # with this corpus the same command cannot resume
            raise
        job.remove()
        return manifest

    def _write_files(self, job: "UnfinishedJob", seed: int) -> Manifest:
        problem = self.problem
        if not job.load("vocabulary"):
            self._log("learning the vocabulary")
            problem.train_encoders(job.raw, job.folder, seed)
            job.save("vocabulary", True)
        splits = {}
        for split in problem.splits:
            encoder = encode.SplitEncoder(problem, split, seed)
            splits[split] = self._finish_split(encoder, job)
        sources = {}
        for path, state in sorted(job.raw.sources.items()):
            if file_stat(path) != state:
                raise T2TLiteError(
                    f"{path} must not change while data is generated from it. "
                    "Run the same command again; it starts over."
                )
            sources[path] = {**state, "sha256": sha256_of(path)}
        return Manifest(
            problem=problem.base_name,
            fingerprint=problem.fingerprint(),
            definition=problem.definition(),
            vocabulary=describe_vocabulary(job.folder, problem),
            splits=splits,
            seed=seed,
            versions=versions(),
            sources=sources,
            corpora=problem.corpus_counts(),
        )

    def _finish_split(
        self, encoder: encode.SplitEncoder, job: "UnfinishedJob"
    ) -> SplitRecord:
        """Return the record of a split; write the split if necessary."""
        if saved := job.load(encoder.split):
            record = SplitRecord.from_json(saved)
        else:
            record = self.write_split(encoder, job)
            job.save(encoder.split, dataclasses.asdict(record))
            shutil.rmtree(job.folder / encoder.split, ignore_errors=True)
        self._log(f"{record.examples:,} pairs, {record.summary}", encoder.split)
        return record

    def write_split(
        self, encoder: encode.SplitEncoder, job: "UnfinishedJob"
    ) -> SplitRecord:
        """Write the shards of a split into the folder of the job.

        A subclass may run it on other machines if the bytes are the same.
        """
        folder = job.folder / encoder.split
        folder.mkdir(exist_ok=True)
        samples = encoder.problem.samples(encoder.split, job.raw)
        pairs = 0  # counted while the chunks are read

        def missing_chunks() -> Iterator[encode.Chunk]:
            nonlocal pairs
            for chunk in encode.split_into_chunks(samples, encoder.label):
                pairs += len(chunk.pairs)
                if shuffle.chunk_path(folder, chunk).exists():  # resuming
                    counter.advance(len(chunk.pairs))
                else:
                    job.save_sources()
                    yield chunk

        with Counter(encoder.label, "pairs", self.progress) as counter:
            encode.encode_chunks(
                functools.partial(shuffle.write_chunk, encoder, folder),
                missing_chunks(),
                encoder.problem,
                job.folder,
                self.processes,
                counter.advance,
            )
        chunks = sorted(folder.glob("chunk-?????"))
        paths = shard_paths(encoder, job.folder, shuffle.count_shards(pairs))
        shards = shuffle.read_shards(chunks, len(paths), encoder.is_shuffled)
        written = [
            write_shard(path, encoder, *shard)
            for path, shard in zip(paths, shards, strict=True)
        ]
        counts = [shuffle.read_counts(path) for path in chunks]
        return make_split_record(encoder, counts, written)

    def _lock(self) -> filelock.AcquireReturnProxy:
        folder = self._folder
        lock = filelock.FileLock(folder / f".{self.problem.base_name}.lock")
        try:
            return lock.acquire(blocking=False)
        except filelock.Timeout:
            self._log(f"waiting for another process to generate it in {folder}")
            return lock.acquire()

    def _log(self, text: str, split: str = "") -> None:
        if self.progress:
            label = f"{self.problem.base_name} {split}".strip()
            log(f"{label}: {text}")


class UnfinishedJob:
    """The folder of an unfinished generation, with a record of each step.

    A job is resumed if its `identity`, JSON-serializable values, and the corpus
    files that `raw` has recorded are the same.
    """

    def __init__(self, folder: Path, identity: dict[str, Any], raw: RawFiles):
        self.folder, self.raw = folder, raw
        self._identity = json.loads(json.dumps(identity))

    def start(self) -> str:
        """Create the folder or resume its job; return a message to log."""
        message = ""
        if self.folder.exists():
            job = self.load("job") or {"identity": None, "sources": {}}
            if job["identity"] == self._identity and all(
                file_stat(path) == old for path, old in job["sources"].items()
            ):
                message = "resuming the unfinished job"
                self.raw.sources.update(job["sources"])
            else:
                message = "starting over: the problem, seed, folder, corpus or "
                message += "versions of the unfinished job differ"
                self.remove()
        self.folder.mkdir(exist_ok=True)
        for folder in (self.folder, *self.folder.glob("*/")):
            files.remove_unfinished(folder)
        self.save_sources()
        return message

    def save_sources(self) -> None:
        """Save the list of corpus files before any file generated from them."""
        job = {"identity": self._identity, "sources": self.raw.sources}
        if self.load("job") != job:
            files.write_json(self.folder / "job.json", job)

    def save(self, step: str, record: Any) -> None:
        """Save the record of a step after all its files."""
        self.save_sources()
        files.write_json(self.folder / f"{step}.json", record)

    def load(self, step: str) -> Any:
        """Return the record of a finished step, else None."""
        with contextlib.suppress(FileNotFoundError, ValueError):
            return json.loads((self.folder / f"{step}.json").read_text("utf-8"))
        return None

    def remove(self) -> None:
        """Remove the folder."""
        if self.folder.exists():
            files.remove_folder(self.folder)


def shard_paths(
    encoder: encode.SplitEncoder, folder: Path, count: int
) -> list[Path]:
    """Return the paths of the `count` shards of a split."""
    prefix = f"{encoder.problem.base_name}-{encoder.split}"
    return [folder / f"{prefix}-{k:05d}-of-{count:05d}" for k in range(count)]


def write_shard(
    path: Path, encoder: encode.SplitEncoder, index: Any, records: list[bytes]
) -> tuple[encode.Counts, ShardRecord]:
    """Write the records of a shard in order, without duplicates if filtered.

    An existing file is kept, because an interrupted job has completed it.
    """
    import tensorflow as tf

    deduplicate = filters.DUPLICATES in encoder.filters
    kept, counts = shuffle.select_records(index, deduplicate)
    if not path.exists():
        hidden = files.temp_path(path)
        try:
            with tf.io.TFRecordWriter(str(hidden)) as writer:
                for i in kept.tolist():
                    writer.write(records[i])
        except tf.errors.OpError as error:
            raise OSError(errno.EIO, error.message, str(path)) from error
        files.atomic_replace(hidden, path)
    return counts, describe_shard(path, len(kept))


def describe_shard(path: Path, examples: int) -> ShardRecord:
    """Return the record of a shard file."""
    size = path.stat().st_size
    return ShardRecord(path.name, examples, size, sha256_of(path))


def make_split_record(
    encoder: encode.SplitEncoder,
    chunks: Iterable[encode.Counts],
    shards: Sequence[tuple[encode.Counts, ShardRecord]],
) -> SplitRecord:
    """Return the record of a split; raise T2TLiteError if it has no pair."""
    total = encode.Counts()
    for counts in (*chunks, *(counts for counts, _ in shards)):
        total.merge(counts)
    reasons = sorted(total.reasons.items())
    record = SplitRecord(
        examples=total.lengths.total(),
        source_tokens=total.source_tokens,
        target_tokens=total.target_tokens,
        lengths=dict(sorted(total.lengths.items())),
        dropped={r: n for r, n in reasons if r not in encode.INVALID_TEXT},
        shards=tuple(record for _, record in shards),
        unknown_words=total.unknown_words,
        damaged={r: n for r, n in reasons if r in encode.INVALID_TEXT},
    )
    if not record.examples:
        raise T2TLiteError(
            f"The {encoder.split} split of {encoder.problem.base_name} has no "
            f"pair: 0 usable pairs, {record.summary}. Check the corpus."
        )
    return record


def versions() -> dict[str, str]:
    """Return the versions of the packages that determine the data."""
    return {name: metadata.version(name) for name in _PACKAGES}


def describe_vocabulary(
    folder: Path, problem: Problem
) -> dict[str, dict[str, Any]]:
    """Return sha256 and size in bytes of each vocabulary file by name."""
    paths = [folder / name for name in set(problem.vocabulary_files().values())]
    return {
        path.name: {"sha256": sha256_of(path), "bytes": path.stat().st_size}
        for path in sorted(paths)
    }


def _move_files(folder: Path, data_dir: Path, problem: Problem) -> Manifest:
    """Rename complete files into the data folder, the manifest last.

    After an interruption the next call renames the remaining files.
    """
    manifest = Manifest.load(folder, problem)
    Manifest.path(data_dir, problem).unlink(missing_ok=True)
    splits = manifest.splits.values()
    shards = {shard.file for split in splits for shard in split.shards}
    for split in problem.splits:
        # The pattern excludes another problem with the name NAME-train.
        for old in data_dir.glob(f"{problem.base_name}-{split}-{_SHARD}"):
            if old.name not in shards:
                old.unlink()
    for name in sorted([*shards, *manifest.vocabulary]):
        if (folder / name).exists():
            files.atomic_replace(folder / name, data_dir / name)
    check_data(data_dir, problem, manifest)
    files.remove_unfinished(data_dir, Manifest.path(data_dir, problem).name)
    manifest.save(data_dir)
    return manifest
