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
machine.
"""

import argparse
import asyncio
import contextlib
import json
import os
import pathlib
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

from serving_clients import (
    Clients,
    Server,
    closed_loop,
    grpc_request,
    make_texts,
    percentile,
    running,
)

CLIENTS = 64
MALFORMED = (
    ("{", 400),
    ('{"instances": [1]}', 400),
    ('{"instances": []}', 400),
    ('{"inputs": {"other": ["a"]}}', 400),
    ('{"instances": ["a"], "signature_name": "none"}', 400),
)


def decoded(args, texts):
    """What the decoder says, or the export asked one by one."""
    if args.output_dir:
        words = [sys.executable, "-m", "t2t_lite.bin.decoder"]
        done = subprocess.run(
            [*words, f"--output_dir={args.output_dir}"],
            input="\n".join(texts) + "\n",
            capture_output=True,
            text=True,
            check=True,
        )
        lines = done.stdout.splitlines()
    else:
        code = (
            "import sys, tensorflow as tf, tensorflow_text\n"
            "model = tf.saved_model.load(sys.argv[1])\n"
            "ask = model.signatures['serving_default']\n"
            "for line in sys.stdin.read().splitlines():\n"
            "    out = ask(inputs=tf.constant([line]))['outputs']\n"
            "    print(out.numpy()[0].decode())\n"
        )
        done = subprocess.run(
            [sys.executable, "-c", code, str(newest(args.export_dir))],
            input="\n".join(texts),
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
        lines = done.stdout.splitlines()
    assert len(lines) == len(texts)
    return dict(zip(texts, lines, strict=True))


def newest(export_dir):
    """The newest version's folder."""
    versions = pathlib.Path(export_dir).glob("[0-9]*")
    return max(versions, key=lambda path: int(path.name))


async def measure_load(args):
    """Every answer is compared with what it should be."""
    texts = make_texts()
    expected = decoded(args, texts)
    with running(args.export_dir) as server:
        clients = await Clients().open(server)
        counts = dict.fromkeys(("right", "refused", "cancelled", "wrong"), 0)
        seconds, memory, wrong = [], [], []
        numbers = iter(range(args.requests))
        draw = random.Random(2)

        async def one(client, number):
            ask = clients.rest if client % 2 else clients.grpc
            text = draw.choice(texts)
            if number % 100 == 0:
                await refused(clients, client, number, counts, wrong)
            elif number % 100 == 50:
                task = asyncio.create_task(ask([text]))
                await asyncio.sleep(draw.random() / 50)
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await task
                counts["cancelled"] += 1
            else:
                start = time.perf_counter()
                status, answer = await ask([text])
                seconds.append(time.perf_counter() - start)
                right = status == 200 and answer == [expected[text]]
                counts["right" if right else "wrong"] += 1
                if not right:
                    wrong.append((text, status, answer, expected[text]))
            if number % 250 == 249:
                memory.append(await clients.memory())

        async def ask(client):
            for number in numbers:
                await one(client, number)

        took = await closed_loop(CLIENTS, ask)
        await clients.close()
    warm = memory[3 * len(memory) // 10 :]
    print(f"load: {args.requests} requests in {took:.1f} s: {counts}")
    for each in wrong[:5]:
        print(f"  wrong: {each}")
    print(
        f"  p50 {percentile(seconds, 50):.1f} ms, "
        f"p99 {percentile(seconds, 99):.1f} ms; memory "
        f"{memory[0]:.0f} MB at first, "
        f"{warm[0]:.0f} after three tenths, then {min(warm):.0f} to "
        f"{max(warm):.0f}, at the end {warm[-1]:.0f} MB"
    )


async def refused(clients, client, number, counts, wrong):
    """Sends something malformed, and looks for its status and one line."""
    if client % 2:
        body, expected = MALFORMED[number // 100 % len(MALFORMED)]
        found = await clients.rest(None, body)
    else:
        request, expected = grpc_request(["a"]), "NOT_FOUND"
        request.model_spec.name = "none"
        found = await clients.grpc(None, request)
    right = found[0] == expected and "\n" not in found[1]
    counts["refused" if right else "wrong"] += 1
    if not right:
        wrong.append((number, *found))


async def throughput(server, clients_count, count, make, api):
    """Texts a second."""
    clients = await Clients().open(server)
    ask_one = getattr(clients, api)
    warm = iter(range(count // 10))
    numbers = iter(range(count))

    async def ask(numbers):
        for number in numbers:
            status, answer = await ask_one(make(number))
            assert status == 200, answer

    await closed_loop(clients_count, lambda _: ask(warm))
    took = await closed_loop(clients_count, lambda _: ask(numbers))
    await clients.close()
    return count * len(make(0)) / took


async def measure_batching(args):
    """Two servers take turns, so that what else runs slows both."""
    texts = make_texts()

    def make(number):
        return [texts[number % len(texts)]]

    speeds = {}
    alone = running(args.export_dir, "--max_batch_size=1")
    with alone as alone, running(args.export_dir) as joined:
        for _ in range(4):  # the first one warms up
            for api in ("rest", "grpc"):
                for server, share in ((alone, 40), (joined, 10)):
                    speed = await throughput(
                        server, CLIENTS, args.requests // share, make, api
                    )
                    speeds.setdefault((server, api), []).append(speed)
    for api in ("rest", "grpc"):
        one, many = (
            statistics.median(speeds[server, api][1:])
            for server in (alone, joined)
        )
        print(
            f"batching, {api}: {many:.0f} texts/s, with --max_batch_size=1 "
            f"{one:.0f}: {many / one:.1f} times (medians of 3)"
        )


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
        seconds = {}
        flag = f"--workers={workers}"
        with running(args.export_dir, flag) as server:
            for _ in range(6):  # the first one warms up
                took = direct.seconds(count)
                seconds.setdefault("direct", []).append(took)
                for api in ("rest", "grpc"):
                    speed = await throughput(
                        server,
                        workers if workers == 1 else 2 * workers,
                        count,
                        lambda number: batches[number % len(batches)],
                        api,
                    )
                    seconds.setdefault(api, []).append(32 * count / speed)
        direct.stop()
        medians = {
            name: statistics.median(each[1:]) for name, each in seconds.items()
        }
        for api in ("rest", "grpc"):
            speed = 32 * count / medians[api]
            more = 100 * (medians[api] / medians["direct"] - 1)
            print(
                f"overhead, {api}, {flag}: {speed:.0f} texts/s in requests of "
                f"32, {32 * count / medians['direct']:.0f} by direct calls: "
                f"{more:.1f} % more time (medians of 5)"
            )


async def measure_swap(args):
    """Versions 2 and 4 come and take over, version 3 is damaged."""
    texts = make_texts()
    with tempfile.TemporaryDirectory() as folder:
        export_dir = pathlib.Path(folder)
        version = newest(args.export_dir)
        shutil.copytree(version, export_dir / "1")
        with running(export_dir) as server:
            clients = await Clients().open(server)
            done = asyncio.Event()
            counts = {}

            async def ask(client):
                own = clients.rest if client % 2 else clients.grpc
                draw = random.Random(client)
                while not done.is_set():
                    status, _ = await own([draw.choice(texts)])
                    counts[status] = counts.get(status, 0) + 1

            async def states():
                url = f"{server.url}/v1/models/default"
                async with clients.http.get(url) as response:
                    found = (await response.json())["model_version_status"]
                return {each["version"]: each["state"] for each in found}

            async def until(version, state):
                while (await states()).get(version) != state:
                    await asyncio.sleep(0.1)

            async def act():
                put(version, export_dir, "2")
                await until("2", "AVAILABLE")
                await until("1", "END")
                broken = put(version, export_dir, "3", break_it=True)
                await until("3", "END")
                shutil.rmtree(broken)
                put(version, export_dir, "4")
                await until("4", "AVAILABLE")
                await until("2", "END")
                print(f"swap: {await states()}")
                done.set()

            work = asyncio.create_task(closed_loop(CLIENTS, ask))
            await act()
            took = await work
            await clients.close()
    print(f"  {took:.1f} s of load, answers by status: {counts}")


def put(version, export_dir, name, break_it=False):
    """Puts a version there as the exporter does: renamed when complete."""
    hidden = export_dir / f".{name}"
    shutil.copytree(version, hidden)
    if break_it:
        weights = next((hidden / "variables").glob("*.data*"))
        weights.write_bytes(weights.read_bytes()[:1000])
    return hidden.rename(export_dir / name)


async def measure_first(args):
    """The code of the clients is warm, from an earlier server."""
    text = make_texts()[1]

    async def ask_all(count, api):
        """The seconds of each request to a new server."""
        with running(args.export_dir) as server:
            clients = await Clients().open(server)
            await clients.memory()  # opens the connection
            await clients.channel.channel_ready()
            seconds = []
            for _ in range(count):
                start = time.perf_counter()
                status, _ = await getattr(clients, api)([text])
                seconds.append(time.perf_counter() - start)
                assert status == 200
            await clients.close()
        return seconds

    for api in ("rest", "grpc"):
        await ask_all(20, api)
        found = []
        for _ in range(3):
            seconds = await ask_all(101, api)
            median = statistics.median(seconds[1:])
            found.append((seconds[0] / median, seconds[0], median))
        ratio, first, median = sorted(found)[1]
        print(
            f"first, {api}: {1000 * first:.1f} ms, then a median of "
            f"{1000 * median:.1f} ms: {ratio:.2f} times (median of 3 starts)"
        )


async def measure_restart(args):
    """From the kill to an answer."""
    server = Server(args.export_dir)
    seconds = []
    for _ in range(3):
        server.process.kill()
        server.process.wait()
        start = time.perf_counter()
        server = Server(args.export_dir)
        clients = await Clients().open(server)
        status, _ = await clients.rest(["nine"])
        assert status == 200
        seconds.append(time.perf_counter() - start)
        await clients.close()
    server.stop()
    print(f"restart after kill -9: {[f'{each:.1f} s' for each in seconds]}")


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
    args = parser.parse_args()
    for part in args.parts.split(","):
        asyncio.run(PARTS[part](args))


if __name__ == "__main__":
    main()
