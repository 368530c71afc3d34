"""A corpus to a vocabulary, TFRecord shards and a manifest.

Everything is written into a hidden folder, then renamed into the data folder,
the manifest last: data with a manifest is whole, and what a killed process left
behind is never taken for data. The same command goes on with it: a vocabulary,
an encoded segment of the corpus, a shard, a split that is finished is not made
again, and what comes out is the same to the byte.
"""

import contextlib
import dataclasses
import fcntl
import os
import pathlib
import shutil
from collections.abc import Callable
from concurrent.futures.process import BrokenProcessPool
from importlib import metadata

from t2t_lite import files
from t2t_lite.corpus.raw_files import RawFiles
from t2t_lite.data.checks import check_data, check_sources
from t2t_lite.data.manifest import (
    Manifest,
    SplitRecord,
    describe_sources,
    sha256_of,
)
from t2t_lite.datagen.chunks import SegmentJob
from t2t_lite.datagen.split_writer import write_split
from t2t_lite.datagen.unfinished import Work, absolute, code_version
from t2t_lite.errors import T2TLiteError, UsageError
from t2t_lite.problem import Problem
from t2t_lite.progress import say

_SHARD = "[0-9]" * 5 + "-of-" + "[0-9]" * 5  # ends a shard's name
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
    writer: Callable[[SegmentJob, RawFiles], SplitRecord] | None = None,
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
      writer: writes the shards of a split in place of this machine, the same to
        the byte, see `datagen.beam`.

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
            return _generate(
                problem, data_dir, raw, processes, seed, progress, writer
            )


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
    check_sources(problem, manifest)
    return manifest


def _generate(problem, data_dir, raw, processes, seed, progress, writer):
    aside = data_dir / f".{problem.base_name}.incomplete"
    identity = {
        "the definition": problem.definition(),
        "the seed": seed,
        "--raw_dir": absolute(raw.raw_dir),
        "--tfds_dir": absolute(raw.tfds_dir),
        "the version of a package": _versions(),
        "the code": code_version(),
    }
    work = Work(aside, identity, raw)
    if progress:
        _tell_work(problem, work)
    try:
        if not Manifest.path(aside, problem).exists():
            _make(problem, work, raw, processes, seed, progress, writer).save(
                aside
            )
        manifest = _move_into_place(aside, data_dir, problem)
    except T2TLiteError:
        work.remove()  # with that corpus the same command cannot go on
        raise
    work.remove()
    return manifest


def _tell_work(problem, work):
    """Says what becomes of what a killed process has left."""
    if work.resumed:
        say(f"{problem.base_name}: going on with what was finished before")
    if work.difference:
        say(
            f"{problem.base_name}: unfinished data was there, but "
            f"{work.difference}: starting afresh"
        )


def _versions():
    return {name: metadata.version(name) for name in _PACKAGES}


def _make(problem, work, raw, processes, seed, progress, writer):
    """Everything but the manifest goes into the folder of the work."""
    learned = work.finished("vocabulary")
    if learned is None:
        if progress:
            say(f"{problem.base_name}: learning the vocabulary")
        learned = problem.train_encoders(raw, work.folder, seed) or {}
        work.finish("vocabulary", learned)
    if progress:
        _tell_samples(problem, learned)
    splits = {}
    for split in problem.splits:
        record = work.finished(split)
        if record is None:
            job = SegmentJob(
                problem, split, work.folder, work.folder / split, seed
            )
            if writer:
                record = writer(job, raw)
            else:
                record = write_split(job, work, raw, processes, progress)
            work.finish(split, dataclasses.asdict(record))
            shutil.rmtree(job.folder)
        else:
            record = SplitRecord.from_json(record)
        if progress:
            label = f"{problem.base_name} {split}"
            say(f"{label}: {record.examples:,} pairs, {record.drops}")
        splits[split] = record
    vocabulary = {
        name: {
            "sha256": sha256_of(work.folder / name),
            "bytes": (work.folder / name).stat().st_size,
            **learned.get(name, {}),
        }
        for name in sorted(set(problem.vocabulary_files().values()))
    }
    return Manifest(
        problem=problem.base_name,
        fingerprint=problem.fingerprint(),
        definition=problem.definition(),
        vocabulary=vocabulary,
        splits=splits,
        seed=seed,
        versions=_versions(),
        sources=describe_sources(raw.noted),
    )


def _tell_samples(problem, learned):
    for name, of in sorted(learned.items()):
        lines = f"{of['lines']:,} lines"
        if of["sampled_lines"] < of["lines"]:
            lines = (
                f"{of['sampled_lines']:,} of {lines}, drawn with seed "
                f"{of['seed']}"
            )
        say(f"{problem.base_name}: {name} learned from {lines}")


def _move_into_place(aside, data_dir, problem):
    """Renames what is complete into the data folder, the manifest last.

    If it is killed meanwhile, the rest is renamed later.
    """
    manifest = Manifest.load(aside, problem)
    Manifest.path(data_dir, problem).unlink(missing_ok=True)
    shards = {
        shard.file
        for record in manifest.splits.values()
        for shard in record.shards
    }
    for split in problem.splits:
        # No wider: the next problem may be called NAME-train.
        for old in data_dir.glob(f"{problem.base_name}-{split}-{_SHARD}"):
            if old.name not in shards or (aside / old.name).exists():
                old.unlink()
    for name in sorted([*shards, *manifest.vocabulary]):
        if (aside / name).exists():
            files.put_in_place(aside / name, data_dir / name)
    check_data(data_dir, problem, manifest)
    manifest.save(data_dir)
    return manifest


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
    except BrokenProcessPool as error:
        raise T2TLiteError(
            "An encoding process died, most likely for lack of memory. The "
            "same command goes on where it stopped; use fewer with "
            "--processes."
        ) from error


def _cannot_write(place, reason):
    return T2TLiteError(
        f"Cannot write data to {place}: {reason}. Make room, and the same "
        "command goes on where it stopped; or choose another --data_dir."
    )
