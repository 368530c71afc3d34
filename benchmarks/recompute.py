"""What `--recompute` saves in memory, and what it costs in time.

    .venv/bin/python benchmarks/recompute.py --sizes=base --rows=4 --length=256

Whole training steps in float32, with and without it, each in a process of
its own; they take turns, so quote the ratio. Memory is the peak of a process.
"""

import argparse
import statistics
import sys
from pathlib import Path

from side import Side
from training_step import sizes_of

SCRIPT = str(Path(__file__).parent / "train_t2t_lite.py")


def main():
    """Prints seconds and memory of both, and the ratios."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--sizes", default="base")
    parser.add_argument("--rows", type=int, default=4)
    parser.add_argument("--length", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=5)
    flags = parser.parse_args()
    sizes = sizes_of(flags.sizes) | {"rows": flags.rows, "length": flags.length}
    sides = [
        Side(sys.executable, SCRIPT, sizes, "float32", recompute)
        for recompute in (False, True)
    ]
    pairs = [[side.seconds(1) for side in sides] for _ in range(flags.rounds)]
    for side, name, seconds in zip(
        sides, ("kept", "recomputed"), zip(*pairs, strict=True), strict=True
    ):
        mebibytes = side.value["peak_bytes"] / 2**20
        median = statistics.median(seconds)
        print(f"{name:10} {median:6.2f} s   {mebibytes:6,.0f} MiB")
        side.close()
    ratios = sorted(again / kept for kept, again in pairs)
    print(
        f"time: {statistics.median(ratios):.2f} times "
        f"({ratios[0]:.2f} to {ratios[-1]:.2f}, {flags.rounds} rounds)"
    )


if __name__ == "__main__":
    main()
