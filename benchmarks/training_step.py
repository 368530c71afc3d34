"""Compare whole training steps with PyTorch's nn.Transformer.

    python benchmarks/training_step.py --peer_python=.peers/bin/python

A step is forward, backward and Adam on 64 x (32 source + 32 target) positions,
with one embedding matrix, post-norm, and dropout and label smoothing of 0.1.
Sides take turns, so quote the ratios. Peak memory is of the whole process.
"""

import argparse
import os
import statistics
import sys
from pathlib import Path

from side import Side

from t2t_lite.tf_setup import num_cpus

os.environ["CUDA_VISIBLE_DEVICES"] = "-1"  # all sides run on the CPU
HERE = Path(__file__).parent
SIZES = {
    "d128": (128, 256, 4, 4, 8000),
    "d256": (256, 1024, 4, 3, 8000),
    "base": (512, 2048, 8, 6, 32000),
    "big": (1024, 4096, 16, 6, 32000),
}


def sizes_of(name):
    """Return the sizes of a model, for JSON."""
    hidden, filter_size, heads, layers, vocab = SIZES[name]
    return {
        "hidden_size": hidden,
        "filter_size": filter_size,
        "num_heads": heads,
        "num_hidden_layers": layers,
        "vocab_size": vocab,
        "rows": 64,
        "length": 32,
        "threads": num_cpus(),
    }


def hparams_of(sizes, **others):
    """Return the hparams of a model with these sizes."""
    from t2t_lite.hparam import HParams

    names = ("hidden_size", "filter_size", "num_heads", "num_hidden_layers")
    return HParams(**{name: sizes[name] for name in names}, **others)


def compare(name, precision, peer_python, rounds):
    """Print the speed of both sides and their ratio."""
    sizes = sizes_of(name)
    ours = Side(
        sys.executable, str(HERE / "train_t2t_lite.py"), sizes, precision
    )
    peer = Side(peer_python, str(HERE / "train_pytorch.py"), sizes, precision)
    steps = 1 if name in ("base", "big") else 3
    pairs = [(ours.seconds(steps), peer.seconds(steps)) for _ in range(rounds)]
    ours.close()
    peer.close()
    positions = 2 * sizes["rows"] * sizes["length"]
    our_speed, peer_speed = (
        positions / statistics.median(seconds)
        for seconds in zip(*pairs, strict=True)
    )
    ratios = sorted(peer / ours for ours, peer in pairs)
    print(
        f"{name:5} {precision:9} t2t-lite {our_speed:7,.0f} positions/s   "
        f"PyTorch {peer_speed:7,.0f}   ratio {statistics.median(ratios):.2f} "
        f"({ratios[0]:.2f} to {ratios[-1]:.2f}, {rounds} rounds)   "
        f"peak {ours.value['peak_bytes'] / 2**30:.2f} and "
        f"{peer.value['peak_bytes'] / 2**30:.2f} GiB",
        flush=True,
    )


def main():
    """Compare each size in each precision."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--peer_python", required=True)
    parser.add_argument("--sizes", default="d128,d256,base")
    parser.add_argument("--precisions", default="float32,bfloat16")
    parser.add_argument("--rounds", type=int, default=9)
    flags = parser.parse_args()
    for precision in flags.precisions.split(","):
        for name in flags.sizes.split(","):
            compare(name, precision, flags.peer_python, flags.rounds)


if __name__ == "__main__":
    main()
