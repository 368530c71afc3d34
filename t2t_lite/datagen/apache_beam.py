"""Write the splits with Apache Beam, on all its machines.

Workers read the parts of the corpus that the problem names, split them into
chunks, and encode these as one machine does. The records of a shard then meet
on a worker that orders and writes them. Keys depend on texts and pair numbers
only, so the files are the same to the byte as those of one machine.

The problem, with the user's modules, and the vocabulary travel with the work.
All machines must see the corpus and the data folder under the same paths.
"""

import copy
import dataclasses
import json
import pathlib
import pickle
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from importlib import metadata
from types import ModuleType
from typing import Any

import numpy as np

from t2t_lite import files
from t2t_lite.corpus import filters
from t2t_lite.corpus.raw_files import RawFiles
from t2t_lite.data.manifest import ShardRecord, SplitRecord
from t2t_lite.datagen import shuffle
from t2t_lite.datagen.encode import (
    INDEX,
    MOST_SAMPLES,
    Chunk,
    Drops,
    SplitEncoder,
    sample_of,
    split_into_chunks,
)
from t2t_lite.datagen.generate import (
    Generation,
    UnfinishedJob,
    make_split_record,
    shard_paths,
    write_shard,
)
from t2t_lite.errors import T2TLiteError, UsageError, nearest

try:
    import apache_beam as beam
    import cloudpickle  # a dependency of Beam
    from apache_beam.options.pipeline_options import (
        PipelineOptions,
        StandardOptions,
    )
except ModuleNotFoundError as error:
    raise T2TLiteError(
        f"--runner requires Apache Beam, and {error.name} is not installed: "
        "pip install 't2t-lite[beam]'."
    ) from error


@dataclasses.dataclass
class BeamGeneration(Generation):
    """A generation whose splits are written by Apache Beam.

    Attributes:
      runner: Beam's name of a runner, "Runner" and capitals optional; or the
        full name of a class.
      beam_options: Beam's options, such as `["--flink_master=localhost:8081"]`.
    """

    runner: str = "DirectRunner"
    beam_options: Sequence[str] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        self._pipeline()  # report wrong options before work begins

    def write_split(
        self, encoder: SplitEncoder, job: UnfinishedJob
    ) -> SplitRecord:
        """Write the shards of a split into the folder of the job.

        Raises:
          T2TLiteError: the corpus is missing or bad.
          RuntimeError: the pipeline failed otherwise.
        """
        raw = job.raw
        if raw.raw_dir is None:
            for name in raw.files:
                raw.path(name)  # download it here, and not on every worker
        report = job.folder / f"{encoder.split}.beam"
        report.unlink(missing_ok=True)
        pipeline = self._pipeline()
        _add_steps(pipeline, encoder, job, report)
        self._run(pipeline)
        if not report.exists():
            raise _not_shared(job.folder)
        drops, totals, shards = json.loads(report.read_text("utf-8"))
        lengths = {int(n): count for n, count in totals["lengths"].items()}
        return make_split_record(
            encoder,
            Drops(**drops),
            shuffle.Totals(**{**totals, "lengths": Counter(lengths)}),
            [ShardRecord(**shard) for shard in shards],
        )

    def _pipeline(self) -> Any:
        options = PipelineOptions(
            [f"--runner={self.runner}", *self.beam_options]
        )
        name = self.runner.lower().removesuffix("runner")
        if f"{name}runner" in map(str.lower, StandardOptions.LOCAL_RUNNERS):
            # Other runners may have options that only their servers know.
            known = options.get_all_options()
            for name in options.get_all_options(retain_unknown_options=True):
                if name not in known:
                    raise UsageError(
                        f"Apache Beam has no option --{name}."
                        f"{nearest(name, known)}"
                    )
        try:
            return beam.Pipeline(options=options)
        except (ImportError, AttributeError) as error:
            raise T2TLiteError(
                f"--runner={self.runner} cannot be loaded: {error}."
            ) from error
        except ValueError as error:
            reason = "; ".join(str(error).split("\n"))
            raise UsageError(f"--runner={self.runner}: {reason}") from error

    def _run(self, pipeline: Any) -> None:
        try:
            state = pipeline.run().wait_until_finish()
        except Exception as error:
            raise _in_one_line(error, self.runner) from error
        if state not in (None, beam.runners.runner.PipelineState.DONE):
            raise RuntimeError(f"{self.runner} ended with the state {state}")


def _in_one_line(error: Exception, runner: str) -> Exception:
    """Return a one-line error for one that carries a worker's traceback."""
    text = str(error)
    ours = re.findall(
        r"(?:T2TLiteError|UsageError): (.*?)(?: \[while running .*)?$",
        text,
        re.MULTILINE,
    )
    if isinstance(error, T2TLiteError) or ours:
        return T2TLiteError(
            ours[-1] if ours else text.partition(" [while running")[0]
        )
    last = (text.strip().splitlines() or [type(error).__name__])[-1]
    return RuntimeError(f"{runner} failed: {last}")


def _not_shared(folder: pathlib.Path) -> T2TLiteError:
    return T2TLiteError(
        f"All workers must see one --data_dir; the files that they wrote into "
        f"{folder} are not there. Put it on a shared file system."
    )


def _add_steps(
    pipeline: Any,
    encoder: SplitEncoder,
    job: UnfinishedJob,
    report: pathlib.Path,
) -> None:
    """Add the steps of a split; the results of all workers go to `report`."""
    task = pickle_task(encoder, job.raw, job.folder)
    parts = encoder.problem.parts(encoder.split, job.raw)
    chunks = (
        pipeline
        | "Parts" >> beam.Create(list(enumerate(map(pickle.dumps, parts))))
        | "DistributeParts" >> beam.Reshuffle()
        | "Read" >> beam.ParDo(_Read(task))
        | "DistributeChunks" >> beam.Reshuffle()
    )
    starts = beam.pvalue.AsSingleton(
        chunks
        | "Sizes" >> beam.MapTuple(lambda key, pairs: (key, len(pairs)))
        | "AllSizes" >> beam.combiners.ToList()
        | "Number" >> beam.Map(_number_pairs)
    )
    encoded = chunks | "Encode" >> beam.ParDo(
        _Encode(task), starts
    ).with_outputs("drops", main="records")
    shards = (
        encoded.records
        | "GroupByShard" >> beam.GroupByKey()
        | "Write" >> beam.ParDo(_Write(task), starts)
    )
    samples = chunks | "Samples" >> beam.FlatMap(
        _find_copies, starts, beam.pvalue.AsList(shards)
    )
    _ = (
        pipeline
        | "Once" >> beam.Create([report])
        | "Report"
        >> beam.Map(
            _write_report,
            beam.pvalue.AsIter(encoded.drops),
            beam.pvalue.AsIter(shards),
            beam.pvalue.AsIter(samples),
        )
    )


def pickle_task(
    encoder: SplitEncoder, raw: RawFiles, folder: pathlib.Path
) -> bytes:
    """Return the encoder, the corpus' paths and the vocabulary, pickled.

    The modules of the user are pickled, too, unless they are installed.
    """
    quiet = copy.copy(raw)
    quiet.progress = False
    vocabulary = {
        name: (folder / name).read_bytes()
        for name in set(encoder.problem.vocabulary_files().values())
    }
    modules = _user_modules(type(encoder.problem).__module__)
    for module in modules:
        cloudpickle.register_pickle_by_value(module)
    try:
        return cloudpickle.dumps((encoder, quiet, vocabulary, folder))
    finally:
        for module in modules:
            cloudpickle.unregister_pickle_by_value(module)


def _user_modules(name: str) -> list[ModuleType]:
    """Return the package of a module, or the modules in the same folder.

    An installed package has none: the workers have it, too.
    """
    top = name.partition(".")[0]
    if top in (__name__.partition(".")[0], "__main__"):
        return []
    if top in metadata.packages_distributions():
        return []
    package = sys.modules[top]
    if hasattr(package, "__path__"):
        return [package]
    folder = pathlib.Path(package.__file__ or "").parent
    return [
        module
        for name, module in list(sys.modules.items())
        if (file := getattr(module, "__file__", None))
        and pathlib.Path(file).parent == folder
        and module.__name__ == name
    ]


class _Worker(beam.DoFn):
    def __init__(self, task: bytes):
        self._task = task

    def setup(self) -> None:
        task = pickle.loads(self._task)
        self._encoder, self._raw, self._vocabulary, self._folder = task


class _Read(_Worker):
    """A part of the corpus -> (key, pairs) of each of its chunks."""

    def process(self, element: Any) -> Iterator[Any]:
        number, part = element
        encoder = self._encoder
        pairs = encoder.problem.part_samples(
            encoder.split, self._raw, pickle.loads(part)
        )
        label = f"part {number} of {encoder.label}"
        for chunk in split_into_chunks(pairs, label):
            yield (number, chunk.number), chunk.pairs


class _Encode(_Worker):
    """The pairs of a chunk -> (shard, (index, records)), and its drops."""

    def setup(self) -> None:
        super().setup()
        # An encoder may read its file later.
        self._files = tempfile.TemporaryDirectory()
        for name, content in self._vocabulary.items():
            pathlib.Path(self._files.name, name).write_bytes(content)
        self._encoders = self._encoder.problem.load_encoders(self._files.name)

    def teardown(self) -> None:
        self._files.cleanup()

    def process(self, element: Any, starts: Any) -> Iterator[Any]:
        key, pairs = element
        chunk = Chunk(key[1], starts[0][key], pairs)
        index, records, drops = self._encoder.encode(self._encoders, chunk)
        yield beam.pvalue.TaggedOutput("drops", drops)
        shards = shuffle.count_shards(starts[1])
        if chunk.first == 1:  # no shard is missing, even if it is empty
            yield from ((shard, (index[:0], [])) for shard in range(shards))
        shard_of = shuffle.shard_of(
            index["key"], shards, self._encoder.is_shuffled
        )
        for shard in np.unique(shard_of).tolist():
            chosen = np.flatnonzero(shard_of == shard)
            yield shard, (index[chosen], [records[i] for i in chosen.tolist()])


class _Write(_Worker):
    """The batches of a shard -> (totals, record) of its file."""

    def process(self, element: Any, starts: Any) -> Iterator[Any]:
        shard, batches = element
        if not self._folder.is_dir():
            raise _not_shared(self._folder)
        count = shuffle.count_shards(starts[1])
        path = shard_paths(self._encoder, self._folder, count)[shard]
        indices, parts = zip(*batches, strict=True)
        records = [record for part in parts for record in part]
        index = np.concatenate([np.zeros(0, INDEX), *indices])
        yield write_shard(path, self._encoder, index, records)


def _number_pairs(
    sizes: Iterable[tuple[Any, int]],
) -> tuple[dict[Any, int], int]:
    """Return the number of each chunk's first pair, and of all pairs.

    Example: [("b", 5), ("a", 2)] gives {"a": 1, "b": 3}, 7.
    """
    starts, first = {}, 1
    for key, size in sorted(sizes):
        starts[key] = first
        first += size
    return starts, first - 1


def _find_copies(
    element: Any, starts: Any, shards: Iterable[Any]
) -> Iterator[dict[str, Any]]:
    """Yield the samples of duplicates that are in a chunk."""
    key, pairs = element
    first = starts[0][key]
    numbers = sorted(n for totals, _ in shards for n in totals.first_copies)
    for number in numbers[:MOST_SAMPLES]:
        if first <= number < first + len(pairs):
            yield sample_of(number, *pairs[number - first])


def _write_report(
    report: pathlib.Path,
    drops: Iterable[Drops],
    shards: Iterable[tuple[shuffle.Totals, ShardRecord]],
    samples: Iterable[dict[str, Any]],
) -> None:
    """Write what all workers report as JSON, for the process that waits."""
    if not report.parent.is_dir():
        raise _not_shared(report.parent)
    all_drops, all_totals, records = Drops(), shuffle.Totals(), []
    for part in drops:
        all_drops.merge(part)
    for totals, record in shards:
        all_totals.merge(totals)
        records.append(vars(record))
    if copies := all_totals.copies:
        reason = filters.DUPLICATES
        all_drops.merge(Drops({reason: copies}, {reason: list(samples)}))
    records.sort(key=lambda record: record["file"])
    files.write_json(report, [vars(all_drops), vars(all_totals), records])
