"""Table 1, measured: what layers cost against length n and width d.

    .venv/bin/pip install matplotlib
    .venv/bin/python benchmarks/layer_types.py --png=layer_types.png

Each layer maps [1, n, d] to [1, n, d]. As table 1 counts, attention is the
weighting alone, without the projections of queries, keys, values and output,
which cost 4 n d^2 in each kind of it. Time is the median of a forward pass in
a graph; memory is by how much the peak of a process rises above what it was
before the first pass, each length in a process of its own.
"""

import argparse
import json
import math
import os
import pathlib
import statistics
import subprocess
import sys
import time

HEADS, REACH, KERNEL = 8, 32, 3
# A layer's name, and its exponents of n and of d in table 1.
LAYERS = {
    "self-attention": ("n^2 d", 2, 1),
    "restricted": ("r n d", 1, 1),
    "recurrent": ("n d^2", 1, 2),
    "convolution": ("k n d^2", 1, 2),
    "separable": ("k n d + n d^2", 1, 2),
}
LENGTHS = (128, 256, 512, 1024, 2048, 4096)
WIDTHS = (64, 128, 256, 512, 1024)


def make_layer(name, width):
    """A function of float [1, n, d]."""
    import keras
    import tensorflow as tf

    from t2t_lite.model.layers.window import attend_window

    def heads(x):
        length = tf.shape(x)[1]
        x = tf.reshape(x, [1, length, HEADS, width // HEADS])
        return tf.transpose(x, [0, 2, 1, 3])

    def attend(x):
        x = heads(x)
        return tf.nn.softmax(tf.matmul(x, x, transpose_b=True)) @ x

    def attend_near(x):
        x = heads(x)
        return attend_window(x, x, x, None, REACH, causal=False)

    return {
        "self-attention": attend,
        "restricted": attend_near,
        "recurrent": keras.layers.LSTM(width, return_sequences=True),
        "convolution": keras.layers.Conv1D(width, KERNEL, padding="same"),
        "separable": keras.layers.SeparableConv1D(
            width, KERNEL, padding="same"
        ),
    }[name]


def work(name, width, length):
    """Prints seconds and the rise of the peak in bytes, as JSON."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")
    import tensorflow as tf

    layer = make_layer(name, width)
    layer(tf.zeros([1, 2, width]))  # makes the weights
    step = tf.function(
        lambda x: tf.reduce_sum(layer(x)),
        input_signature=[tf.TensorSpec([1, None, width])],
        autograph=False,
    )
    step(tf.zeros([1, 2, width])).numpy()  # makes the graph
    x = tf.random.normal([1, length, width])
    # Linux: from here on, the peak is that of the passes.
    pathlib.Path("/proc/self/clear_refs").write_text("5")
    before = _memory("VmRSS")
    seconds = []
    while len(seconds) < 3 or (sum(seconds) < 1 and len(seconds) < 50):
        start = time.perf_counter()
        step(x).numpy()
        seconds.append(time.perf_counter() - start)
    print(
        json.dumps(
            {
                "seconds": statistics.median(seconds),
                "bytes": _memory("VmHWM") - before,
            }
        )
    )


def _memory(key):
    """Bytes of this process: VmRSS is resident now, VmHWM its peak."""
    status = pathlib.Path("/proc/self/status").read_text()
    (line,) = (x for x in status.splitlines() if x.startswith(f"{key}:"))
    return int(line.split()[1]) * 1024


def measure(lengths, widths):
    """`{(layer, width, length): {"seconds", "bytes"}}`."""
    results = {}
    for name in LAYERS:
        for width in widths:
            for length in lengths:
                place = (name, width, length)
                out = subprocess.run(
                    [sys.executable, __file__, "--work", *map(str, place)],
                    check=True,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                    text=True,
                ).stdout
                results[place] = json.loads(out.splitlines()[-1])
                print(*place, results[place], flush=True)
    return results


def exponent(points):
    """The slope of log y over log x, by least squares."""
    logs = [(math.log(x), math.log(max(y, 1e-12))) for x, y in points]
    mean_x, mean_y = (statistics.mean(v) for v in zip(*logs, strict=True))
    return sum((x - mean_x) * (y - mean_y) for x, y in logs) / sum(
        (x - mean_x) ** 2 for x, _ in logs
    )


def report(results, lengths, widths):
    """Prints fitted exponents beside table 1's, and the crossings."""
    far, wide = lengths[len(lengths) // 2 :], widths[len(widths) // 2 :]
    print(
        f"\nExponents of time and of memory, fitted over n = {far} at d = "
        f"{wide[-1]} and over d = {wide} at n = {lengths[-1]}"
    )
    print(
        f"{'':16} {'table 1':16} {'time n':>14} {'time d':>14} "
        f"{'memory n':>9} {'memory d':>9}"
    )
    for name, (formula, of_n, of_d) in LAYERS.items():
        along_n = [(n, results[name, wide[-1], n]) for n in far]
        along_d = [(d, results[name, d, lengths[-1]]) for d in wide]
        time_n, time_d = (
            exponent([(x, point["seconds"]) for x, point in points])
            for points in (along_n, along_d)
        )
        memory_n, memory_d = (
            exponent([(x, point["bytes"] + 1) for x, point in points])
            for points in (along_n, along_d)
        )
        print(
            f"{name:16} {formula:16} {time_n:8.2f} ({of_n:>3}) "
            f"{time_d:8.2f} ({of_d:>3}) {memory_n:9.2f} {memory_d:9.2f}"
        )
    print("\nThe longest measured n at which self-attention takes less time")
    for other in LAYERS:
        if other == "self-attention":
            continue
        best = {
            width: max(
                (
                    n
                    for n in lengths
                    if results["self-attention", width, n]["seconds"]
                    < results[other, width, n]["seconds"]
                ),
                default=0,
            )
            for width in widths
        }
        shown = ", ".join(
            f"d {d}: {'never' if not n else n if n < lengths[-1] else 'always'}"
            for d, n in best.items()
        )
        print(f"  than {other:14} {shown}")


def draw(results, lengths, widths, path):
    """Time and memory, against n at the widest d and d at the longest n."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(2, 2, figsize=(11, 9))
    axes = axes.flatten()
    for name, (formula, *_) in LAYERS.items():
        label = f"{name}, O({formula})"
        along_n = [results[name, widths[-1], n] for n in lengths]
        along_d = [results[name, d, lengths[-1]] for d in widths]
        for axis, points, xs in (
            (0, along_n, lengths),
            (2, along_d, widths),
        ):
            times = [point["seconds"] * 1e3 for point in points]
            sizes = [point["bytes"] / 2**20 for point in points]
            axes[axis].plot(xs, times, "o-", label=label)
            axes[axis + 1].plot(xs, sizes, "o-", label=label)
    titles = (
        ("length n", f"ms, d = {widths[-1]}", lengths),
        ("length n", f"MiB above the start, d = {widths[-1]}", lengths),
        ("width d", f"ms, n = {lengths[-1]}", widths),
        ("width d", f"MiB above the start, n = {lengths[-1]}", widths),
    )
    for axis, (x, y, ticks) in zip(axes, titles, strict=True):
        axis.set(xscale="log", yscale="log", xlabel=x, ylabel=y)
        axis.minorticks_off()
        axis.set_xticks(ticks, map(str, ticks))
        axis.grid(alpha=0.3)
    axes[0].legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(path, dpi=120)


def main():
    """Measures, reports and draws."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--work", nargs=3, help=argparse.SUPPRESS)
    parser.add_argument("--lengths", default=",".join(map(str, LENGTHS)))
    parser.add_argument("--widths", default=",".join(map(str, WIDTHS)))
    parser.add_argument("--png", help="gets the plot; needs matplotlib")
    flags = parser.parse_args()
    if flags.work:
        name, width, length = flags.work
        work(name, int(width), int(length))
        return
    lengths, widths = (
        [int(part) for part in text.split(",")]
        for text in (flags.lengths, flags.widths)
    )
    results = measure(lengths, widths)
    report(results, lengths, widths)
    if flags.png:
        draw(results, lengths, widths, flags.png)


if __name__ == "__main__":
    main()
