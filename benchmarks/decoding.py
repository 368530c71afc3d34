"""Beam search at base size beside Hugging Face generate and CTranslate2.

    python -m venv .peers
    .peers/bin/pip install torch==2.13.0 transformers ctranslate2
    .venv/bin/python benchmarks/decoding.py --peer_python=.peers/bin/python

All sides: 64 sentences of 30 tokens in and exactly 30 out, V 32,000, random
weights; they take turns in one run, so quote the ratios.
"""

import argparse
import statistics
import sys
from pathlib import Path

from side import Side
from training_step import sizes_of

HERE = Path(__file__).parent


def main():
    """Prints tokens a second of every side, and ours over theirs."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--peer_python", required=True)
    parser.add_argument("--beam_sizes", default="4,1")
    parser.add_argument("--rounds", type=int, default=5)
    flags = parser.parse_args()
    sizes = {**sizes_of("base"), "length": 30}
    for beam_size in map(int, flags.beam_sizes.split(",")):
        sides = {
            "t2t-lite": Side(
                sys.executable,
                str(HERE / "decode_t2t_lite.py"),
                sizes,
                beam_size,
            )
        }
        for peer in ("transformers", "ctranslate2"):
            script = str(HERE / f"decode_{peer}.py")
            sides[peer] = Side(flags.peer_python, script, sizes, beam_size)
        rounds = [
            {name: side.seconds(1) for name, side in sides.items()}
            for _ in range(flags.rounds)
        ]
        tokens = sizes["rows"] * sizes["length"]
        for name, side in sides.items():
            side.close()
            speed = tokens / statistics.median(r[name] for r in rounds)
            ratios = sorted(r[name] / r["t2t-lite"] for r in rounds)
            print(
                f"beam {beam_size} {name:12} {speed:6,.0f} tokens/s   "
                f"t2t-lite is {statistics.median(ratios):.2f} times as fast "
                f"({ratios[0]:.2f} to {ratios[-1]:.2f}, {len(ratios)} rounds)",
                flush=True,
            )


if __name__ == "__main__":
    main()
