"""The input pipeline alone: tokens a second, memory and padding.

    .venv/bin/python benchmarks/reading.py --pairs=1000000

Makes shards of random ids once, in sentences about as long as news (a mean of
28 tokens a side, the target near the source), then reads them in turns: every
record parsed by itself and bucketed by tf.data, which is the plain way; records
parsed in batches and nothing else, a bound; and training_batches, in buckets
and packed.
"""

import argparse
import pathlib
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

MEAN_LENGTH, LENGTH_SPREAD, SIDE_SPREAD = 28, 0.6, 0.2
MAX_POSITIONS, MAX_LENGTH, VOCAB_SIZE = 4096, 256, 32_000


def make_problem() -> Any:
    """Return a problem whose texts are ids, and whose encoder reads them."""
    from t2t_lite.problem import Problem

    class Encoder:
        def encode(self, texts):
            return [np.array(text.split(), np.int32) for text in texts]

    class Ids(Problem):
        name = base_name = "ids"
        pairs = {"train": 0, "dev": 1, "test": 1}

        def samples(self, split, raw):
            generator = np.random.default_rng(0)
            for _ in range(self.pairs[split]):
                mean = generator.lognormal(
                    np.log(MEAN_LENGTH) - LENGTH_SPREAD**2 / 2, LENGTH_SPREAD
                )
                sides = generator.normal(1, SIDE_SPREAD, 2) * mean
                yield tuple(
                    " ".join(map(str, generator.integers(3, VOCAB_SIZE, n)))
                    for n in np.clip(sides, 1, MAX_LENGTH - 1).astype(int)
                )

        def vocabulary_files(self):
            return {"inputs": "ids.vocab", "targets": "ids.vocab"}

        def train_encoders(self, raw, data_dir, seed):
            (pathlib.Path(data_dir) / "ids.vocab").touch()

        def load_encoders(self, directory):
            return {"inputs": Encoder(), "targets": Encoder()}

    return Ids()


def one_by_one(files: list[str]) -> Any:
    """Batches as tf.data alone makes them."""
    import tensorflow as tf

    feature = {
        side: tf.io.VarLenFeature(tf.int64) for side in ("inputs", "targets")
    }

    def parse(record):
        parsed = tf.io.parse_single_example(record, feature)
        return {
            name: tf.cast(tf.sparse.to_dense(value), tf.int32)
            for name, value in parsed.items()
        }

    boundaries = list(range(8, MAX_LENGTH + 1, 8))
    sizes = [max(1, MAX_POSITIONS // b) for b in [*boundaries, MAX_LENGTH]]
    return (
        tf.data.TFRecordDataset(files)
        .map(parse, num_parallel_calls=tf.data.AUTOTUNE)
        .shuffle(65_536)
        .bucket_by_sequence_length(
            lambda pair: tf.maximum(
                tf.size(pair["inputs"]), tf.size(pair["targets"])
            ),
            boundaries,
            sizes,
        )
        .prefetch(16)
    )


def parsing_alone(files: list[str]) -> Any:
    """Return records parsed in batches: ragged, in the files' order."""
    import tensorflow as tf

    feature = {
        side: tf.io.RaggedFeature(tf.int64) for side in ("inputs", "targets")
    }
    return (
        tf.data.TFRecordDataset(files, buffer_size=8 << 20)
        .batch(4096)
        .map(lambda records: tf.io.parse_example(records, feature))
        .prefetch(2)
    )


def tokens_of(batch: Mapping[str, Any]) -> int:
    """Real tokens of a batch, both sides."""
    import tensorflow as tf

    if isinstance(batch["inputs"], tf.RaggedTensor):
        return sum(
            int(tf.size(batch[side].values)) for side in ("inputs", "targets")
        )
    return sum(
        int(np.count_nonzero(batch[side])) for side in ("inputs", "targets")
    )


def tokens_per_second(dataset: Any, tokens: int) -> float:
    """Read until so many tokens came; the first batch starts the clock."""
    batches = iter(dataset)
    next(batches)
    start, seen = time.perf_counter(), 0
    for batch in batches:
        seen += tokens_of(batch)
        if seen >= tokens:
            break
    return seen / (time.perf_counter() - start)


def speeds_in_turns(
    ways: Mapping[str, Callable[[], Any]], tokens: int, rounds: int
) -> dict[str, list[float]]:
    """Return tokens a second of every round, by way: {name: [float]}.

    Args:
      ways: functions that make datasets, by name.
      tokens: to read in a turn.
      rounds: turns of each way.
    """
    speeds = {name: [] for name in ways}
    for _ in range(rounds):
        for name, make in ways.items():
            speeds[name].append(tokens_per_second(make(), tokens))
    return speeds


def print_speeds(speeds: Mapping[str, list[float]]) -> None:
    """Print medians, and how many times as fast as the first each way is."""
    medians = {n: statistics.median(v) for n, v in speeds.items() if v}
    for name, median in medians.items():
        ratio = median / next(iter(medians.values()))
        print(f"{name:18} {median:>12,.0f} tokens/s {ratio:6.2f}x")


def main() -> None:
    """Make the data, reads it in turns and prints medians."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--pairs", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--data_dir", help="kept; default: a temporary one")
    flags = parser.parse_args()
    from t2t_lite.data import pipeline
    from t2t_lite.datagen.generate import DataGenerator

    problem = make_problem()
    problem.pairs["train"] = flags.pairs
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(flags.data_dir or temporary)
        manifest = DataGenerator(problem, folder, processes=1).run()
        train = manifest.splits["train"]
        files = [str(folder / shard.file) for shard in train.shards]
        tokens = train.source_tokens + train.target_tokens
        shape = {"max_positions": MAX_POSITIONS, "max_length": MAX_LENGTH}

        def ours(packing=False):
            return pipeline.training_batches(
                *(folder, problem, manifest),
                seed=1,
                packing=packing,
                **shape,
            )

        ways = {
            "one by one": lambda: one_by_one(files),
            "training_batches": ours,
            "the same, packed": lambda: ours(packing=True),
            "parsing alone": lambda: parsing_alone(files),
        }
        speeds = speeds_in_turns(ways, tokens // 2, flags.rounds)
        print(f"{flags.pairs:,} pairs, {tokens:,} tokens")
        print_speeds(speeds)
        for packing in (False, True):
            report = pipeline.padding_report(
                *(folder, problem, manifest),
                seed=1,
                packing=packing,
                **shape,
            )
            print(f"{'packed' if packing else 'buckets'}: {report}")


if __name__ == "__main__":
    sys.exit(main())
