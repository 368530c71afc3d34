"""Versions swapped under load, first requests, and starts of a server."""

import asyncio
import pathlib
import random
import shutil
import statistics
import tempfile
import time

from serving_clients import (
    CLIENTS,
    Clients,
    Server,
    closed_loop,
    make_texts,
    newest,
    running,
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
