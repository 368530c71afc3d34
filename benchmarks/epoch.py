"""What training costs beside its updates: input, telemetry, statistics, saving.

    .venv/bin/python benchmarks/epoch.py --raw_dir=FOLDER --data_dir=FOLDER

Each round trains a new run of Multi30k for some updates, as the command does,
and saves as often as it is told. Then it makes the same updates again, of the
same batches, kept in memory, with nothing between them. Evaluations are left
out. Quote the ratios.
"""

import argparse
import os
import statistics
import tempfile
import time

os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")  # as the commands do

# The first updates make graphs and fill buffers.
_BEGIN = 20


class Clock:
    """Wall and processor time, in seconds since the last look."""

    def __init__(self):
        self._last = self._now()

    def _now(self):
        return time.perf_counter(), time.process_time()

    def since(self):
        """The two since the last call."""
        now, before = self._now(), self._last
        self._last = now
        return tuple(a - b for a, b in zip(now, before, strict=True))


def one_round(flags):
    """Wall and processor seconds: of training, of the updates alone."""
    import t2t_lite
    from t2t_lite.training.optimizer.updates import Updater

    clock, made = Clock(), []
    update = Updater.update

    def recorded(self, micro_batches, step, between_passes=None):
        if step == _BEGIN:
            clock.since()
        made.append((self, micro_batches, step))
        stats = update(self, micro_batches, step, between_passes)
        if step == flags.updates:
            stats.read()
            recorded.training = clock.since()
        return stats

    Updater.update = recorded
    try:
        with tempfile.TemporaryDirectory() as folder:
            t2t_lite.train(
                problem="multi30k_ende",
                hparams=flags.hparams,
                raw_dir=flags.raw_dir,
                data_dir=flags.data_dir,
                output_dir=folder,
                train_steps=flags.updates,
                eval_steps_every=10 * flags.updates,
                save_steps=flags.save_steps,
            )
    finally:
        Updater.update = update
    clock.since()
    for updater, micro_batches, step in made[_BEGIN - 1 :]:
        stats = updater.update(micro_batches, step)
    stats.read()
    return recorded.training, clock.since()


def main():
    """Prints both for each round, and the median ratios."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--hparams", default="transformer_multi30k")
    parser.add_argument("--raw_dir")
    parser.add_argument("--data_dir")
    parser.add_argument("--updates", type=int, default=200)
    parser.add_argument("--save_steps", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=3)
    flags = parser.parse_args()
    rounds = [one_round(flags) for _ in range(flags.rounds)]
    for name, kind in (("wall", 0), ("processor", 1)):
        ratios = sorted(whole[kind] / bare[kind] for whole, bare in rounds)
        whole, bare = (
            statistics.median(seconds[kind] for seconds in both)
            for both in zip(*rounds, strict=True)
        )
        print(
            f"{name:9} training {whole:6.1f} s   updates alone {bare:6.1f} s   "
            f"ratio {statistics.median(ratios):.3f} "
            f"({ratios[0]:.3f} to {ratios[-1]:.3f}, {flags.rounds} rounds)"
        )


if __name__ == "__main__":
    main()
