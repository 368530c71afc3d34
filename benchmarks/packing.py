"""Whole training steps on packed rows and on buckets, in turns.

    .venv/bin/python benchmarks/packing.py --max_length=256

The corpus is that of reading.py: random ids in sentences about as long as news.
Both sides have the same model, hparams and bound of positions; a step is one
update of one pass, dropout 0.1 and label smoothing 0.1, reading included. What
counts is real target tokens a second. Quote the ratio.
"""

import argparse
import os
import pathlib
import statistics
import sys
import tempfile
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")  # as the commands do

import reading

SIZES = {
    "d128": (128, 256, 4, 4),
    "d256": (256, 1024, 4, 3),
    "base": (512, 2048, 8, 6),
}


class Trained:
    """A model in training on one kind of batches.

    Args:
      hparams: its sizes and batches.
      data: folder, problem and manifest.
    """

    def __init__(self, hparams, data):
        from t2t_lite.data.input_pipeline import training_batches
        from t2t_lite.model.transformer import Transformer
        from t2t_lite.training.distribute import choose_strategy
        from t2t_lite.training.optimizer.updates import Updater

        vocab_size = reading.VOCAB_SIZE
        model = Transformer.from_hparams(hparams, vocab_size, vocab_size)
        self._updater = Updater(
            model.build_weights(), hparams, choose_strategy(), seed=1
        )
        self._batches = iter(
            training_batches(
                *data,
                max_positions=hparams.batch_tokens,
                max_length=hparams.max_length,
                seed=1,
                packing=hparams.packing,
            )
        )
        self._step = 0

    def tokens_per_second(self, steps):
        """Real target tokens a second, the mean of so many steps."""
        start, tokens = time.perf_counter(), 0.0
        for _ in range(steps):
            self._step += 1
            batch = next(self._batches)
            stats = self._updater.update([batch], self._step)
            tokens += stats.read().target_tokens
        return tokens / (time.perf_counter() - start)


def main():
    """Trains both sides in turns and prints medians and their ratio."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--size", choices=SIZES, default="d256")
    parser.add_argument("--max_length", type=int, default=256)
    parser.add_argument("--max_positions", type=int, default=4096)
    parser.add_argument("--vocab_size", type=int, default=8000)
    parser.add_argument("--pairs", type=int, default=65_536)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=7)
    flags = parser.parse_args()
    from t2t_lite.data.padding import padding_report
    from t2t_lite.datagen.generate import Generation
    from t2t_lite.hparam import HParams

    hidden, filter_size, heads, layers = SIZES[flags.size]
    hparams = HParams(
        hidden_size=hidden,
        filter_size=filter_size,
        num_heads=heads,
        num_hidden_layers=layers,
        max_length=flags.max_length,
        batch_tokens=flags.max_positions,
        micro_batches=1,
    )
    reading.VOCAB_SIZE = flags.vocab_size
    problem = reading.make_problem()
    problem.pairs["train"] = flags.pairs
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        data = folder, problem, Generation(problem, folder, processes=1).run()
        sides = {}
        for name, packing in (("buckets", False), ("packed", True)):
            report = padding_report(
                *data,
                max_positions=flags.max_positions,
                max_length=flags.max_length,
                packing=packing,
            )
            print(f"{name:8} {report}; {report.shapes} shapes", flush=True)
            sides[name] = Trained(hparams.replace(packing=packing), data)
            sides[name].tokens_per_second(2)
        speeds = [
            [side.tokens_per_second(flags.steps) for side in sides.values()]
            for _ in range(flags.rounds)
        ]
    for name, values in zip(sides, zip(*speeds, strict=True), strict=True):
        median = statistics.median(values)
        print(f"{name:8} {median:10,.0f} real target tokens/s")
    ratios = sorted(packed / buckets for buckets, packed in speeds)
    print(
        f"packed / buckets: {statistics.median(ratios):.2f} "
        f"({ratios[0]:.2f} to {ratios[-1]:.2f}, {flags.rounds} rounds)"
    )


if __name__ == "__main__":
    sys.exit(main())
