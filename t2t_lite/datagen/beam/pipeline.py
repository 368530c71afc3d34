"""The steps that write a split with Apache Beam.

Workers read the parts of the corpus that the problem names side by side, and
cut them into chunks. These are dealt out, filtered and encoded as on one
machine. Then the records of a range of keys meet, are put in order, and go to
the workers that write their shards. Keys come from texts and numbers of pairs
alone, so the files are the same to the byte as those that one machine makes.

The problem, with the user's own modules, and the vocabulary travel with the
work. The corpus and the data folder do not: every machine must see them under
the same names.
"""

import dataclasses
import itertools
import json
import pathlib
import pickle
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from t2t_lite import files
from t2t_lite.corpus import filters
from t2t_lite.corpus.raw_files import RawFiles
from t2t_lite.data.manifest import ShardRecord, SplitRecord
from t2t_lite.datagen.beam.runner import beam
from t2t_lite.datagen.beam.shipping import ship
from t2t_lite.datagen.chunks import Chunk, cut
from t2t_lite.datagen.drops import MOST_SAMPLES, Drops, sample_of
from t2t_lite.datagen.external_shuffle import Totals, order_of
from t2t_lite.datagen.split_job import SplitJob
from t2t_lite.datagen.split_writer import (
    SHARD_EXAMPLES,
    finish_shard,
    shard_names,
    split_record,
    write_shard,
)
from t2t_lite.errors import T2TLiteError


def not_shared(folder: pathlib.Path) -> T2TLiteError:
    """The error to raise where workers do not see the same data folder."""
    return T2TLiteError(
        f"All workers must see one --data_dir; what they wrote into {folder} "
        "is not there. Put it on a file system that they share."
    )


def add_steps(
    pipeline: Any, job: SplitJob, raw: RawFiles, report: pathlib.Path
) -> None:
    """Adds the steps of a split to a pipeline of Beam.

    Shards go beside the folder of the job, what the workers found goes into
    `report`, which `read_report` reads. It is JSON: what lies in a folder that
    others may write to is no code.
    """
    shipped = ship(job, raw)
    parts = job.problem.parts(job.split, raw)
    chunks = (
        pipeline
        | "Parts" >> beam.Create(list(enumerate(map(pickle.dumps, parts))))
        | "DealPartsOut" >> beam.Reshuffle()
        | "Read" >> beam.ParDo(_Read(shipped))
        | "DealChunksOut" >> beam.Reshuffle()
    )
    numbering = beam.pvalue.AsSingleton(
        chunks
        | "Sizes" >> beam.MapTuple(lambda key, pairs: (key, len(pairs)))
        | "AllSizes" >> beam.combiners.ToList()
        | "Number" >> beam.Map(_starts, first=1)
    )
    encoded = chunks | "Encode" >> beam.ParDo(
        _Encode(shipped), numbering
    ).with_outputs("drops", main="records")
    runs = (
        encoded.records
        | "MeetByKey" >> beam.GroupByKey()
        | "Order" >> beam.Map(_order, job.is_distinct)
    )
    totals = runs | "Totals" >> beam.MapTuple(lambda _, run: run.totals)
    places = beam.pvalue.AsSingleton(
        runs
        | "RunSizes" >> beam.MapTuple(lambda key, run: (key, len(run.records)))
        | "AllRunSizes" >> beam.combiners.ToList()
        | "Place" >> beam.Map(_starts, first=0)
    )
    shards = (
        runs
        | "CutIntoShards" >> beam.FlatMap(_pieces, places)
        | "MeetInShards" >> beam.GroupByKey()
        | "Write" >> beam.ParDo(_Write(shipped), places)
    )
    samples = (
        _samples_of_copies(chunks, totals, numbering)
        if job.is_distinct
        else pipeline | "NoCopies" >> beam.Create([])
    )
    _ = (
        pipeline
        | "Once" >> beam.Create([None])
        | "Report"
        >> beam.Map(
            _write_report,
            drops=beam.pvalue.AsIter(encoded.drops),
            totals=beam.pvalue.AsIter(totals),
            samples=beam.pvalue.AsIter(samples),
            shards=beam.pvalue.AsIter(shards),
            report=report,
        )
    )


def _samples_of_copies(chunks: Any, totals: Any, numbering: Any) -> Any:
    """The first pairs that are there before: their texts are looked up."""
    numbers = beam.pvalue.AsSingleton(
        totals
        | "FirstCopies" >> beam.FlatMap(lambda totals: totals.first_copies)
        | "First" >> beam.combiners.Top.Smallest(MOST_SAMPLES)
    )
    return chunks | "LookUp" >> beam.FlatMap(_find, numbering, numbers)


class _Worker(beam.DoFn):
    """Knows the job, once it is on its machine."""

    def __init__(self, shipped: bytes):
        self._shipped = shipped

    def setup(self) -> None:
        self._job, self._raw, self._vocabulary = pickle.loads(self._shipped)


class _Read(_Worker):
    """A part of the corpus to the pairs of its chunks."""

    def process(self, element: Any) -> Iterator[Any]:
        number, part = element
        job = self._job
        pairs = job.problem.part_samples(
            job.split, self._raw, pickle.loads(part)
        )
        place = f"part {number} of {job.problem.base_name} {job.split}"
        for chunk in cut(pairs, place):
            yield (number, chunk.number), chunk.pairs


class _Encode(_Worker):
    """The pairs of a chunk to records, by ranges of keys."""

    def setup(self) -> None:
        super().setup()
        # Stays: an encoder may read its file later.
        self._folder = tempfile.TemporaryDirectory()
        for name, content in self._vocabulary.items():
            pathlib.Path(self._folder.name, name).write_bytes(content)
        self._encoders = self._job.problem.load_encoders(self._folder.name)

    def teardown(self) -> None:
        self._folder.cleanup()

    def process(self, element: Any, numbering: Any) -> Iterator[Any]:
        key, pairs = element
        starts, end = numbering
        chunk = Chunk(key[1], starts[key], pairs)
        index, records, drops = self._job.encode(self._encoders, chunk)
        yield beam.pvalue.TaggedOutput("drops", drops)
        ranges = _ranges(index["key"], end, self._job.is_shuffled)
        order = np.argsort(ranges, kind="stable")
        borders = np.flatnonzero(np.diff(ranges[order])) + 1
        for chosen in np.split(order, borders):
            if len(chosen):
                batch = index[chosen], [records[i] for i in chosen.tolist()]
                yield int(ranges[chosen[0]]), batch


def _ranges(keys: np.ndarray, pairs: int, are_random: bool) -> np.ndarray:
    """Which range of keys each one is in; a range has a shard's at most, about.

    Args:
      keys: uint64 [records].
      pairs: of the split.
      are_random: else they are the numbers of the pairs.
    """
    if not are_random:
        return keys // SHARD_EXAMPLES
    bits = max(1, (pairs // SHARD_EXAMPLES).bit_length())
    return keys >> np.uint64(64 - bits)


def _starts(
    sizes: Iterable[tuple[Any, int]], first: int
) -> tuple[dict[Any, int], int]:
    """Where each of some runs begins when all are put in order, and the end.

    Example: [("b", 5), ("a", 2)] from 1 gives {"a": 1, "b": 3}, 8.
    """
    starts = {}
    for key, size in sorted(sizes):
        starts[key] = first
        first += size
    return starts, first


@dataclasses.dataclass(frozen=True)
class _Run:
    """The records of a range of keys, in order, without copies."""

    records: list[bytes]
    totals: Totals


def _order(element: Any, distinct: bool) -> tuple[int, _Run]:
    key, batches = element
    indices, parts = zip(*batches, strict=True)
    index = np.concatenate(indices)
    records = list(itertools.chain.from_iterable(parts))
    by_number = np.argsort(index["pair"])  # as on one machine, for equal keys
    index = index[by_number]
    order, copies = order_of(index, distinct)
    records = [records[i] for i in by_number[order].tolist()]
    return key, _Run(records, Totals.of(index[order], index[copies]))


def _pieces(element: Any, places: Any) -> Iterator[Any]:
    """Yields what of a run goes into each shard: (shard, (first, records))."""
    key, run = element
    starts, _ = places
    first, records = starts[key], run.records
    while records:
        shard, place = divmod(first, SHARD_EXAMPLES)
        size = SHARD_EXAMPLES - place
        yield shard, (place, records[:size])
        first, records = first + size, records[size:]


class _Write(_Worker):
    """What goes into a shard to its file and its record."""

    def process(self, element: Any, places: Any) -> Iterator[ShardRecord]:
        number, pieces = element
        _, total = places
        folder = self._job.folder.parent
        if not folder.is_dir():
            raise not_shared(folder)
        pieces = sorted(pieces, key=lambda piece: piece[0])
        records = [record for _, part in pieces for record in part]
        path = folder / shard_names(self._job, total)[number]
        write_shard(path, records)
        yield finish_shard(path, len(records))


def _find(
    element: Any, numbering: Any, numbers: list[int]
) -> Iterator[dict[str, Any]]:
    """Yields those pairs of a chunk that have certain numbers."""
    key, pairs = element
    first = numbering[0][key]
    for number in numbers:
        if first <= number < first + len(pairs):
            yield sample_of(number, *pairs[number - first])


def read_report(job: SplitJob, report: pathlib.Path) -> SplitRecord:
    """What the workers found, as a record of the split."""
    drops, totals, shards = json.loads(report.read_text("utf-8"))
    lengths = {int(n): count for n, count in totals["lengths"].items()}
    return split_record(
        job,
        Drops(**drops),
        Totals(**{**totals, "lengths": Counter(lengths)}),
        [ShardRecord(**shard) for shard in shards],
    )


def _write_report(
    _: None,
    drops: Iterable[Drops],
    totals: Iterable[Totals],
    samples: Iterable[dict[str, Any]],
    shards: Iterable[ShardRecord],
    report: pathlib.Path,
) -> None:
    """Keeps what all workers have found, for the process that waits."""
    if not report.parent.is_dir():
        raise not_shared(report.parent)
    all_drops = Drops()
    for part in drops:
        all_drops.merge(part)
    all_totals = Totals()
    for added in totals:
        all_totals.merge(added)
    if copies := all_totals.copies:
        reason = filters.DUPLICATES
        all_drops.merge(Drops({reason: copies}, {reason: list(samples)}))
    in_order = sorted(shards, key=lambda shard: shard.file)
    found = [vars(all_drops), vars(all_totals), list(map(vars, in_order))]
    files.write_json(report, found)
