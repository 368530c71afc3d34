"""Versions swapped under load, first requests, and starts of a server."""

import asyncio
import pathlib
import random
import shutil
import tempfile
import time
from statistics import median

from serving_clients import (
    CLIENTS,
    Clients,
    Server,
    closed_loop,
    make_texts,
    newest,
    running,
    spread,
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
    """The code of the clients is warm, from an earlier server.

    A processor that rested answers more slowly, at first and at any time: so
    the first request is compared with those that come one after the other, and
    with those that each come after a pause, as it does.
    """
    text = make_texts()[1]

    async def start(api):
        """Milliseconds of the first request, of others, and after pauses."""
        with running(args.export_dir) as server:
            clients = await Clients().open(server)
            await clients.memory()  # opens the connection
            await clients.channel.channel_ready()

            async def ask(pause=0):
                await asyncio.sleep(pause)
                start = time.perf_counter()
                status, _ = await getattr(clients, api)([text])
                assert status == 200
                return 1000 * (time.perf_counter() - start)

            first = await ask()
            others = median([await ask() for _ in range(100)])
            rested = median([await ask(pause=0.1) for _ in range(20)])
            await clients.close()
        return first, others, rested

    for api in ("rest", "grpc"):
        await start(api)
        found = [await start(api) for _ in range(args.turns)]
        first, others, rested = zip(*found, strict=True)
        times = [one / usual for one, usual, _ in found]
        after_pauses = [one / usual for one, _, usual in found]
        print(
            f"first, {api}: {spread(first, 1)} ms, one after the other "
            f"{spread(others, 1)} ms: {spread(times, 2)} times; after pauses "
            f"{spread(rested, 1)} ms: {spread(after_pauses, 2)} times"
        )


async def measure_restart(args):
    """From the kill to an answer."""
    server, seconds = Server(args.export_dir), []
    for _ in range(1 + args.turns):  # the first one warms up the clients
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
    print(f"restart after kill -9: {spread(seconds[1:], 1)} s")
