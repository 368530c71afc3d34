"""Memory, files and threads of one long training: do they stay as they are?

    .venv/bin/python benchmarks/long_run.py --rounds=300

Each round is a few updates, a checkpoint and an evaluation on dev with
translations, as a day of training has some hundreds of. Prints a line every
tenth of the way, and at the end by how much each has grown since a warm-up of
a fifth of the rounds.
"""

import argparse
import json
import os
import pathlib
import sys
import tempfile
import threading

UPDATES = 4  # a round
WARM_UP = 0.2  # of the rounds


class Counts:
    """What a process holds, noted at each evaluation."""

    def __init__(self):
        self.noted = []

    def note(self):
        """Looks at the process as it is."""
        status = pathlib.Path("/proc/self/status").read_text()
        (resident,) = (
            int(line.split()[1])
            for line in status.splitlines()
            if line.startswith("VmRSS")
        )
        self.noted.append(
            {
                "megabytes": round(resident / 1024, 1),
                "files": len(os.listdir("/proc/self/fd")),
                "threads": len(os.listdir("/proc/self/task")),
                "python_threads": threading.active_count(),
            }
        )

    def growth(self):
        """The last fifth beside the first one after the warm-up."""
        warm = self.noted[round(len(self.noted) * WARM_UP) :]
        part = max(1, len(warm) // 5)
        return {
            name: (
                max(each[name] for each in warm[:part]),
                max(each[name] for each in warm[-part:]),
            )
            for name in warm[0]
        }


def train(folder, rounds, counts):
    """Trains a small run for so many rounds; counts at each evaluation."""
    import t2t_lite
    from t2t_lite.training.validation import DevEvaluation

    scores = DevEvaluation.scores

    def counting(evaluation, shares):
        counts.note()
        done = len(counts.noted)
        if done % max(1, rounds // 10) == 0:
            told = json.dumps({"round": done, **counts.noted[-1]})
            print(told, file=sys.stderr)
        return scores(evaluation, shares)

    DevEvaluation.scores = counting
    t2t_lite.train(
        "long_run",
        t2t_lite.HParams(
            hidden_size=16,
            filter_size=32,
            num_heads=2,
            num_hidden_layers=1,
            max_length=64,
            batch_tokens=1024,
            micro_batches=2,
            warmup_steps=100,
            learning_rate=0.1,
            average_checkpoints=2,
            extra_decode_length=5,
        ),
        data_dir=folder / "data",
        output_dir=folder / "run",
        train_steps=rounds * UPDATES,
        eval_steps_every=UPDATES,
        save_steps=UPDATES,
        keep_checkpoints=3,
        log_steps=UPDATES,
    )


def register():
    """A problem of 200 lines: an epoch is less than a round."""
    from t2t_lite import Text2TextProblem
    from t2t_lite.registry import register_problem

    @register_problem("long_run")
    class LongRun(Text2TextProblem):
        """Digits, copied."""

        vocab_size = 280

        def samples(self, split, raw):
            """Yields pairs of the same text."""
            start, count = {"train": (0, 150), "dev": (150, 40)}.get(
                split, (190, 10)
            )
            for number in range(start, start + count):
                digits = " ".join(str(number * 37))
                yield digits, digits


def main():
    """Trains as the flags say and prints the growth."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=300)
    args = parser.parse_args()
    register()
    counts = Counts()
    with tempfile.TemporaryDirectory() as folder:
        train(pathlib.Path(folder), args.rounds, counts)
    print(json.dumps({"rounds": args.rounds, **counts.growth()}))


if __name__ == "__main__":
    main()
