"""A server of a benchmark, and clients that ask it."""

import asyncio
import contextlib
import json
import os
import pathlib
import random
import re
import statistics
import subprocess
import sys
import time

import aiohttp
import grpc
import grpc.aio
from num2words import num2words

CLIENTS = 64  # at once


class Server:
    """A server in a process of its own, ready to be asked."""

    def __init__(self, export_dir, *flags):
        self.start = time.perf_counter()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "t2t_lite.bin.server"]
            + [f"--model_base_path={export_dir}", "--port=0"]
            + ["--rest_api_port=0", *flags],
            stdout=subprocess.PIPE,
            text=True,
        )
        line = self.process.stdout.readline()
        found = re.search(r"(http://[^/]+)/, gRPC at (.+)\.$", line)
        self.url, self.address = found.groups()
        self.seconds = time.perf_counter() - self.start

    def stop(self):
        """Returns the exit code."""
        self.process.terminate()
        return self.process.wait()


@contextlib.contextmanager
def running(export_dir, *flags):
    """A server within the block."""
    server = Server(export_dir, *flags)
    try:
        yield server
    finally:
        code = server.stop()
        if code:
            print(f"the server's exit code is {code}")


class Clients:
    """Asks a server by REST and gRPC."""

    async def open(self, server):
        from tensorflow_serving.apis import prediction_service_pb2_grpc

        self.url = f"{server.url}/v1/models/default:predict"
        self.metrics_url = f"{server.url}/monitoring/prometheus/metrics"
        connector = aiohttp.TCPConnector(limit=0)
        self.http = aiohttp.ClientSession(connector=connector)
        self.channel = grpc.aio.insecure_channel(server.address)
        stub = prediction_service_pb2_grpc.PredictionServiceStub(self.channel)
        self.predict = stub.Predict
        return self

    async def close(self):
        await self.http.close()
        await self.channel.close()

    async def rest(self, texts, body=None):
        """The status and the translations, or the error."""
        body = json.dumps({"instances": texts}) if body is None else body
        async with self.http.post(self.url, data=body) as response:
            answer = await response.json()
        if response.status != 200:
            return response.status, answer["error"]
        return 200, [each["outputs"] for each in answer["predictions"]]

    async def grpc(self, texts, request=None):
        request = request or grpc_request(texts)
        try:
            response = await self.predict(request, timeout=60)
        except grpc.aio.AioRpcError as error:
            return error.code().name, error.details()
        outputs = response.outputs["outputs"].string_val
        return 200, [each.decode() for each in outputs]

    async def memory(self):
        """Of the server, in MB."""
        async with self.http.get(self.metrics_url) as response:
            text = await response.text()
        line = re.search(r"^process_resident_memory_bytes (.+)$", text, re.M)
        return float(line[1]) / 1e6


def grpc_request(texts):
    """A request for `Predict`."""
    from tensorflow.core.framework import tensor_pb2, types_pb2
    from tensorflow_serving.apis import predict_pb2

    request = predict_pb2.PredictRequest()
    request.model_spec.name = "default"
    tensor = tensor_pb2.TensorProto(dtype=types_pb2.DT_STRING)
    tensor.tensor_shape.dim.add(size=len(texts))
    tensor.string_val.extend(text.encode() for text in texts)
    request.inputs["inputs"].CopyFrom(tensor)
    return request


def make_texts(count=600, seed=1):
    """Numbers in words; one in twenty texts is ten numbers long."""
    draw = random.Random(seed)

    def number():
        return num2words(draw.randrange(10 ** draw.randrange(1, 7)))

    return [
        " ".join(number() for _ in range(10 if i % 20 == 0 else 1))
        for i in range(count)
    ]


async def closed_loop(clients, ask):
    """Runs `ask(client)` at once, which asks until it has enough."""
    start = time.perf_counter()
    await asyncio.gather(*(ask(client) for client in range(clients)))
    return time.perf_counter() - start


def clocks(process):
    """What the clock shows, and the processor time of a process; seconds."""
    stat = pathlib.Path(f"/proc/{process.pid}/stat").read_text()
    user, system = map(int, stat.rpartition(")")[2].split()[11:13])
    ticks = os.sysconf("SC_CLK_TCK")
    return time.perf_counter(), (user + system) / ticks


def since(start, process):
    """What of both has passed since `start`, from `clocks`."""
    return [
        now - then for now, then in zip(clocks(process), start, strict=True)
    ]


def spread(values, digits=0):
    """The median, and from the smallest to the largest."""
    middle, low, high = (
        f"{each:.{digits}f}"
        for each in (statistics.median(values), min(values), max(values))
    )
    return f"{middle} ({low} to {high})"


def percentile(seconds, percent):
    """In milliseconds."""
    ordered = sorted(seconds)
    return 1000 * ordered[min(len(ordered) - 1, len(ordered) * percent // 100)]


def newest(export_dir):
    """The newest version's folder."""
    versions = pathlib.Path(export_dir).glob("[0-9]*")
    return max(versions, key=lambda path: int(path.name))
