"""Clients that cost next to nothing, as server and clients share the cores.

Requests are bytes that were made before, connections stay open, and of an
answer only its status is read. `serving_load.py` compares whole answers.
"""

import asyncio
import json
import re
import urllib.parse

from serving_clients import clocks, closed_loop, grpc_request, since
from serving_http2 import Channel, prefixed

_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_PREDICT = "/tensorflow.serving.PredictionService/Predict"


class RestGenerator:
    """One connection for each client."""

    async def open(self, server, clients):
        self.host = urllib.parse.urlsplit(server.url)
        loop = asyncio.get_running_loop()
        self.connections = [
            (
                await loop.create_connection(
                    _Connection, self.host.hostname, self.host.port
                )
            )[1]
            for _ in range(clients)
        ]
        return self

    def request(self, texts):
        """The bytes of a request."""
        body = json.dumps({"instances": texts}).encode()
        head = (
            f"POST /v1/models/default:predict HTTP/1.1\r\n"
            f"Host: {self.host.netloc}\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        return head.encode() + body

    async def ask(self, client, request):
        """Waits for an answer that is none of an error."""
        answer = await self.connections[client].ask(request)
        assert answer.startswith(b"HTTP/1.1 200 "), answer

    async def close(self):
        for connection in self.connections:
            connection.transport.close()


class _Connection(asyncio.Protocol):
    def connection_made(self, transport):
        self.transport = transport

    def ask(self, request):
        self.got, self.size = b"", 0
        self.answer = asyncio.get_running_loop().create_future()
        self.transport.write(request)
        return self.answer

    def data_received(self, data):
        self.got += data
        end = self.got.find(b"\r\n\r\n")
        if end >= 0 and not self.size:
            length = _LENGTH.search(self.got, 0, end)
            self.size = end + 4 + int(length[1])
        if self.size and len(self.got) >= self.size:
            self.answer.set_result(self.got)

    def connection_lost(self, error):
        if not self.answer.done():
            self.answer.set_exception(error or EOFError())


class GrpcGenerator:
    """One connection for all, as gRPC's own clients have."""

    async def open(self, server, clients):
        host, _, port = server.address.rpartition(":")
        _, self.channel = await asyncio.get_running_loop().create_connection(
            lambda: Channel(server.address, _PREDICT), host, int(port)
        )
        return self

    def request(self, texts):
        """The bytes of a request."""
        return prefixed(grpc_request(texts).SerializeToString())

    async def ask(self, client, request):
        """Waits for an answer that is none of an error."""
        assert await self.channel.ask(request)

    async def close(self):
        self.channel.transport.close()


GENERATORS = {"rest": RestGenerator, "grpc": GrpcGenerator}


async def time_for(server, api, clients, count, batches):
    """For so many requests of these texts, after a tenth to warm up.

    Returns: seconds, and those of the server's processor time.
    """
    generator = await GENERATORS[api]().open(server, clients)
    requests = [generator.request(texts) for texts in batches]

    async def run(count):
        numbers = iter(range(count))

        async def ask(client):
            for number in numbers:
                await generator.ask(client, requests[number % len(requests)])

        await closed_loop(clients, ask)

    await run(count // 10)
    start = clocks(server.process)
    await run(count)
    took = since(start, server.process)
    await generator.close()
    return took
