"""A split to its shards: encoded in chunks, put in order, written."""

import concurrent.futures
import dataclasses
import itertools
import pathlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from t2t_lite import files
from t2t_lite.corpus import filters
from t2t_lite.data.manifest import ShardRecord, SplitRecord, sha256_of
from t2t_lite.datagen.chunks import Chunk, cut
from t2t_lite.datagen.drops import DAMAGE, Drops, sample_of
from t2t_lite.datagen.external_shuffle import RecordsInOrder, Totals
from t2t_lite.datagen.split_job import SplitJob
from t2t_lite.datagen.unfinished import Work
from t2t_lite.datagen.worker_pool import run_job
from t2t_lite.errors import T2TLiteError
from t2t_lite.progress import Counter

# Half of what the input pipeline shuffles at a time, so that a pair meets other
# shards in every epoch.
SHARD_EXAMPLES = 32_768


def write_split(
    job: SplitJob, work: Work, processes: int | None, progress: bool
) -> SplitRecord:
    """Writes the shards of a split into the folder of the work.

    Raises:
      T2TLiteError: there is no pair to use.
    """
    paths, counts, drops = [], [], Drops()
    for number in range(_encode(job, work, processes, progress)):
        examples, dropped = job.report(number)
        paths.append(job.path(number))
        counts.append(examples)
        drops.merge(dropped)
    records = RecordsInOrder(
        paths, counts, in_order=not job.is_shuffled, distinct=job.is_distinct
    )
    if records.totals.copies:
        drops.merge(_copies(records, job, work))
    shards = _write_shards(records, job, work)
    return split_record(job, drops, records.totals, shards)


def split_record(
    job: SplitJob, drops: Drops, totals: Totals, shards: Iterable[ShardRecord]
) -> SplitRecord:
    """The record of a split that is written.

    Raises:
      T2TLiteError: there is no pair.
    """
    record = SplitRecord(
        examples=totals.lengths.total(),
        source_tokens=totals.source_tokens,
        target_tokens=totals.target_tokens,
        lengths=dict(sorted(totals.lengths.items())),
        dropped=_by_reason(drops.counts, damage=False),
        dropped_samples=_by_reason(drops.samples, damage=False),
        shards=tuple(shards),
        unknown_words=drops.unknown_words,
        damaged=_by_reason(drops.counts, damage=True),
        damaged_samples=_by_reason(drops.samples, damage=True),
    )
    if not record.examples:
        raise T2TLiteError(
            f"The {job.split} split of {job.problem.base_name} has no pair to "
            f"use: 0 pairs, {record.drops}. Check the corpus."
        )
    return record


def _by_reason(found: Mapping[str, Any], damage: bool) -> dict[str, Any]:
    """What is known of pairs that are left out, or that are damaged."""
    return {
        reason: value
        for reason, value in sorted(found.items())
        if (reason in DAMAGE) == damage
    }


def _encode(
    job: SplitJob, work: Work, processes: int | None, progress: bool
) -> int:
    """Writes the chunks that are not there yet; returns how many there are.

    To find where it stopped, the corpus is read from its start.
    """
    step = f"{job.split}-encoded"
    if encoded := work.finished(step):
        return encoded["chunks"]
    job.folder.mkdir(exist_ok=True)
    count = 0

    def chunks_left() -> Iterator[Chunk]:
        nonlocal count
        for chunk in cut(job.problem.samples(job.split, work.raw), job.label):
            count += 1
            if job.is_done(chunk.number):
                counter.advance(len(chunk.pairs))
            else:
                work.note_sources()
                yield chunk

    with Counter(job.label, "pairs", progress) as counter:
        run_job(job, chunks_left(), processes, counter.advance)
    work.finish(step, {"chunks": count})
    return count


def _copies(records: RecordsInOrder, job: SplitJob, work: Work) -> Drops:
    """The pairs that are in an earlier chunk, too.

    Their texts are read again: what was encoded may not give them back.
    """
    wanted = records.totals.first_copies
    pairs = job.problem.samples(job.split, work.raw)
    numbered = zip(range(1, max(wanted) + 1), pairs, strict=False)
    samples = [sample_of(n, *pair) for n, pair in numbered if n in wanted]
    reason = filters.DUPLICATES
    return Drops({reason: records.totals.copies}, {reason: samples})


def _write_shards(
    records: RecordsInOrder, job: SplitJob, work: Work
) -> list[ShardRecord]:
    """Writes TFRecord files of SHARD_EXAMPLES each; some may be there already.

    While one is written, another thread brings the one before to the disk.
    """
    total = records.totals.lengths.total()
    names = shard_names(job, total)
    done = itertools.takewhile(bool, map(work.finished, names))
    shards = [ShardRecord(**shard) for shard in done]
    left = records.records(len(shards) * SHARD_EXAMPLES)

    def finish(path: pathlib.Path, examples: int) -> ShardRecord:
        shard = finish_shard(path, examples)
        work.finish(shard.file, dataclasses.asdict(shard))
        return shard

    with concurrent.futures.ThreadPoolExecutor(1) as thread:
        finishing: list[concurrent.futures.Future[ShardRecord]] = []
        for number in range(len(shards), len(names)):
            before = number * SHARD_EXAMPLES
            examples = min(total - before, SHARD_EXAMPLES)
            path = work.folder / names[number]
            write_shard(path, itertools.islice(left, examples))
            if finishing:
                finishing[-1].result()  # the disk keeps up
            finishing.append(thread.submit(finish, path, examples))
        return shards + [future.result() for future in finishing]


def shard_names(job: SplitJob, examples: int) -> list[str]:
    """What the shards of a split are called."""
    count = -(-examples // SHARD_EXAMPLES)
    prefix = f"{job.problem.base_name}-{job.split}"
    return [f"{prefix}-{k:05d}-of-{count:05d}" for k in range(count)]


def write_shard(
    path: pathlib.Path, records: Iterable[bytes | memoryview]
) -> None:
    """Writes records, which come in their frames, into a hidden TFRecord file.

    `finish_shard` makes it `path`.
    """
    with open(files.aside(path), "wb") as file:
        file.writelines(records)


def finish_shard(path: pathlib.Path, examples: int) -> ShardRecord:
    """Brings a shard that is written to the disk and to its place."""
    files.put_in_place(files.aside(path), path)
    return ShardRecord(
        path.name, examples, path.stat().st_size, sha256_of(path)
    )
