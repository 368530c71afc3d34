"""A split to its shards: encoded in segments, put in order, written."""

import concurrent.futures
import dataclasses
import itertools
import pathlib
from collections.abc import Iterable, Mapping

from t2t_lite import files
from t2t_lite.corpus import filters
from t2t_lite.corpus.raw_files import RawFiles
from t2t_lite.data.manifest import ShardRecord, SplitRecord, sha256_of
from t2t_lite.datagen.chunks import Drops, SegmentJob, cut, sample
from t2t_lite.datagen.external_shuffle import Segments
from t2t_lite.datagen.unfinished import Work
from t2t_lite.datagen.worker_pool import run_segments
from t2t_lite.errors import T2TLiteError
from t2t_lite.progress import Counter

# Half a window of the input pipeline, so that a window meets other shards in
# every epoch.
SHARD_EXAMPLES = 32_768


def write_split(
    job: SegmentJob,
    work: Work,
    raw: RawFiles,
    processes: int | None,
    progress: bool,
) -> SplitRecord:
    """Writes the shards of a split into the folder of the work.

    Raises:
      T2TLiteError: there is no pair to use.
    """
    segments = _encode(job, work, raw, processes, progress)
    reports = [job.report(number) for number in range(segments)]
    drops = Drops()
    for report in reports:
        drops.merge(
            report["dropped"],
            report["dropped_samples"],
            report["unknown_words"],
        )
    sequence = Segments(
        [job.path(number) for number in range(segments)],
        [report["examples"] for report in reports],
        in_order=not job.is_shuffled,
        distinct=job.is_distinct,
    )
    if sequence.copies:
        _add_copies(drops, sequence, job, raw)
    return split_record(
        job,
        drops,
        lengths=dict(enumerate(sequence.lengths.tolist())),
        source_tokens=sequence.source_tokens,
        target_tokens=sequence.target_tokens,
        shards=_write_shards(sequence, job, work),
    )


def split_record(
    job: SegmentJob,
    drops: Drops,
    lengths: Mapping[int, int],
    source_tokens: int,
    target_tokens: int,
    shards: Iterable[ShardRecord],
) -> SplitRecord:
    """The record of a split that is written.

    Args:
      job: whose split it is.
      drops: what is left out of it.
      lengths: number of pairs by the tokens of their longer side; maybe none.
      source_tokens: of all pairs.
      target_tokens: of all pairs.
      shards: in order.

    Raises:
      T2TLiteError: there is no pair.
    """
    examples = sum(lengths.values())
    if not examples:
        raise T2TLiteError(
            f"The {job.split} split of {job.problem.base_name} has no pair to "
            f"use: 0 pairs, {drops.summary()}. Check the corpus."
        )
    return SplitRecord(
        examples=examples,
        source_tokens=source_tokens,
        target_tokens=target_tokens,
        lengths={n: count for n, count in sorted(lengths.items()) if count},
        dropped=dict(sorted(drops.counts.items())),
        dropped_samples=dict(sorted(drops.samples.items())),
        shards=tuple(shards),
        unknown_words=drops.unknown_words,
    )


def _encode(job, work, raw, processes, progress):
    """Writes the segments that are not there yet; returns how many there are.

    To find where the corpus goes on it is read from its start.
    """
    step = f"{job.split}-encoded"
    encoded = work.finished(step)
    if encoded is not None:
        return encoded["segments"]
    job.folder.mkdir(exist_ok=True)
    label = f"{job.problem.base_name} {job.split}"
    total = 0
    with Counter(label, "pairs", progress) as counter:

        def to_do():
            nonlocal total
            for segment in cut(job.problem.samples(job.split, raw), label):
                total += 1
                if job.is_done(segment.number):
                    counter.advance(len(segment.pairs))
                    continue
                work.note_sources()
                yield segment

        for pairs in run_segments(job, to_do(), processes):
            counter.advance(pairs)
    return work.finish(step, {"segments": total})["segments"]


def _add_copies(drops, sequence, job, raw):
    """Counts the pairs that are in an earlier segment, too.

    Their texts are read again: what was encoded may not give them back.
    """
    samples = []
    wanted = set(sequence.first_copies)
    pairs = job.problem.samples(job.split, raw)
    for number, pair in zip(range(1, max(wanted) + 1), pairs, strict=False):
        if number in wanted:
            samples.append(sample(number, *pair))
    drops.merge(
        {filters.DUPLICATES: sequence.copies}, {filters.DUPLICATES: samples}
    )


def _write_shards(sequence, job, work):
    """Writes TFRecord files of SHARD_EXAMPLES each; some may be there already.

    While the next one is written another thread waits for the disk.

    Returns: a `ShardRecord` for each.
    """
    names = shard_names(job, sequence.examples)
    shards = []
    for name in names:
        shard = work.finished(name)
        if shard is None:
            break
        shards.append(ShardRecord(**shard))
    records = sequence.records(len(shards) * SHARD_EXAMPLES)

    def finish(file):
        shard = file.finish()
        work.finish(shard.file, dataclasses.asdict(shard))
        return shard

    with concurrent.futures.ThreadPoolExecutor(1) as thread:
        last = None
        for number in range(len(shards), len(names)):
            left = sequence.examples - number * SHARD_EXAMPLES
            file = Shard(work.folder / names[number])
            examples = min(left, SHARD_EXAMPLES)
            file.write(itertools.islice(records, examples), examples)
            if last:
                shards.append(last.result())
            last = thread.submit(finish, file)
        if last:
            shards.append(last.result())
    return shards


def shard_names(job: SegmentJob, examples: int) -> list[str]:
    """What the shards of a split are called."""
    count = -(-examples // SHARD_EXAMPLES)
    prefix = f"{job.problem.base_name}-{job.split}"
    return [f"{prefix}-{k:05d}-of-{count:05d}" for k in range(count)]


class Shard:
    """A TFRecord file that is there whole or not at all.

    Args:
      path: where it is when it is finished.
    """

    def __init__(self, path: pathlib.Path):
        self._path = path
        self._aside = files.aside(path)
        self._examples = 0

    def write(
        self, records: Iterable[bytes | memoryview], examples: int
    ) -> None:
        """Writes so many records, which come in their frames."""
        self._examples = examples
        with open(self._aside, "wb") as file:
            file.writelines(records)

    def finish(self) -> ShardRecord:
        """Brings it to the disk and to its place."""
        files.put_in_place(self._aside, self._path)
        size, sha256 = self._path.stat().st_size, sha256_of(self._path)
        return ShardRecord(self._path.name, self._examples, size, sha256)
