"""Measure the input pipeline: tokens per second and padding.

    python benchmarks/reading.py --pairs=300000

Readers take turns on the shards of benchmarks/datagen.py: tf.data that parses
and buckets record by record, our batches in buckets and packed, and parsing in
batches and nothing else, an upper bound.
"""

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import tensorflow as tf
from datagen import arguments_for, write_corpus

from t2t_lite import registry
from t2t_lite.data import pipeline
from t2t_lite.data.manifest import Manifest
from t2t_lite.plugins import load_plugins

SIDES = ("inputs", "targets")
MAX_POSITIONS, MAX_LENGTH = 4096, 256


def read_records(files):
    """Return batches that tf.data parses and buckets record by record."""
    feature = {side: tf.io.VarLenFeature(tf.int64) for side in SIDES}

    def parse(record):
        parsed = tf.io.parse_single_example(record, feature)
        return {
            name: tf.cast(tf.sparse.to_dense(value), tf.int32)
            for name, value in parsed.items()
        }

    boundaries = list(range(8, MAX_LENGTH + 1, 8))
    return (
        tf.data.TFRecordDataset(files)
        .map(parse, num_parallel_calls=tf.data.AUTOTUNE)
        .shuffle(65_536)
        .bucket_by_sequence_length(
            lambda pair: tf.reduce_max([tf.size(pair[side]) for side in SIDES]),
            boundaries,
            [max(1, MAX_POSITIONS // b) for b in [*boundaries, MAX_LENGTH]],
        )
        .prefetch(16)
    )


def parse_batches(files):
    """Return records parsed in batches, ragged and in the order of files."""
    feature = {side: tf.io.RaggedFeature(tf.int64) for side in SIDES}
    return (
        tf.data.TFRecordDataset(files, buffer_size=8 << 20)
        .batch(4096)
        .map(lambda records: tf.io.parse_example(records, feature))
        .prefetch(2)
    )


def tokens_per_second(dataset, tokens):
    """Return the speed of reading this many tokens after the first batch."""
    batches = iter(dataset)
    next(batches)
    start, count = time.perf_counter(), 0
    while count < tokens:
        for ids in map(next(batches).get, SIDES):
            ragged = isinstance(ids, tf.RaggedTensor)
            count += tf.size(ids.values) if ragged else np.count_nonzero(ids)
    return float(count) / (time.perf_counter() - start)


def main():
    """Print the median speed of each reader, and the padding of ours."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--pairs", type=int, default=300_000)
    parser.add_argument("--rounds", type=int, default=5)
    flags = parser.parse_args()
    load_plugins()
    problem = registry.problem("text")
    with tempfile.TemporaryDirectory() as temporary:
        corpus, data = Path(temporary), Path(temporary, "data")
        write_corpus(corpus, flags.pairs)
        command = [sys.executable, *arguments_for(corpus, data)]
        subprocess.run(command, check=True)
        manifest = Manifest.load(data, problem)
        train = manifest.split("train")
        files = [str(data / shard.file) for shard in train.shards]
        ours = {
            name: (
                {"seed": 1, "packing": packing, "max_length": MAX_LENGTH}
                | {"max_positions": MAX_POSITIONS}
            )
            for name, packing in (("in buckets", False), ("packed", True))
        }
        readers = {
            "record by record": lambda: read_records(files),
            **{
                name: lambda o=options: pipeline.training_batches(
                    data, problem, manifest, **o
                )
                for name, options in ours.items()
            },
            "parsing only": lambda: parse_batches(files),
        }
        speeds = {name: [] for name in readers}
        tokens = (train.source_tokens + train.target_tokens) // 2
        for _ in range(flags.rounds):
            for name, read in readers.items():
                speeds[name].append(tokens_per_second(read(), tokens))
        for name, each in speeds.items():
            print(
                f"{name:18} {statistics.median(each):>12,.0f} tokens/s "
                f"({min(each):,.0f} to {max(each):,.0f})"
            )
        for name, options in ours.items():
            report = pipeline.padding_report(data, problem, manifest, **options)
            print(f"{name}: {report}")


if __name__ == "__main__":
    main()
