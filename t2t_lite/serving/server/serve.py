"""Life cycle of a server: load, listen, drain, stop."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable
from pathlib import Path

from aiohttp import web
from grpc_health.v1 import health_pb2

from t2t_lite.errors import T2TLiteError, format_error
from t2t_lite.serving.options import ServerOptions
from t2t_lite.serving.server import apis
from t2t_lite.serving.server.batching import Batcher
from t2t_lite.serving.server.model import Model, Version, load_version


@contextlib.asynccontextmanager
async def running(
    options: ServerOptions,
    log: Callable[[str], None],
    load: Callable[[Path], Version] = load_version,
) -> AsyncIterator[tuple[int, int, Batcher]]:
    """Serve within the block; at its end, drain the running requests.

    Yields the REST port, the gRPC port and the batcher. `log` gets a message
    when a version, a folder, is loaded with `load` or fails to load.
    """
    batcher = Batcher(options)
    model = Model(options, batcher, load, log)
    await model.start()
    grpc_server, health = apis.grpc_server(model)
    runner = web.AppRunner(
        apis.rest_application(model),
        handler_cancellation=True,
        # The default logs tracebacks of malformed HTTP, with parts of texts.
        logger=logging.Logger("aiohttp.server", logging.CRITICAL + 1),
        access_log=None,
        shutdown_timeout=options.drain_seconds,
    )
    await runner.setup()
    flag = f"`rest_api_port={options.rest_api_port}`"
    site = web.TCPSite(runner, options.host, options.rest_api_port)
    try:
        await site.start()
        flag = f"`port={options.port}`"
        if options.port:  # the probe reports an error that gRPC does not
            address = options.host, options.port
            probe = await asyncio.start_server(print, *address)
            probe.close()
        host = f"[{options.host}]" if ":" in options.host else options.host
        port = grpc_server.add_insecure_port(f"{host}:{options.port}")
    except (OSError, RuntimeError) as error:
        await runner.cleanup()
        raise T2TLiteError(
            f"Cannot listen on `host={options.host}` {flag}: "
            f"{format_error(error)}. Choose another address or port, or port 0 "
            "for a free port."
        ) from error
    await grpc_server.start()
    await health.set("", health_pb2.HealthCheckResponse.SERVING)
    watching = asyncio.create_task(model.watch())
    try:
        yield runner.addresses[0][1], port, batcher
    finally:
        watching.cancel()
        await health.enter_graceful_shutdown()
        await site.stop()
        # aiohttp would not answer connections that it accepted just before.
        await asyncio.sleep(0.1)
        stop_grpc = grpc_server.stop(options.drain_seconds)
        await asyncio.gather(stop_grpc, runner.cleanup())
        batcher.close()
