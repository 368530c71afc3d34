"""What a training step costs by length, vocabulary and layers.

    .venv/bin/python benchmarks/shapes.py --results=RESULTS --svg=shapes.svg

Whole steps of the d 256 model in float32, each length of as many positions.
Every point is a process of its own; they take turns, and its least time
counts. Beside it stands the arithmetic, the FLOPs that `t2t-lite-registry`
counts, as if all of them went as fast as the first point's. Axes that are
measured one after the other meet in RESULTS, and the plot shows all it has.
"""

import argparse
import json
import sys
from pathlib import Path

from figure import Curve, Panel, svg
from side import Side
from training_step import hparams_of, sizes_of

SCRIPT = str(Path(__file__).parent / "train_t2t_lite.py")
POSITIONS = 2048  # a side
WINDOW = 64
AXES = {
    "length": (32, 64, 128, 256, 512, 1024),
    "length, restricted": (128, 256, 512, 1024),
    "vocabulary": (4000, 8000, 16000, 32000, 64000),
    "layers": (1, 2, 4, 6),
}
TICKS = {
    "length": (32, 256, 512, 1024),
    "vocabulary": (4000, 16000, 32000, 64000),
    "layers": (1, 2, 4, 6),
}


def point(axis, value):
    """The sizes of one point, as its side is told them."""
    sizes = sizes_of("d256")
    if axis == "vocabulary":
        return sizes | {"vocab_size": value}
    if axis == "layers":
        return sizes | {"num_hidden_layers": value}
    sizes |= {"length": value, "rows": POSITIONS // value}
    return sizes | {"attention_window": None if axis == "length" else WINDOW}


def flops(sizes):
    """Those of a step."""
    from t2t_lite.model.costs import count_training_flops

    tokens, length = sizes["rows"] * sizes["length"], sizes["length"]
    return count_training_flops(
        hparams_of(sizes),
        sizes["vocab_size"],
        *(tokens, tokens, length, length),
    )


def measure(axis, rounds):
    """The seconds and the FLOPs of each of an axis' points."""
    points = [point(axis, value) for value in AXES[axis]]
    sides = [Side(sys.executable, SCRIPT, p, "float32") for p in points]
    times = [[side.seconds(1) for side in sides] for _ in range(rounds)]
    for side in sides:
        side.close()
    least = map(min, zip(*times, strict=True))
    return list(zip(least, map(flops, points), strict=True))


def draw(results):
    """A panel for each axis: measured, and dashed the arithmetic."""
    panels = {}
    for axis, points in results.items():
        name, restricted, _ = axis.partition(", restricted")
        color = int(bool(restricted))
        panel = panels.setdefault(name, Panel(name, TICKS[name], []))
        label = f"restricted to {WINDOW}" if restricted else "measured"
        seconds, counts = zip(*points, strict=True)
        rate = counts[0] / seconds[0]
        measured = [1e3 * second for second in seconds]
        counted = [1e3 * count / rate for count in counts]
        panel.curves.extend(
            [
                Curve(AXES[axis], measured, color, label),
                Curve(AXES[axis], counted, color, dashed=True),
            ]
        )
    return svg(panels.values(), "ms a step")


def main():
    """Measures, prints and draws."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--axes", help="of these, separated by semicolons")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--results", type=Path, help="keeps what is measured")
    parser.add_argument("--svg", type=Path, help="gets the plot")
    flags = parser.parse_args()
    results = {}
    if flags.results and flags.results.exists():
        results = json.loads(flags.results.read_text())
    for axis in AXES if flags.axes is None else flags.axes.split(";"):
        results[axis] = measure(axis, flags.rounds)
        first_seconds, first_flops = results[axis][0]
        for value, (seconds, count) in zip(
            AXES[axis], results[axis], strict=True
        ):
            print(
                f"{axis:18} {value:6}   {seconds * 1e3:7.0f} ms   "
                f"{count / seconds / 1e9:5.0f} GFLOP/s   "
                f"time {seconds / first_seconds:5.2f}   "
                f"FLOPs {count / first_flops:5.2f}",
                flush=True,
            )
    # In their order, whichever was measured first.
    results = {axis: results[axis] for axis in AXES if axis in results}
    if flags.results:
        flags.results.write_text(json.dumps(results))
    if flags.svg:
        flags.svg.write_text(draw(results))


if __name__ == "__main__":
    main()
