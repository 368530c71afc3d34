"""A corpus to a vocabulary, TFRecord shards and a manifest.

Everything is written into a hidden folder, then renamed into the data folder,
the manifest last: data with a manifest is complete, and what a killed process
left is never taken for data. The same command goes on from there. It does not
make again what is finished, such as the vocabulary, a chunk, a shard or a
split, and the result is the same to the byte.
"""

import contextlib
import dataclasses
import fcntl
import os
import pathlib
import shutil
from collections.abc import Iterator, Mapping
from concurrent.futures.process import BrokenProcessPool
from importlib import metadata
from typing import Any

from t2t_lite import files
from t2t_lite.corpus.raw_files import RawFiles
from t2t_lite.data.checks import check_data, check_sources
from t2t_lite.data.manifest import (
    Manifest,
    SplitRecord,
    describe_sources,
    sha256_of,
)
from t2t_lite.data.remedies import USUAL_SEED
from t2t_lite.datagen.split_job import SplitJob
from t2t_lite.datagen.split_writer import write_split
from t2t_lite.datagen.unfinished import Work, code_version, remove_any
from t2t_lite.errors import T2TLiteError, UsageError, in_words
from t2t_lite.problem import OwnText, Problem
from t2t_lite.progress import say

_SHARD = "[0-9]" * 5 + "-of-" + "[0-9]" * 5  # ends a shard's name
_PACKAGES = ("t2t-lite", "tensorflow", "tensorflow-text", "sentencepiece")


@dataclasses.dataclass
class Generation:
    """How the data of a problem is made; `run` makes it.

    The corpus is streamed. Pairs with an empty side are left out and counted,
    and in train also those that the problem's filters name. Train is shuffled;
    dev and test keep the order of the corpus. The same corpus, definition and
    seed give the same files, whatever `processes` is.

    Attributes:
      problem: either direction; they share their data.
      data_dir: where the data goes.
      raw_dir: a folder with the corpus; None downloads it.
      tfds_dir: where TensorFlow Datasets are, for problems that read them; None
        means where that library keeps them.
      seed: of the order of train and of the vocabulary's sample; None takes
        that of the data which is there, else the usual one.
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
        check_places(self.problem, self.raw_dir, self.tfds_dir)
        if self.problem.reversed:
            self.problem = self.problem.reverse()
        self._folder = pathlib.Path(self.data_dir).expanduser()

    def run(self, overwrite: bool = False) -> Manifest:
        """The manifest of the data, which is made unless it is there and fits.

        Args:
          overwrite: make it from the start, even if it is there.

        Raises:
          T2TLiteError: there is data that does not fit, or of another seed; the
            corpus is missing, empty or bad; the folder cannot be written.
        """
        if not overwrite and (manifest := self._checked()):
            return manifest
        with _file_errors_named(self._folder):
            self._folder.mkdir(parents=True, exist_ok=True)
            with self._only_one():
                # Another process may have made it while this one waited.
                if not overwrite and (manifest := self._checked()):
                    return manifest
                return self._generate(overwrite)

    def write_split(self, job: SplitJob, work: Work) -> SplitRecord:
        """Writes the shards of a split into the folder of the work.

        A subclass may do so elsewhere, as long as the bytes are the same.
        """
        return write_split(job, work, self.processes, self.progress)

    def _checked(self) -> Manifest | None:
        """The manifest of data that is there and fits; None without data."""
        if not Manifest.path(self._folder, self.problem).exists():
            return None
        manifest = Manifest.load(self._folder, self.problem)
        check_data(self._folder, self.problem, manifest)
        check_sources(self._folder, self.problem, manifest)
        if self.seed not in (None, manifest.seed):
            raise UsageError(
                f"{self._folder} holds data of {self.problem.base_name} made "
                f"with --seed={manifest.seed}; got {self.seed}. Leave --seed "
                "out, use another --data_dir, or add --overwrite to make it "
                "again."
            )
        return manifest

    def _chosen_seed(self) -> int:
        """The seed of data that is made now."""
        if self.seed is not None:
            return self.seed
        # What cannot be read is about to be replaced.
        with contextlib.suppress(T2TLiteError):
            return Manifest.load(self._folder, self.problem).seed
        return USUAL_SEED

    def _generate(self, overwrite: bool) -> Manifest:
        name, seed = self.problem.base_name, self._chosen_seed()
        raw = RawFiles(
            self.problem.files,
            self.raw_dir,
            self._folder / "downloads" / name,
            self.progress,
            self.tfds_dir,
        )
        if raw.raw_dir is not None and not raw.raw_dir.is_dir():
            raise T2TLiteError(f"--raw_dir: there is no folder {raw.raw_dir}.")
        self.problem.require_sources(raw)  # now, not after hours
        identity = {
            "the definition": self.problem.definition(),
            "the seed": seed,
            "--raw_dir": raw.raw_dir and os.path.abspath(raw.raw_dir),
            "--tfds_dir": raw.tfds_dir and os.path.abspath(raw.tfds_dir),
            "the version of a package": versions(),
            "the code": code_version(),
        }
        unfinished = self._folder / f".{name}.incomplete"
        if overwrite:
            remove_any(unfinished)
        work = Work(unfinished, identity, raw)
        if work.resumed:
            self._say("continuing with what is finished")
        if work.difference:
            why = work.difference
            self._say(f"there was unfinished data, but {why}: starting over")
        try:
            if not Manifest.path(work.folder, self.problem).exists():
                self._make(work, seed).save(work.folder)
            manifest = _move_into_place(work, self._folder, self.problem)
        except T2TLiteError:
            work.remove()  # with that corpus the same command cannot go on
            raise
        work.remove()
        return manifest

    def _make(self, work: Work, seed: int) -> Manifest:
        """Makes everything but the manifest in the folder of the work."""
        problem = self.problem
        learned = self._learn_vocabulary(work, seed)
        splits = {
            split: self._split(split, work, seed) for split in problem.splits
        }
        vocabulary = describe_vocabulary(work.folder, problem)
        for name, record in vocabulary.items():
            record.update(learned.get(name, {}))
        manifest = Manifest(
            problem=problem.base_name,
            fingerprint=problem.fingerprint(),
            definition=problem.definition(),
            vocabulary=vocabulary,
            splits=splits,
            seed=seed,
            versions=versions(),
            sources=describe_sources(work.raw.noted),
            corpora=problem.corpus_counts(work.raw),
        )
        for told in manifest.told_corpora:
            self._say(f"train from {told}")
        return manifest

    def _learn_vocabulary(
        self, work: Work, seed: int
    ) -> Mapping[str, Mapping[str, Any]]:
        """Returns what each file that is learned is learned from."""
        learned = work.finished("vocabulary")
        if learned is None:
            self._say("learning the vocabulary")
            train = self.problem.train_encoders
            learned = train(work.raw, work.folder, seed) or {}
            work.finish("vocabulary", learned)
        for name, of in sorted(learned.items()):
            self._say(f"{name} learned from {_lines(of)}")
        return learned

    def _split(self, split: str, work: Work, seed: int) -> SplitRecord:
        if finished := work.finished(split):
            record = SplitRecord.from_json(finished)
        else:
            folder = work.folder / split
            job = SplitJob(self.problem, split, work.folder, folder, seed)
            record = self.write_split(job, work)
            work.finish(split, dataclasses.asdict(record))
            shutil.rmtree(folder)
        self._say(f"{record.examples:,} pairs, {record.drops}", split)
        return record

    @contextlib.contextmanager
    def _only_one(self) -> Iterator[None]:
        """Lets one process make the data at a time; the dead hold no lock."""
        folder = self._folder
        with open(folder / f".{self.problem.base_name}.lock", "w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                self._say(
                    f"another process is generating it in {folder}; waiting"
                )
                fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _say(self, text: str, split: str = "") -> None:
        if self.progress:
            label = f"{self.problem.base_name} {split}".strip()
            say(f"{label}: {text}")


def check_places(
    problem: Problem,
    raw_dir: str | os.PathLike | None,
    tfds_dir: str | os.PathLike | None,
) -> None:
    """Raises UsageError for a folder that the problem would not read."""
    if raw_dir is not None and isinstance(problem, OwnText):
        raise UsageError(
            f"{problem.registered_name} reads the files that --source, "
            f"--target or --pairs name: leave --raw_dir out; got {raw_dir}."
        )
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


def versions() -> dict[str, str]:
    """Those of the packages that make data, for a manifest."""
    return {name: metadata.version(name) for name in _PACKAGES}


def describe_vocabulary(
    folder: pathlib.Path, problem: Problem
) -> dict[str, dict[str, Any]]:
    """sha256 and bytes of each vocabulary file in a folder, for a manifest."""
    return {
        name: {
            "sha256": sha256_of(folder / name),
            "bytes": (folder / name).stat().st_size,
        }
        for name in sorted(set(problem.vocabulary_files().values()))
    }


def _lines(learned_from: Mapping[str, Any]) -> str:
    """How many lines a vocabulary is learned from, in words."""
    lines, sampled = learned_from["lines"], learned_from["sampled_lines"]
    if sampled == lines:
        return f"{lines:,} lines"
    seed = learned_from["seed"]
    return f"{sampled:,} of {lines:,} lines, drawn with seed {seed}"


def _move_into_place(
    work: Work, data_dir: pathlib.Path, problem: Problem
) -> Manifest:
    """Renames what is complete into the data folder, the manifest last.

    After a kill in the middle, the next call renames the rest.
    """
    manifest = Manifest.load(work.folder, problem)
    Manifest.path(data_dir, problem).unlink(missing_ok=True)
    splits = manifest.splits.values()
    shards = {shard.file for split in splits for shard in split.shards}
    for split in problem.splits:
        # No wider: the next problem may be called NAME-train.
        for old in data_dir.glob(f"{problem.base_name}-{split}-{_SHARD}"):
            if old.name not in shards or (work.folder / old.name).exists():
                old.unlink()
    for name in sorted([*shards, *manifest.vocabulary]):
        if (work.folder / name).exists():
            files.put_in_place(work.folder / name, data_dir / name)
    check_data(data_dir, problem, manifest)
    files.remove_unfinished(data_dir, Manifest.path(data_dir, problem).name)
    manifest.save(data_dir)
    return manifest


@contextlib.contextmanager
def _file_errors_named(data_dir: pathlib.Path) -> Iterator[None]:
    """Turns errors of writing into one that says what to do."""
    try:
        yield
    except OSError as error:
        place = pathlib.Path(error.filename or data_dir)
        if not (place.is_relative_to(data_dir) or place in data_dir.parents):
            raise  # it is about the corpus
        error.filename = str(place)
        raise T2TLiteError(
            f"Cannot write data: {in_words(error)}. The same command goes on "
            "where it stopped; or choose another --data_dir."
        ) from error
    except BrokenProcessPool as error:
        raise T2TLiteError(
            "An encoding process died, most likely for lack of memory. The "
            "same command goes on where it stopped; use fewer with "
            "--processes."
        ) from error
