"""Texts a second of a server: with batches, and beside the SavedModel."""

import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile

from serving_clients import (
    CLIENTS,
    clocks,
    make_texts,
    newest,
    running,
    since,
    spread,
)
from serving_generators import GENERATORS, time_for


async def measure_batching(args):
    """Two servers take turns, so that what else runs slows both."""
    texts = [[text] for text in make_texts()]
    turns = {api: [] for api in GENERATORS}
    alone = running(args.export_dir, "--max_batch_size=1")
    with alone as alone, running(args.export_dir) as joined:
        for _ in range(1 + args.turns):  # the first one warms up
            for api, speeds in turns.items():
                pair = []
                for server, share in ((alone, 20), (joined, 4)):
                    count = args.requests // share
                    took, _ = await time_for(server, api, CLIENTS, count, texts)
                    pair.append(count / took)
                speeds.append(pair)
    for api, speeds in turns.items():
        one, many = zip(*speeds[1:], strict=True)
        times = [many / one for one, many in speeds[1:]]
        print(
            f"batching, {api}: {spread(many)} texts/s, with "
            f"--max_batch_size=1 {spread(one)}: {spread(times, 1)} times"
        )


DIRECT = """
import json, sys
from concurrent.futures import ThreadPoolExecutor
from t2t_lite.runtime import share_cores, start_tensorflow
start_tensorflow()
import tensorflow as tf, tensorflow_text
folder, orders, workers = sys.argv[1:]
workers = int(workers)
share_cores(workers)
ask = tf.saved_model.load(folder).signatures["serving_default"]
batches = json.load(sys.stdin)
pool = ThreadPoolExecutor(workers)
def run(number):
    out = ask(inputs=tf.constant(batches[number % len(batches)]))
    return {name: value.numpy() for name, value in out.items()}
print("ready", flush=True)
for line in open(orders):
    list(pool.map(run, range(int(line))))
    print("done", flush=True)
"""


class Direct:
    """Calls of the SavedModel in a process of its own."""

    def __init__(self, args, batches, workers):
        self.folder = tempfile.TemporaryDirectory()
        orders = pathlib.Path(self.folder.name) / "orders"
        os.mkfifo(orders)
        self.process = subprocess.Popen(
            [sys.executable, "-c", DIRECT, str(newest(args.export_dir))]
            + [str(orders), str(workers)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.process.stdin.write(json.dumps(batches))
        self.process.stdin.close()
        self._wait()
        self.orders = orders.open("w")

    def time_for(self, count):
        """For so many batches; see `serving_generators.time_for`."""
        start = clocks(self.process)
        print(count, file=self.orders, flush=True)
        self._wait()
        return since(start, self.process)

    def _wait(self):
        """Until the process is done with what it was told."""
        if not self.process.stdout.readline():
            raise RuntimeError(f"The direct calls died: {self.process.wait()}.")

    def stop(self):
        self.orders.close()
        self.process.wait()
        self.folder.cleanup()


async def measure_overhead(args):
    """Texts of like lengths together, as a client with many sends them.

    One batch after the other, then as many at once as there are cores. The
    server and the direct calls take turns, once the one first, once the other.
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
            for turn in range(1 + args.turns):  # the first one warms up
                for api, pairs in turns.items():
                    own = None if turn % 2 else direct.time_for(count)
                    served = await time_for(
                        server, api, clients, count, batches
                    )
                    pairs.append((own or direct.time_for(count), served))
        direct.stop()
        for api, pairs in turns.items():
            speeds = (
                spread([32 * count / pair[kind][0] for pair in pairs[1:]])
                for kind in (1, 0)
            )
            more, more_computed = (
                spread(
                    [
                        100 * (served[clock] / own[clock] - 1)
                        for own, served in pairs[1:]
                    ],
                    1,
                )
                for clock in (0, 1)
            )
            print(
                f"overhead, {api}, {flag}: {next(speeds)} texts/s in requests "
                f"of 32, {next(speeds)} by direct calls: {more} % more time, "
                f"{more_computed} % more processor time",
                flush=True,
            )
