"""Measure the throughput of t2t-lite-server over REST and gRPC.

    python benchmarks/serving.py EXPORT_DIR [--before=CHECKOUT]

Servers with and without batching take turns, so quote the ratios. The clients
run on the same machine and keep their connections open. --before is a checkout
of another version with a .venv.
"""

import argparse
import asyncio
import json
import pathlib
import random
import re
import statistics
import subprocess
import sys
import time

import aiohttp
import grpc.aio
import tensorflow as tf
from num2words import num2words
from tensorflow_serving.apis import predict_pb2, prediction_service_pb2_grpc

CLIENTS = 64  # concurrent requests


class Server:
    """A server process and clients for both APIs."""

    def __init__(self, python, export_dir, *flags):
        self.process = subprocess.Popen(
            [python, "-m", "t2t_lite.bin.main", "server", "--port=0"]
            + ["--rest_api_port=0", f"--model_base_path={export_dir}", *flags],
            stdout=subprocess.PIPE,
            text=True,
            cwd=export_dir,  # else -m imports the package of this checkout
        )
        line = self.process.stdout.readline()
        self.url, self.address = re.search(
            r"(http://[^/]+)/, gRPC at (.+)\.$", line
        ).groups()

    async def rest(self, batches):
        url = f"{self.url}/v1/models/default:predict"
        connector = aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(connector=connector) as session:

            async def send(texts):
                body = json.dumps({"instances": texts})
                async with session.post(url, data=body) as response:
                    assert response.status == 200, await response.text()
                    await response.read()

            return await seconds_for(send, batches)

    async def grpc(self, batches):
        async with grpc.aio.insecure_channel(self.address) as channel:
            stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)

            async def send(texts):
                request = predict_pb2.PredictRequest()
                request.model_spec.name = "default"
                tensor = tf.make_tensor_proto([t.encode() for t in texts])
                request.inputs["inputs"].CopyFrom(tensor)
                await stub.Predict(request, timeout=60)

            return await seconds_for(send, batches)


async def seconds_for(send, batches):
    """Return the seconds to send all batches, CLIENTS at a time."""
    remaining = iter(batches)

    async def work():
        for batch in remaining:
            await send(batch)

    start = time.perf_counter()
    await asyncio.gather(*(work() for _ in range(CLIENTS)))
    return time.perf_counter() - start


def make_texts(count):
    """Return numbers in words; one text in twenty has ten numbers."""
    draw = random.Random(1)

    def number():
        return num2words(draw.randrange(10 ** draw.randrange(1, 7)))

    return [
        " ".join(number() for _ in range(10 if i % 20 == 0 else 1))
        for i in range(count)
    ]


def main():
    """Print the speed of each server for each API."""
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("export_dir", type=pathlib.Path)
    parser.add_argument("--before", type=pathlib.Path)
    parser.add_argument("--requests", type=int, default=2000)
    parser.add_argument("--texts", type=int, default=1, help="per request")
    parser.add_argument("--turns", type=int, default=5)
    args = parser.parse_args()
    start = (sys.executable, args.export_dir.resolve())
    servers = {
        "this version": Server(*start),
        "--max_batch_size=1": Server(*start, "--max_batch_size=1"),
    }
    if args.before:
        python = args.before.resolve() / ".venv" / "bin" / "python"
        servers["before"] = Server(python, start[1])
    texts = make_texts(args.requests * args.texts)
    batches = [
        texts[i : i + args.texts] for i in range(0, len(texts), args.texts)
    ]
    for api in ("rest", "grpc"):
        speeds = {name: [] for name in servers}
        for _ in range(1 + args.turns):  # the first turn warms up
            for name, server in servers.items():
                seconds = asyncio.run(getattr(server, api)(batches))
                speeds[name].append(len(texts) / seconds)
        for name, own in speeds.items():
            pairs = zip(speeds["this version"][1:], own[1:], strict=True)
            ratios = sorted(ours / theirs for ours, theirs in pairs)
            print(
                f"{api} {name:20} {statistics.median(own[1:]):6.0f} texts/s; "
                f"this version is {statistics.median(ratios):.2f} times as "
                f"fast ({ratios[0]:.2f} to {ratios[-1]:.2f})",
                flush=True,
            )
    for server in servers.values():
        server.process.terminate()
        server.process.wait()


if __name__ == "__main__":
    main()
