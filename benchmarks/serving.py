"""t2t-lite-server under load: answers, speed, memory, swaps, starts.

    python benchmarks/serving.py EXPORT_DIR [--parts=load,batching,...]

Parts:
  load      REQUESTS requests, REST and gRPC at once, 64 clients; 1 % malformed,
            1 % cancelled. With --output_dir=RUN, answers are compared with
            t2t-lite-decoder's, else with those of the export, one by one.
  batching  requests a second, one text each, with batches and without
  overhead  requests of 32 texts, against calls of the SavedModel
  swap      versions that come, break and go under load
  first     the first request after a start, against the median
  restart   kill -9, and the time to the next answer

Texts are numbers in words, of mixed lengths. Servers and clients share the
machine. Figures are medians of --turns turns or starts, from the least to the
most; processor time is that of the process that answers, user and system.
"""

import argparse
import asyncio

from serving_load import measure_load
from serving_speed import measure_batching, measure_overhead
from serving_versions import measure_first, measure_restart, measure_swap

PARTS = {
    "load": measure_load,
    "batching": measure_batching,
    "overhead": measure_overhead,
    "swap": measure_swap,
    "first": measure_first,
    "restart": measure_restart,
}


def main():
    """Prints a line or two for each part."""
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("export_dir")
    parser.add_argument("--output_dir", help="the run of the export")
    parser.add_argument("--parts", default=",".join(PARTS))
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--turns", type=int, default=5, help="for medians")
    args = parser.parse_args()
    for part in args.parts.split(","):
        asyncio.run(PARTS[part](args))


if __name__ == "__main__":
    main()
