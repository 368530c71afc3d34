"""Write the splits with Apache Beam on several machines.

One worker reads a split in chunks, and all workers encode the chunks. For each
shard a worker collects, sorts and writes the records. The files are identical
to the files of one machine. The corpus, the data folder and the user's modules
must have the same paths on all machines.
"""

import copy
import dataclasses
import pickle
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from t2t_lite import files
from t2t_lite.corpus.download import RawFiles
from t2t_lite.data.manifest import SplitRecord
from t2t_lite.datagen import encode, generate, shuffle
from t2t_lite.errors import (
    T2TLiteError,
    UsageError,
    did_you_mean,
    requires_extra,
)

with requires_extra("beam"):
    import apache_beam as beam
    from apache_beam.options import pipeline_options


@dataclasses.dataclass
class BeamGeneration(generate.DataGenerator):
    """A data generator that writes the splits with Apache Beam."""

    # Beam's name of a runner ("Runner" and capitals are optional), or the full
    # name of a class; and options such as "--flink_master=localhost:8081".
    runner: str = "DirectRunner"
    beam_options: Sequence[str] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        self._pipeline()  # raises errors of options before any work

    def write_split(
        self, encoder: encode.SplitEncoder, job: generate.UnfinishedJob
    ) -> SplitRecord:
        """Write the shards of a split into the folder of the job."""
        if job.raw.raw_dir is None:
            for name in job.raw.files:
                job.raw.path(name)  # download here, not on a worker
        # Record the source files and compute the held-out pairs.
        next(iter(encoder.problem.samples(encoder.split, job.raw)), None)
        report = job.folder / f"{encoder.split}.beam"
        report.unlink(missing_ok=True)
        pipeline = self._pipeline()
        _add_steps(pipeline, encoder, job, report)
        try:
            state = pipeline.run().wait_until_finish()
        except Exception as error:
            raise _summarize_error(error, self.runner) from error
        if state not in (None, beam.runners.runner.PipelineState.DONE):
            raise RuntimeError(f"{self.runner} ended with the state {state}")
        if not report.exists():
            raise _not_shared_error(job.folder)
        chunks, shards = pickle.loads(report.read_bytes())
        return generate.make_split_record(encoder, chunks, shards)

    def _pipeline(self) -> Any:
        words = [f"--runner={self.runner}", *self.beam_options]
        options = pipeline_options.PipelineOptions(words)
        name = self.runner.lower().removesuffix("runner")
        local = pipeline_options.StandardOptions.LOCAL_RUNNERS
        if f"{name}runner" in map(str.lower, local):
            # Other runners may have options that only their servers define.
            known = options.get_all_options()
            for name in options.get_all_options(retain_unknown_options=True):
                if name not in known:
                    raise UsageError(
                        f"Apache Beam has no option --{name}."
                        f"{did_you_mean(name, known)}"
                    )
        try:
            return beam.Pipeline(options=options)
        except (ImportError, AttributeError) as error:
            raise T2TLiteError(
                f"`runner={self.runner}` cannot be loaded: {error}."
            ) from error
        except ValueError as error:
            reason = "; ".join(str(error).split("\n"))
            raise UsageError(f"`runner={self.runner}`: {reason}") from error


def _summarize_error(error: Exception, runner: str) -> Exception:
    lines = str(error).strip().splitlines() or [type(error).__name__]
    for line in reversed(lines):
        line = line.partition(" [while running")[0]
        name, _, message = line.partition("Error: ")
        if name.endswith(("T2TLite", "Usage")):
            return T2TLiteError(message)
        if isinstance(error, T2TLiteError):
            return T2TLiteError(line)
    return RuntimeError(f"{runner} failed: {lines[-1]}")


def _not_shared_error(folder: Path) -> T2TLiteError:
    return T2TLiteError(
        f"All workers must share `data_dir`; {folder} is not shared. Use a "
        "shared file system."
    )


def _add_steps(pipeline, encoder, job, report):
    """Add the steps of a split; `report` receives the results of workers."""
    raw = copy.copy(job.raw)
    raw.progress = False
    task = encoder, raw, job.folder
    chunks = (
        pipeline
        | "Start" >> beam.Create([encoder.split])
        | "Read" >> beam.ParDo(_Read(*task))
        | "Distribute" >> beam.Reshuffle()
    )
    pairs = beam.pvalue.AsSingleton(
        chunks
        | "Sizes" >> beam.Map(lambda chunk: len(chunk.pairs))
        | "Sum" >> beam.CombineGlobally(sum)
    )
    encoded = chunks | "Encode" >> beam.ParDo(
        _Encode(*task), pairs
    ).with_outputs("counts", main="records")
    shards = (
        encoded.records
        | "GroupByShard" >> beam.GroupByKey()
        | "Write" >> beam.ParDo(_Write(*task), pairs)
    )
    results = map(beam.pvalue.AsIter, (encoded.counts, shards))
    once = pipeline | "Once" >> beam.Create([report])
    _ = once | "Report" >> beam.Map(_write_report, *results)


class _Worker(beam.DoFn):
    """Base class of steps with the encoder, the corpus and the job's folder."""

    def __init__(
        self, encoder: encode.SplitEncoder, raw: RawFiles, folder: Any
    ):
        # Pickled here because only `setup` makes the user's modules importable.
        self._modules = encode.module_folder(encoder.problem)
        self._pickled = pickle.dumps((encoder, raw, folder))

    def setup(self) -> None:
        if self._modules not in sys.path:
            sys.path.append(self._modules)
        self._encoder, self._raw, self._folder = pickle.loads(self._pickled)
        if not self._folder.is_dir():
            raise _not_shared_error(self._folder)


class _Read(_Worker):
    """Any element -> the chunks of the split."""

    def process(self, element: Any) -> Iterator[Any]:
        encoder = self._encoder
        pairs = encoder.problem.samples(encoder.split, self._raw)
        return encode.split_into_chunks(pairs, encoder.label)


class _Encode(_Worker):
    """A chunk -> (shard, (index, records)); output "counts": its counts."""

    def setup(self) -> None:
        super().setup()
        self._encoders = self._encoder.problem.load_encoders(self._folder)

    def process(self, element: Any, pairs: int) -> Iterator[Any]:
        index, records, counts = self._encoder.encode(self._encoders, element)
        yield beam.pvalue.TaggedOutput("counts", counts)
        count = shuffle.count_shards(pairs)
        is_shuffled = self._encoder.is_shuffled
        shards = shuffle.shard_of(index["key"], count, is_shuffled)
        for shard in range(count):
            selected = np.flatnonzero(shards == shard)
            if len(selected) or element.number == 0:  # create empty shards, too
                batch = [records[i] for i in selected.tolist()]
                yield shard, (index[selected], batch)


class _Write(_Worker):
    """The batches of a shard -> the counts and the record of its file."""

    def process(self, element: Any, pairs: int) -> Iterator[Any]:
        shard, batches = element
        count = shuffle.count_shards(pairs)
        path = generate.shard_paths(self._encoder, self._folder, count)[shard]
        indices, batches = zip(*batches, strict=True)
        records = [record for batch in batches for record in batch]
        index = np.concatenate([np.zeros(0, encode.INDEX), *indices])
        yield generate.write_shard(path, self._encoder, index, records)


def _write_report(report, chunks, shards):
    if not report.parent.is_dir():
        raise _not_shared_error(report.parent)
    shards = sorted(shards, key=lambda shard: shard[1].file)
    with files.write_file(report) as file:
        pickle.dump((list(chunks), shards), file)
