"""Compare beam search with CTranslate2 and Hugging Face's `generate`.

    python benchmarks/decoding.py --peer_python=.peers/bin/python

All sides decode sentences of 30 tokens into exactly 30 tokens, with random
weights of the sizes of training_step.py. Sides take turns, so quote the ratios.
"""

import argparse
import itertools
import statistics
import sys
from pathlib import Path

from side import Side
from training_step import sizes_of

HERE = Path(__file__).parent


def main():
    """Compare all sides for each model, number of rows and beam size."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--peer_python", required=True)
    parser.add_argument("--models", default="base,d128", help="names of SIZES")
    parser.add_argument("--rows", default="64,1", help="sentences per batch")
    parser.add_argument("--beam_sizes", default="4,1")
    parser.add_argument("--peers", default="transformers,ctranslate2")
    parser.add_argument("--precision", default="float32", help="of ours")
    parser.add_argument("--compute_type", default="float32", help="a peer's")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--jit", action="store_true", help="compile ours")
    flags = parser.parse_args()
    for model, rows, beam_size in itertools.product(
        flags.models.split(","),
        map(int, flags.rows.split(",")),
        map(int, flags.beam_sizes.split(",")),
    ):
        sizes = {**sizes_of(model), "rows": rows, "length": 30}
        sizes["jit"] = flags.jit
        compare(f"{model} x {rows}, beam {beam_size}", sizes, beam_size, flags)


def compare(title, sizes, beam_size, flags):
    """Print the speed of each side and the ratio of ours to it."""
    ours = (sys.executable, str(HERE / "decode_t2t_lite.py"))
    sides = {"t2t-lite": Side(*ours, sizes, beam_size, flags.precision)}
    for peer in flags.peers.split(","):
        script = str(HERE / f"decode_{peer}.py")
        types = [flags.compute_type] if peer == "ctranslate2" else []
        sides[peer] = Side(flags.peer_python, script, sizes, beam_size, *types)
    # A round of a fast side repeats it for about a second.
    count = max(1, round(1 / sides["t2t-lite"].seconds(1)))
    rounds = [
        {name: side.seconds(count) for name, side in sides.items()}
        for _ in range(flags.rounds)
    ]
    tokens = sizes["rows"] * sizes["length"]
    for name, side in sides.items():
        side.close()
        speed = tokens / statistics.median(r[name] for r in rounds)
        ratios = sorted(r[name] / r["t2t-lite"] for r in rounds)
        print(
            f"{title} {name:12} {speed:6,.0f} tokens/s   "
            f"t2t-lite is {statistics.median(ratios):.2f} times as fast "
            f"({ratios[0]:.2f} to {ratios[-1]:.2f}, {len(ratios)} rounds)",
            flush=True,
        )


if __name__ == "__main__":
    main()
