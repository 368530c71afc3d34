"""A corpus to a vocabulary, TFRecord shards and a manifest.

Files are written into a hidden folder and renamed into the data folder, the
manifest last: data with a manifest is complete. The same command resumes an
interrupted job from what is finished, and the result is the same to the byte.
"""

import contextlib
import dataclasses
import errno
import functools
import json
import os
import pathlib
import shutil
from collections.abc import Iterator
from concurrent.futures.process import BrokenProcessPool
from importlib import metadata
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
from t2t_lite.datagen import shuffle
from t2t_lite.datagen.encode import (
    DAMAGE,
    Chunk,
    Counts,
    SplitEncoder,
    encode_chunks,
    split_into_chunks,
)
from t2t_lite.errors import T2TLiteError, UsageError, format_error
from t2t_lite.problem import Problem, TextFiles
from t2t_lite.progress import Counter, log

_SHARD = "[0-9]" * 5 + "-of-" + "[0-9]" * 5  # ends a shard's name
_PACKAGES = ("t2t-lite", "tensorflow", "tensorflow-text", "sentencepiece")


@dataclasses.dataclass
class DataGenerator:
    """Generates the data of a problem; see `run`.

    The corpus is streamed. Pairs with an empty side are dropped and counted; in
    train, the problem's filters drop pairs, too. Train is shuffled; dev and
    test keep the order of the corpus. The same corpus, definition and seed give
    the same files, whatever `processes` is.

    Attributes:
      problem: either direction; both share their data.
      data_dir: the folder for the data.
      raw_dir: a folder with the corpus; None downloads it.
      tfds_dir: the folder of TensorFlow Datasets, for problems that read them;
        None means the default of that library.
      seed: of the order of train and of the vocabulary's sample; None takes
        the seed of the existing data, else the usual one.
      processes: that encode text; None means one for each core.
      progress: show progress on stderr.
    """

    problem: Problem
    data_dir: str | os.PathLike
    raw_dir: str | os.PathLike | None = None
    tfds_dir: str | os.PathLike | None = None
    seed: int | None = None
    processes: int | None = None
    progress: bool = True

    def __post_init__(self) -> None:
        name = self.problem.registered_name
        if self.raw_dir is not None and isinstance(self.problem, TextFiles):
            raise UsageError(
                f"{name} reads `source`, `target` or `pairs`: leave `raw_dir` "
                f"out; got {self.raw_dir}."
            )
        if self.tfds_dir is not None and (
            self.raw_dir is not None or not self.problem.tfds_name
        ):
            raise UsageError(
                f"{name} reads {self.problem.tfds_name or 'no dataset'} of "
                "TensorFlow Datasets, or files: leave `tfds_dir` out, or give "
                f"`raw_dir` or `tfds_dir`; got {self.tfds_dir}."
            )
        if self.problem.reversed:
            self.problem = self.problem.reverse()
        self._folder = pathlib.Path(self.data_dir).expanduser()

    def run(self, overwrite: bool = False) -> Manifest:
        """Generate the data unless valid data exists, or `overwrite` it.

        Raises:
          T2TLiteError: existing data does not fit, or has another seed; the
            corpus is missing, empty or bad; the folder cannot be written.
        """
        if not overwrite and (manifest := self._existing()):
            return manifest
        with _write_errors_named(self._folder):
            self._folder.mkdir(parents=True, exist_ok=True)
            with self._only_one():
                # Another process may have generated it in the meantime.
                if not overwrite and (manifest := self._existing()):
                    return manifest
                return self._generate(overwrite)

    def _existing(self) -> Manifest | None:
        """Return the manifest of valid data; None without data."""
        if not Manifest.path(self._folder, self.problem).exists():
            return None
        manifest = Manifest.load(self._folder, self.problem)
        check_data(self._folder, self.problem, manifest)
        check_sources(self._folder, self.problem, manifest)
        if self.seed not in (None, manifest.seed):
            raise UsageError(
                f"{self._folder} holds data of {self.problem.base_name} made "
                f"with `seed={manifest.seed}`; got {self.seed}. Leave `seed` "
                "out, use another `data_dir`, or add `overwrite` to make it "
                "again."
            )
        return manifest

    def _generate(self, overwrite: bool) -> Manifest:
        name, seed = self.problem.base_name, self.seed
        if seed is None:
            seed = DEFAULT_SEED
            # A manifest that cannot be read is about to be replaced.
            with contextlib.suppress(T2TLiteError):
                seed = Manifest.load(self._folder, self.problem).seed
        raw = RawFiles(
            self.problem.files,
            self.raw_dir,
            self._folder / "downloads" / name,
            self.progress,
            self.tfds_dir,
        )
        if raw.raw_dir is not None and not raw.raw_dir.is_dir():
            raise T2TLiteError(f"`raw_dir`: there is no folder {raw.raw_dir}.")
        self.problem.check_sources(raw)  # now, not after hours
        identity = {
            "definition": self.problem.definition(),
            "seed": seed,
            "raw_dir": raw.raw_dir and os.path.abspath(raw.raw_dir),
            "tfds_dir": raw.tfds_dir and os.path.abspath(raw.tfds_dir),
            "versions": versions(),
        }
        job = UnfinishedJob(self._folder / f".{name}.incomplete", identity, raw)
        if overwrite:
            job.remove()
        if state := job.start():
            self._say(state)
        try:
            if not Manifest.path(job.folder, self.problem).exists():
                self._make(job, seed).save(job.folder)
            manifest = _move_into_place(job.folder, self._folder, self.problem)
        except T2TLiteError:
            job.remove()  # with this corpus the same command cannot resume
            raise
        job.remove()
        return manifest

    def _make(self, job: "UnfinishedJob", seed: int) -> Manifest:
        """Generate all files but the manifest in the folder of the job."""
        problem = self.problem
        if not job.load("vocabulary"):
            self._say("learning the vocabulary")
            problem.train_encoders(job.raw, job.folder, seed)
            job.save("vocabulary", True)
        splits = {
            split: self._make_split(SplitEncoder(problem, split, seed), job)
            for split in problem.splits
        }
        sources = {}
        for path, state in sorted(job.raw.sources.items()):
            if file_stat(path) != state:
                raise T2TLiteError(
                    f"{path} must not change while data is made of it; it did. "
                    "The same command starts over."
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

    def _make_split(
        self, encoder: SplitEncoder, job: "UnfinishedJob"
    ) -> SplitRecord:
        """Return the record of a split; write it unless it is finished."""
        if finished := job.load(encoder.split):
            record = SplitRecord.from_json(finished)
        else:
            record = self.write_split(encoder, job)
            job.save(encoder.split, dataclasses.asdict(record))
            shutil.rmtree(job.folder / encoder.split, ignore_errors=True)
        self._say(f"{record.examples:,} pairs, {record.summary}", encoder.split)
        return record

    def write_split(
        self, encoder: SplitEncoder, job: "UnfinishedJob"
    ) -> SplitRecord:
        """Write the shards of a split into the folder of the job.

        A subclass may do so elsewhere, as long as the bytes are the same.
        """
        folder = job.folder / encoder.split
        folder.mkdir(exist_ok=True)
        pairs = self._encode_split(encoder, job, folder)
        chunks = sorted(folder.glob("chunk-?????"))
        counts, records = Counts(), []
        for path in chunks:
            counts.merge(shuffle.read_counts(path))
        number = shuffle.count_shards(pairs)
        for path, shard in zip(
            shard_paths(encoder, job.folder, number),
            shuffle.read_shards(chunks, number, encoder.is_shuffled),
            strict=True,
        ):
            found, record = write_shard(path, encoder, *shard)
            counts.merge(found)
            records.append(record)
        return make_split_record(encoder, counts, records)

    def _encode_split(
        self, encoder: SplitEncoder, job: "UnfinishedJob", folder: pathlib.Path
    ) -> int:
        """Write the missing chunks; return the number of pairs of the split."""
        total = 0
        samples = encoder.problem.samples(encoder.split, job.raw)

        def missing_chunks() -> Iterator[Chunk]:
            nonlocal total
            for chunk in split_into_chunks(samples, encoder.label):
                total += len(chunk.pairs)
                if shuffle.chunk_path(folder, chunk).exists():  # resumed
                    counter.advance(len(chunk.pairs))
                else:
                    job.save_sources()
                    yield chunk

        with Counter(encoder.label, "pairs", self.progress) as counter:
            encode_chunks(
                functools.partial(shuffle.write_chunk, encoder, folder),
                missing_chunks(),
                encoder.problem,
                job.folder,
                self.processes,
                counter.advance,
            )
        return total

    def _only_one(self) -> filelock.AcquireReturnProxy:
        """Wait until no other process generates the data; return the lock."""
        folder = self._folder
        lock = filelock.FileLock(folder / f".{self.problem.base_name}.lock")
        try:
            return lock.acquire(blocking=False)
        except filelock.Timeout:
            self._say(f"another process is generating it in {folder}; waiting")
            return lock.acquire()

    def _say(self, text: str, split: str = "") -> None:
        if self.progress:
            label = f"{self.problem.base_name} {split}".strip()
            log(f"{label}: {text}")


class UnfinishedJob:
    """The folder of an unfinished generation, with a record of each step.

    Args:
      folder: its path.
      identity: what makes the job the same job, fit for JSON.
      raw: notes size and time of the corpus files as they are read.
    """

    def __init__(
        self, folder: pathlib.Path, identity: dict[str, Any], raw: RawFiles
    ):
        self.folder, self.raw = folder, raw
        self._identity = json.loads(json.dumps(identity))

    def start(self) -> str:
        """Make the folder, or resume the job in it; return what happens."""
        message = ""
        if self.folder.exists():
            job = self.load("job") or {"identity": None, "sources": {}}
            if job["identity"] == self._identity and all(
                file_stat(path) == was for path, was in job["sources"].items()
            ):
                message = "resuming the unfinished job"
                self.raw.sources.update(job["sources"])
            else:
                message = "starting over: problem, seed, folder, corpus or "
                message += "versions differ from the unfinished job's"
                self.remove()
        self.folder.mkdir(exist_ok=True)
        for folder in (self.folder, *self.folder.glob("*/")):
            files.remove_unfinished(folder)
        self.save_sources()
        return message

    def save_sources(self) -> None:
        """Save which corpus files were read, before what is made of them."""
        job = {"identity": self._identity, "sources": self.raw.sources}
        if self.load("job") != job:
            files.write_json(self.folder / "job.json", job)

    def save(self, step: str, record: Any) -> None:
        """Save the record of a step whose files are all written."""
        self.save_sources()
        files.write_json(self.folder / f"{step}.json", record)

    def load(self, step: str) -> Any:
        """Return the record of a step, or None if it is not finished."""
        with contextlib.suppress(FileNotFoundError, ValueError):
            return json.loads((self.folder / f"{step}.json").read_text("utf-8"))
        return None

    def remove(self) -> None:
        """Remove the folder."""
        if self.folder.exists():
            files.remove_folder(self.folder)


def shard_paths(
    encoder: SplitEncoder, folder: pathlib.Path, shards: int
) -> list[pathlib.Path]:
    """Return the paths of the shards of a split."""
    prefix = f"{encoder.problem.base_name}-{encoder.split}"
    return [folder / f"{prefix}-{k:05d}-of-{shards:05d}" for k in range(shards)]


def write_shard(
    path: pathlib.Path, encoder: SplitEncoder, index: Any, records: list[bytes]
) -> tuple[Counts, ShardRecord]:
    """Order the records of a shard, and write those that are not duplicates.

    A file that is there is kept: an interrupted job has finished it.

    Raises:
      OSError: the file cannot be written.
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


def describe_shard(path: pathlib.Path, examples: int) -> ShardRecord:
    """Return the record of a file with so many examples."""
    size = path.stat().st_size
    return ShardRecord(path.name, examples, size, sha256_of(path))


def make_split_record(
    encoder: SplitEncoder, counts: Counts, shards: list[ShardRecord]
) -> SplitRecord:
    """Return the record of a split that is written.

    Raises:
      T2TLiteError: the split has no pair.
    """
    reasons = dict(sorted(counts.reasons.items()))
    record = SplitRecord(
        examples=counts.lengths.total(),
        source_tokens=counts.source_tokens,
        target_tokens=counts.target_tokens,
        lengths=dict(sorted(counts.lengths.items())),
        dropped={r: n for r, n in reasons.items() if r not in DAMAGE},
        shards=tuple(shards),
        unknown_words=counts.unknown_words,
        damaged={r: n for r, n in reasons.items() if r in DAMAGE},
    )
    if not record.examples:
        raise T2TLiteError(
            f"The {encoder.split} split of {encoder.problem.base_name} has no "
            f"pair to use: 0 pairs, {record.summary}. Check the corpus."
        )
    return record


def versions() -> dict[str, str]:
    """Return the versions of the packages that make data."""
    return {name: metadata.version(name) for name in _PACKAGES}


def describe_vocabulary(
    folder: pathlib.Path, problem: Problem
) -> dict[str, dict[str, Any]]:
    """Return sha256 and bytes of each vocabulary file in a folder."""
    paths = [folder / name for name in set(problem.vocabulary_files().values())]
    return {
        path.name: {"sha256": sha256_of(path), "bytes": path.stat().st_size}
        for path in sorted(paths)
    }


def _move_into_place(
    folder: pathlib.Path, data_dir: pathlib.Path, problem: Problem
) -> Manifest:
    """Rename complete files into the data folder, the manifest last.

    After an interruption the next call renames the rest.
    """
    manifest = Manifest.load(folder, problem)
    Manifest.path(data_dir, problem).unlink(missing_ok=True)
    splits = manifest.splits.values()
    shards = {shard.file for split in splits for shard in split.shards}
    for split in problem.splits:
        # No wider pattern: another problem may be called NAME-train.
        for old in data_dir.glob(f"{problem.base_name}-{split}-{_SHARD}"):
            if old.name not in shards or (folder / old.name).exists():
                old.unlink()
    for name in sorted([*shards, *manifest.vocabulary]):
        if (folder / name).exists():
            files.atomic_replace(folder / name, data_dir / name)
    check_data(data_dir, problem, manifest)
    files.remove_unfinished(data_dir, Manifest.path(data_dir, problem).name)
    manifest.save(data_dir)
    return manifest


@contextlib.contextmanager
def _write_errors_named(data_dir: pathlib.Path) -> Iterator[None]:
    """Turn errors of writing into one that says what to do."""
    try:
        yield
    except OSError as error:
        place = pathlib.Path(error.filename or data_dir)
        if not (place.is_relative_to(data_dir) or place in data_dir.parents):
            raise  # it is about the corpus
        error.filename = str(place)
        raise T2TLiteError(
            f"Cannot write data: {format_error(error)}. The same command "
            "resumes; or choose another `data_dir`."
        ) from error
    except BrokenProcessPool as error:
        raise T2TLiteError(
            "An encoding process died, most likely for lack of memory. The "
            "same command resumes; use fewer with `processes`."
        ) from error
