"""Peak memory of a beam search: base size, and parsing's long wide beam.

    .venv/bin/python benchmarks/decoding_memory.py

Each case is a process of its own. The memory is what the search needs beside
the libraries and the weights: the growth of the peak from before the first
search until after it. Random weights; no hypothesis ends early.
"""

import json
import pathlib
import subprocess
import sys

BASE = {
    "hidden_size": 512,
    "filter_size": 2048,
    "num_heads": 8,
    "num_hidden_layers": 6,
    "vocab_size": 32000,
}
# The parser of arXiv:1706.03762, section 6.3.
PARSER = {
    "hidden_size": 1024,
    "filter_size": 4096,
    "num_heads": 16,
    "num_hidden_layers": 4,
    "vocab_size": 16000,
}
CASES = [
    ("base", {**BASE, "rows": 64, "length": 30}, 1),
    ("base", {**BASE, "rows": 64, "length": 30}, 4),
    ("parser", {**PARSER, "rows": 1, "length": 500}, 21),
]


def peak():
    """The largest memory that this process had, in MiB."""
    status = pathlib.Path("/proc/self/status").read_text("utf-8")
    (line,) = [x for x in status.splitlines() if x.startswith("VmHWM")]
    return int(line.split()[1]) / 1024


def measure(sizes, beam_size):
    """The growth of the peak by one search, in MiB."""
    from decode_t2t_lite import make_step

    small = make_step({**sizes, "rows": 1, "length": 1}, beam_size)
    small()  # the weights and the libraries are there
    before = peak()
    make_step(sizes, beam_size, model=small.model)()
    return peak() - before


def main():
    """Prints one line for each case."""
    for name, sizes, beam_size in CASES:
        arguments = [json.dumps(sizes), str(beam_size)]
        done = subprocess.run(
            [sys.executable, __file__, *arguments],
            stdout=subprocess.PIPE,
            check=True,
        )
        print(
            f"{name}, {sizes['rows']} x {sizes['length']}, beam {beam_size}: "
            f"{json.loads(done.stdout):,.0f} MiB",
            flush=True,
        )


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(measure(json.loads(sys.argv[1]), int(sys.argv[2])))
    else:
        main()
