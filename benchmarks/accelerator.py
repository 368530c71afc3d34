"""Compare training and decoding on an accelerator with nn.Transformer.

    PYTHONPATH=. python benchmarks/accelerator.py

Our side is the model core on Keras' JAX backend, in one jitted update or
search; it requires JAX and Keras, but no TensorFlow. The peer is PyTorch's
`nn.Transformer` under `torch.compile` in the same precision, if `--peer_python`
has PyTorch. It only trains, because `nn.Transformer` decodes without a cache.

Training: rows of 256 positions, filled with pairs of 32 + 32 that do not attend
to one another; 25,088 target tokens per update, post-norm, one embedding
matrix, dropout 0.1, label smoothing 0.1, Adam. `t2t_lite.model.flops` counts
the FLOPs. Decoding: 64 sentences of 32 tokens into exactly 32 tokens. The
sides take turns in one run, so quote the ratios.
"""

import argparse
import contextlib
import json
import statistics
import subprocess
import sys
from pathlib import Path

from side import Side

from t2t_lite.hparam import HParams
from t2t_lite.model import flops

HERE = Path(__file__).parent
# hidden_size, filter_size, num_heads, num_hidden_layers
MODELS = {
    "tiny": (16, 32, 2, 1),
    "base": (512, 2048, 8, 6),
    "big": (1024, 4096, 16, 6),
}


def sizes_of(name, flags):
    """Return the sizes of one model and its batch, as JSON for the sides."""
    names = ("hidden_size", "filter_size", "num_heads", "num_hidden_layers")
    sizes = dict(zip(names, MODELS[name], strict=True))
    rows = -(-flags.tokens // flags.length)
    return {
        "model": {**sizes, "precision": flags.precision},
        "vocab_size": flags.vocab_size,
        "rows": rows,
        "length": flags.length,
        "pair": flags.pair,
        "sentences": flags.sentences,
        "updates": flags.updates,
    }


def flops_of_update(sizes):
    """Return the model FLOPs of an update, over whole packed rows."""
    hparams = HParams(**sizes["model"])
    tokens = sizes["rows"] * sizes["length"]
    return flops.count_training_flops(
        hparams,
        sizes["vocab_size"],
        (tokens, tokens),
        (sizes["length"], sizes["length"]),
    )


def has_pytorch(python):
    """Return whether an interpreter has PyTorch."""
    command = [python, "-c", "import torch"]
    return not subprocess.run(command, stderr=subprocess.DEVNULL).returncode


def compare(task, sizes, flags, peer):
    """Time the sides in turns.

    Returns: the seconds of all rounds and the last value, for each side.
    """
    scripts = {"t2t-lite": (sys.executable, "accelerator_jax.py")}
    if peer and task == "train":
        scripts["PyTorch"] = (flags.peer_python, "accelerator_pytorch.py")
    with contextlib.ExitStack() as stack:
        sides = {}
        for name, (python, script) in scripts.items():
            side = Side(python, str(HERE / script), task, sizes, stderr=None)
            stack.callback(side.close)
            sides[name] = side
        seconds = {name: [] for name in sides}
        for _ in range(flags.rounds):
            for name, side in sides.items():
                seconds[name].append(side.seconds(1))
        return {
            name: (seconds[name], side.value) for name, side in sides.items()
        }


def report(model, task, sizes, rounds, flags):
    """Print a line of JSON for each side.

    Args:
      model: name of the model.
      task: "train", "greedy" or "beam".
      sizes: result of `sizes_of`.
      rounds: result of `compare`.
      flags: parsed flags.
    """
    tokens = sizes["sentences"] * sizes["pair"]
    if task == "train":
        tokens = sizes["rows"] * sizes["length"] * sizes["updates"]
    ours, _ = rounds["t2t-lite"]
    for side, (seconds, value) in rounds.items():
        median = statistics.median(seconds)
        line = {
            "model": model,
            "task": task,
            "side": side,
            "device": value["device"],
            "precision": flags.precision,
            "rounds": len(seconds),
            "target_tokens_per_second": round(tokens / median),
            "seconds": _range_of(seconds),
            "peak_memory_mib": round((value["peak_bytes"] or 0) / 2**20),
        }
        if task == "train":
            flops = flops_of_update(sizes) * sizes["updates"]
            line["tflops"] = round(flops / median / 1e12, 3)
            if flags.peak_tflops:
                share = line["tflops"] / flags.peak_tflops
                line["share_of_peak"] = round(share, 3)
        if side != "t2t-lite":
            ratios = [a / b for a, b in zip(seconds, ours, strict=True)]
            line["t2t_lite_speedup"] = _range_of(ratios)
        print(json.dumps(line), flush=True)


def _range_of(values):
    """Return the median, minimum and maximum."""
    three = (statistics.median(values), min(values), max(values))
    return [float(f"{value:.4g}") for value in three]


def make_parser():
    """Return the parser; small sizes serve to try the script."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--models", default="base,big")
    parser.add_argument("--tasks", default="train,greedy,beam")
    parser.add_argument("--precision", default="bfloat16")
    parser.add_argument("--peer_python", default=sys.executable)
    parser.add_argument(
        "--peak_tflops",
        type=float,
        help="peak TFLOP/s of the device in this precision, by its data sheet",
    )
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--updates", type=int, default=10, help="per round")
    parser.add_argument("--tokens", type=int, default=25_000)
    parser.add_argument("--length", type=int, default=256, help="per row")
    parser.add_argument("--pair", type=int, default=32, help="per text")
    parser.add_argument("--sentences", type=int, default=64, help="decoded")
    parser.add_argument("--vocab_size", type=int, default=32_768)
    return parser


def main():
    """Measure each requested model in each requested task."""
    flags = make_parser().parse_args()
    peer = has_pytorch(flags.peer_python)
    if not peer:
        print(f"{flags.peer_python} has no PyTorch: ours alone.", flush=True)
    for model in flags.models.split(","):
        sizes = sizes_of(model, flags)
        for task in flags.tasks.split(","):
            rounds = compare(task, sizes, flags, peer)
            report(model, task, sizes, rounds, flags)


if __name__ == "__main__":
    main()
