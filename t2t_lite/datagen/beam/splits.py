"""The shards of a split, written by Apache Beam on as many machines as it has.

The parts of the corpus that the problem names are read side by side, and cut
into chunks. These are dealt out, filtered and encoded as on one machine; then
the records of a range of keys meet, are put in order, and go to whoever writes
their shard. Keys come from texts and numbers of pairs alone, so the files are
the same to the byte as those that one machine makes.

The problem, with the user's own modules, and the vocabulary travel with the
work. The corpus and the data folder do not: every machine must see them under
the same names.
"""

import dataclasses
import itertools
import json
import pathlib
import pickle
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from importlib import metadata

import numpy as np

from t2t_lite import files
from t2t_lite.corpus import filters
from t2t_lite.corpus.raw_files import RawFiles
from t2t_lite.data.manifest import ShardRecord, SplitRecord
from t2t_lite.datagen.beam.runner import BeamRunner, beam, cloudpickle
from t2t_lite.datagen.chunks import Chunk, cut
from t2t_lite.datagen.drops import MOST_SAMPLES, Drops, sample_of
from t2t_lite.datagen.external_shuffle import order_of
from t2t_lite.datagen.generate import Generation
from t2t_lite.datagen.split_job import SplitJob
from t2t_lite.datagen.split_writer import (
    SHARD_EXAMPLES,
    Shard,
    shard_names,
    split_record,
)
from t2t_lite.datagen.unfinished import Work
from t2t_lite.errors import T2TLiteError


@dataclasses.dataclass
class BeamGeneration(Generation):
    """A generation whose splits are written by Apache Beam.

    Attributes:
      runner: one of Beam's runners, "Runner" and capitals optional.
      beam_options: Beam's own, such as `["--flink_master=localhost:8081"]`.

    Raises:
      UsageError: Beam has no such runner, or does not take the options.
      T2TLiteError: the runner needs packages that are not there.
    """

    runner: str = "DirectRunner"
    beam_options: Sequence[str] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        self._runner = BeamRunner(self.runner, self.beam_options)

    def write_split(self, job: SplitJob, work: Work) -> SplitRecord:
        """As of `Generation`.

        Raises:
          T2TLiteError: the corpus is missing or bad.
          RuntimeError: the pipeline failed otherwise.
        """
        raw = work.raw
        if raw.raw_dir is None:
            for name in raw.files:
                raw.path(name)  # downloads it, once and not on every worker
        parts = job.problem.parts(job.split, raw)
        job.folder.mkdir(exist_ok=True)
        report = job.folder / "report.json"
        report.unlink(missing_ok=True)
        pipeline = self._runner.pipeline()
        _build(pipeline, job, raw, parts, report)
        self._runner.run(pipeline)
        if not report.exists():
            raise _not_shared(job.folder)
        return _split_record(job, json.loads(report.read_text("utf-8")))


def _not_shared(folder):
    return T2TLiteError(
        f"All workers must see one --data_dir; what they wrote into {folder} "
        "is not there. Put it on a file system that they share."
    )


def _build(pipeline, job, raw, parts, report):
    """Adds all steps of a split to a pipeline."""
    shipped = _ship(job, raw)
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
    totals = runs | "Totals" >> beam.MapTuple(lambda _, run: run.totals())
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


def _samples_of_copies(chunks, totals, numbering):
    """The first pairs that are there before: their texts are looked up."""
    numbers = beam.pvalue.AsSingleton(
        totals
        | "FirstCopies" >> beam.FlatMap(lambda totals: totals.first_copies)
        | "First" >> beam.combiners.Top.Smallest(MOST_SAMPLES)
    )
    return chunks | "LookUp" >> beam.FlatMap(_find, numbering, numbers)


def _ship(job, raw):
    """The job and where its corpus is, for machines without the user's code."""
    quiet = RawFiles(
        tuple(raw.files.values()),
        raw.raw_dir,
        raw.download_dir,
        progress=False,
        tfds_dir=raw.tfds_dir,
    )
    vocabulary = {
        name: (job.vocabulary_dir / name).read_bytes()
        for name in set(job.problem.vocabulary_files().values())
    }
    by_value = _modules_of_user(type(job.problem).__module__)
    for module in by_value:
        cloudpickle.register_pickle_by_value(module)
    try:
        return cloudpickle.dumps((job, quiet, vocabulary))
    finally:
        for module in by_value:
            cloudpickle.unregister_pickle_by_value(module)


def _modules_of_user(name):
    """What to send as code: the package of a module, or those beside it.

    Nothing where the package is installed, as it is on a worker then.
    """
    top = name.partition(".")[0]
    if top in (__name__.partition(".")[0], "__main__"):
        return []  # the latter is always sent
    if top in metadata.packages_distributions():
        return []
    package = sys.modules[top]
    if hasattr(package, "__path__"):
        return [package]
    folder = pathlib.Path(package.__file__).parent
    return [
        module
        for name, module in list(sys.modules.items())
        if getattr(module, "__file__", None)
        and pathlib.Path(module.__file__).parent == folder
        and module.__name__ == name
    ]


class _Worker(beam.DoFn):
    """Knows the job, once it is on its machine."""

    def __init__(self, shipped):
        self._shipped = shipped

    def setup(self):
        self._job, self._raw, self._vocabulary = pickle.loads(self._shipped)


class _Read(_Worker):
    """A part of the corpus to the pairs of its chunks."""

    def process(self, element):
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

    def setup(self):
        super().setup()
        # Stays: an encoder may read its file later.
        self._folder = tempfile.TemporaryDirectory()
        for name, content in self._vocabulary.items():
            pathlib.Path(self._folder.name, name).write_bytes(content)
        self._encoders = self._job.problem.load_encoders(self._folder.name)

    def teardown(self):
        self._folder.cleanup()

    def process(self, element, numbering):
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


def _ranges(keys, pairs, are_random):
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


def _starts(sizes, first):
    """Where each of some runs begins when all are put in order, and the end.

    Example: [("b", 5), ("a", 2)] from 1 gives {"a": 1, "b": 3}, 8.
    """
    starts = {}
    for key, size in sorted(sizes):
        starts[key] = first
        first += size
    return starts, first


@dataclasses.dataclass(frozen=True)
class _Totals:
    """What some records add up to; as of `RecordsInOrder`."""

    lengths: Counter
    source_tokens: int
    target_tokens: int
    copies: int
    first_copies: list[int]


@dataclasses.dataclass(frozen=True)
class _Run:
    """The records of a range of keys, in order, without copies."""

    records: list[bytes]
    index: np.ndarray
    copies: list[int]  # the numbers of the pairs that are left out

    def totals(self):
        sides = self.index["source_tokens"], self.index["target_tokens"]
        return _Totals(
            Counter(np.maximum(*sides).tolist()),
            *(int(side.sum(dtype=np.int64)) for side in sides),
            len(self.copies),
            sorted(self.copies)[:MOST_SAMPLES],
        )


def _order(element, distinct):
    key, batches = element
    indices, records = zip(*batches, strict=True)
    index = np.concatenate(indices)
    records = list(itertools.chain.from_iterable(records))
    by_number = np.argsort(index["pair"])  # as on one machine, for equal keys
    order, copies = order_of(index[by_number], distinct)
    copies = index["pair"][by_number[copies]].tolist()
    order = by_number[order]
    records = [records[i] for i in order.tolist()]
    return key, _Run(records, index[order], copies)


def _pieces(element, places):
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

    def process(self, element, places):
        shard, pieces = element
        _, total = places
        folder = self._job.folder.parent
        if not folder.is_dir():
            raise _not_shared(folder)
        pieces = sorted(pieces, key=lambda piece: piece[0])
        records = [record for _, part in pieces for record in part]
        name = shard_names(self._job, total)[shard]
        shard = Shard(folder / name)
        shard.write(records, len(records))
        yield shard.finish()


def _find(element, numbering, numbers):
    """Yields those pairs of a chunk that have certain numbers."""
    key, pairs = element
    first = numbering[0][key]
    for number in numbers:
        if first <= number < first + len(pairs):
            yield sample_of(number, *pairs[number - first])


def _write_report(_, drops, totals, samples, shards, report):
    """Keeps what all workers have found, for the process that waits."""
    if not report.parent.is_dir():
        raise _not_shared(report.parent)
    all_drops = Drops()
    for part in drops:
        all_drops.merge(part)
    totals = list(totals)
    copies = sum(part.copies for part in totals)
    if copies:
        samples = {filters.DUPLICATES: list(samples)}
        all_drops.merge(Drops({filters.DUPLICATES: copies}, samples))
    found = {
        "drops": dataclasses.asdict(all_drops),
        "lengths": sum((part.lengths for part in totals), Counter()),
        "source_tokens": sum(part.source_tokens for part in totals),
        "target_tokens": sum(part.target_tokens for part in totals),
        "shards": [dataclasses.asdict(shard) for shard in shards],
    }
    files.write_json(report, found)


def _split_record(job, found):
    """The record of a split, of what the workers found."""
    shards = (ShardRecord(**shard) for shard in found["shards"])
    return split_record(
        job,
        Drops(**found["drops"]),
        lengths={int(n): count for n, count in found["lengths"].items()},
        source_tokens=found["source_tokens"],
        target_tokens=found["target_tokens"],
        shards=sorted(shards, key=lambda shard: shard.file),
    )
