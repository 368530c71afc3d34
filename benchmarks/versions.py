"""Compare training steps, decoding and data generation with another checkout.

    git worktree add ../before REVISION && make -C ../before install
    python benchmarks/versions.py --before=../before

Each checkout uses its own .venv. They take turns in one run, so quote the
ratios; this checkout is faster if the ratio is above 1.
"""

import argparse
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

from datagen import arguments_for
from side import Side
from training_step import sizes_of

HERE = Path(__file__).parents[1]
DECODING = {
    "vocab_size": 32_000,
    "hidden_size": 512,
    "filter_size": 2048,
    "num_heads": 8,
    "num_hidden_layers": 6,
    "length": 30,
}


def python_of(checkout):
    """Return the interpreter of the environment of a checkout."""
    return str(checkout / ".venv" / "bin" / "python")


def sides(before, script, *arguments):
    """Return the running sides of both checkouts."""
    return [
        Side(
            python_of(checkout),
            str(checkout / "benchmarks" / script),
            *arguments,
        )
        for checkout in (HERE, before)
    ]


def in_turns(name, seconds_of, rounds):
    """Measure both checkouts in turns and print the ratio of the other to ours.

    Args:
      name: the title of the line.
      seconds_of: two functions that time a round, of this checkout first.
      rounds: number of calls of each.
    """
    pairs = [[measure() for measure in seconds_of] for _ in range(rounds)]
    ours, theirs = map(statistics.median, zip(*pairs, strict=True))
    ratios = sorted(their / our for our, their in pairs)
    print(
        f"{name:28} {ours:8.3f} s   before {theirs:8.3f} s   "
        f"{statistics.median(ratios):.2f} times as fast "
        f"({ratios[0]:.2f} to {ratios[-1]:.2f}, {rounds} rounds)",
        flush=True,
    )


def compare_sides(name, before, script, arguments, rounds, steps=1):
    """Compare the steps of a script."""
    running = sides(before, script, *arguments)
    in_turns(name, [lambda s=s: s.seconds(steps) for s in running], rounds)
    for side in running:
        side.close()


def compare_data_generation(before, corpus, rounds):
    """Compare `t2t-lite-datagen` on the files of benchmarks/datagen.py."""

    def generate(checkout):
        with tempfile.TemporaryDirectory() as folder:
            start = time.perf_counter()
            subprocess.run(
                [python_of(checkout), *arguments_for(corpus, Path(folder))],
                check=True,
                cwd=folder,  # else -m imports the package of this checkout
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            return time.perf_counter() - start

    in_turns(
        "data generation",
        [lambda c=c: generate(c) for c in (HERE, before)],
        rounds,
    )


def main():
    """Compare the checkouts."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--before", required=True, type=Path)
    parser.add_argument("--sizes", default="d128,d256,base")
    parser.add_argument("--beams", default="4,1")
    parser.add_argument("--rows", type=int, default=64, help="sentences")
    parser.add_argument(
        "--corpus",
        type=Path,
        help="a folder of benchmarks/datagen.py --folder",
    )
    parser.add_argument("--rounds", type=int, default=7)
    flags = parser.parse_args()
    before = flags.before.resolve()
    for size in filter(None, flags.sizes.split(",")):
        arguments = [sizes_of(size), "float32"]
        compare_sides(
            f"training step, {size}",
            before,
            "train_t2t_lite.py",
            arguments,
            flags.rounds,
            steps=1 if size == "base" else 3,
        )
    for beam in filter(None, flags.beams.split(",")):
        compare_sides(
            f"decoding at base, beam {beam}",
            before,
            "decode_t2t_lite.py",
            [DECODING | {"rows": flags.rows}, int(beam)],
            flags.rounds,
        )
    if flags.corpus:
        compare_data_generation(before, flags.corpus.resolve(), flags.rounds)


if __name__ == "__main__":
    main()
