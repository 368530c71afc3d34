"""Texts a second of a server: with batches, and beside the SavedModel."""

import json
import os
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile

from serving_clients import CLIENTS, make_texts, newest, running
from serving_generators import GENERATORS, seconds_for


async def measure_batching(args):
    """Two servers take turns, so that what else runs slows both."""
    texts = [[text] for text in make_texts()]
    turns = {api: [] for api in GENERATORS}
    alone = running(args.export_dir, "--max_batch_size=1")
    with alone as alone, running(args.export_dir) as joined:
        for _ in range(1 + args.turns):  # the first one warms up
            for api, speeds in turns.items():
                pair = []
                for server, share in ((alone, 40), (joined, 10)):
                    count = args.requests // share
                    took = await seconds_for(server, api, CLIENTS, count, texts)
                    pair.append(count / took)
                speeds.append(pair)
    for api, speeds in turns.items():
        one, many = zip(*speeds[1:], strict=True)
        times = [many / one for one, many in speeds[1:]]
        print(
            f"batching, {api}: {spread(many)} texts/s, with "
            f"--max_batch_size=1 {spread(one)}: {spread(times, 1)} times"
        )


def spread(values, digits=0):
    """The median, and from the smallest to the largest."""
    middle, low, high = (
        f"{each:.{digits}f}"
        for each in (statistics.median(values), min(values), max(values))
    )
    return f"{middle} ({low} to {high})"


DIRECT = """
import json, sys, time
from concurrent.futures import ThreadPoolExecutor
from t2t_lite.runtime import start_tensorflow
start_tensorflow()
import tensorflow as tf
from t2t_lite.serving.server import saved_model
folder, workers, cores = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
saved_model.use_threads(workers, cores)
ask = tf.saved_model.load(folder).signatures["serving_default"]
batches = json.load(sys.stdin)
pool = ThreadPoolExecutor(workers)
def run(number):
    out = ask(inputs=tf.constant(batches[number % len(batches)]))
    return {name: value.numpy() for name, value in out.items()}
print("ready", flush=True)
"""


class Direct:
    """Calls of the SavedModel in a process of its own."""

    def __init__(self, args, batches, workers):
        code = DIRECT + (
            "for line in open(sys.argv[4]):\n"
            "    start = time.perf_counter()\n"
            "    list(pool.map(run, range(int(line))))\n"
            "    print(time.perf_counter() - start, flush=True)\n"
        )
        self.folder = tempfile.TemporaryDirectory()
        self.orders = pathlib.Path(self.folder.name) / "orders"
        os.mkfifo(self.orders)
        self.process = subprocess.Popen(
            [sys.executable, "-c", code, str(newest(args.export_dir))]
            + [str(workers), str(args.cores), str(self.orders)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.process.stdin.write(json.dumps(batches))
        self.process.stdin.close()
        self.process.stdout.readline()
        self.file = self.orders.open("w")

    def seconds(self, count):
        """For so many batches."""
        print(count, file=self.file, flush=True)
        return float(self.process.stdout.readline())

    def stop(self):
        self.file.close()
        self.process.wait()
        self.folder.cleanup()


async def measure_overhead(args):
    """Texts of like lengths together, as a client with many sends them.

    One batch after the other, then as many at once as there are cores. The
    server and the direct calls take turns.
    """
    texts = sorted(make_texts(32 * 20), key=len)
    batches = [texts[at : at + 32] for at in range(0, len(texts), 32)]
    random.Random(3).shuffle(batches)
    count = args.requests // 100
    for workers in (1, args.cores):
        direct = Direct(args, batches, workers)
        turns = {api: [] for api in GENERATORS}
        flag = f"--workers={workers}"
        clients = workers if workers == 1 else 2 * workers
        with running(args.export_dir, flag) as server:
            for _ in range(1 + args.turns):  # the first one warms up
                for api, pairs in turns.items():
                    pair = [direct.seconds(count)]
                    pair.append(
                        await seconds_for(server, api, clients, count, batches)
                    )
                    pairs.append(pair)
        direct.stop()
        for api, pairs in turns.items():
            own, served = (
                [32 * count / took for took in each]
                for each in zip(*pairs[1:], strict=True)
            )
            more = [100 * (took / own - 1) for own, took in pairs[1:]]
            print(
                f"overhead, {api}, {flag}: {spread(served)} texts/s in "
                f"requests of 32, {spread(own)} by direct calls: "
                f"{spread(more, 1)} % more time"
            )
