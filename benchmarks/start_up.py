"""From the trainer's command to its second update.

    .venv/bin/python benchmarks/start_up.py --problem=spellout_ende \
        --hparams=transformer_base --data_dir=FOLDER

Seconds of the processor: until TensorFlow is imported and the model built;
and from there to the end of the second update, without what the two updates
themselves take: reading settings, checking the data, making the graphs. A run
that begins and one that goes on, each in a process of its own. The data must
be there already. Updates are small, so that little else is measured. What a
run that goes on saves in building the model, whose weights it reads, counts
for it: both are beside the building of a run that begins.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from statistics import median


def train(arguments):
    """The trainer, until its fifth update; prints what it took."""
    from t2t_lite.bin import trainer
    from t2t_lite.training.optimizer.updates import Updater

    marks = {"updates": []}
    begin, update = Updater.__init__, Updater.update

    def built(self, *args, **options):
        marks.setdefault("built", time.process_time())
        begin(self, *args, **options)

    def timed(self, *args, **options):
        start = time.process_time()
        stats = update(self, *args, **options).read()
        marks["updates"].append((start, time.process_time()))
        if len(marks["updates"]) == 5:
            leave(marks)
        return stats

    Updater.__init__, Updater.update = built, timed
    sys.argv = ["t2t-lite-trainer", *arguments]
    trainer.main()


def leave(marks):
    """Ends the process, of which nothing more is needed."""
    _, (_, second), *others = marks["updates"]
    own = median(end - start for start, end in others)
    rest = second - marks["built"] - 2 * own
    print("\n" + json.dumps({"built": marks["built"], "rest": rest}))
    sys.stdout.flush()
    os._exit(0)


def measure(arguments):
    """What a process of `train` printed."""
    command = [sys.executable, __file__, "--train", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(done.stdout.rsplit("\n", 2)[-2])


def main():
    """Prints medians of both kinds of start."""
    if "--train" in sys.argv:
        train(sys.argv[2:])
        return
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--problem", default="spellout_ende")
    parser.add_argument("--hparams", default="transformer_base")
    parser.add_argument("--data_dir", required=True)
    parser.add_argument("--rounds", type=int, default=3)
    flags = parser.parse_args()
    found = {"begins": [], "goes on": []}
    for _ in range(flags.rounds):
        with tempfile.TemporaryDirectory() as folder:
            for name in found:
                found[name].append(
                    measure(
                        [
                            f"--problem={flags.problem}",
                            f"--hparams={flags.hparams}",
                            f"--data_dir={flags.data_dir}",
                            f"--output_dir={folder}/run",
                            "--hparams_override=batch_tokens=256,max_length=64",
                            "--save_steps=2",
                        ]
                    )
                )
    built = median(mark["built"] for mark in found["begins"])
    for name, marks in found.items():
        rest = median(mark["built"] + mark["rest"] for mark in marks) - built
        print(
            f"a run that {name:8} imported and built {built:5.1f} s   "
            f"the rest {rest:5.1f} s   ratio {rest / built:.2f}"
        )


if __name__ == "__main__":
    main()
