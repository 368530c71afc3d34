"""Life cycle of a server: load, listen, drain, stop."""

import asyncio
import contextlib
import dataclasses
import logging
import pathlib
from collections.abc import AsyncIterator, Callable

from aiohttp import web
from grpc_health.v1 import health_pb2

from t2t_lite.errors import T2TLiteError, format_error
from t2t_lite.serving.server import apis
from t2t_lite.serving.server.batching import Batcher
from t2t_lite.serving.server.model import Model, Version, load_version
from t2t_lite.serving.server.requests import Limits


@dataclasses.dataclass(frozen=True)
class ServerConfig:
    """The settings of a server."""

    base_path: pathlib.Path  # folder of the model's versions
    name: str = "default"  # name of the model in requests
    host: str = "127.0.0.1"  # address to listen on
    port: int = 8500  # gRPC port; 0: a free port
    rest_api_port: int = 8501  # REST port; 0: a free port
    limits: Limits = Limits()
    poll_seconds: float = 1.0  # interval of checks for new versions
    drain_seconds: float = 30.0  # time for running requests at shutdown


@contextlib.asynccontextmanager
async def running(
    config: ServerConfig,
    log: Callable[[str], None],
    load: Callable[[pathlib.Path], Version] = load_version,
) -> AsyncIterator[tuple[int, int, Batcher]]:
    """Serve within the block; at its end, drain the running requests.

    Args:
      config: the settings of the server.
      log: called with a message when a version is loaded or fails to load.
      load: loads the folder of a version.

    Yields:
      The REST port, the gRPC port and the batcher, which runs requests that
      take longer than `drain_seconds` even after the block.

    Raises:
      T2TLiteError: no version can be loaded, or a port is in use.
    """
    batcher = Batcher(config.limits)
    model = Model(
        config.name, config.base_path, batcher, config.limits, load, log
    )
    await model.start()
    grpc_server, health = apis.grpc_server(model)
    runner = web.AppRunner(
        apis.rest_application(model),
        handler_cancellation=True,
        # The default logs tracebacks of malformed HTTP, with parts of texts.
        logger=logging.Logger("aiohttp.server", logging.CRITICAL + 1),
        access_log=None,
        shutdown_timeout=config.drain_seconds,
    )
    await runner.setup()
    option = f"`rest_api_port={config.rest_api_port}`"
    try:
        await web.TCPSite(runner, config.host, config.rest_api_port).start()
        option = f"`port={config.port}`"
        if config.port:  # the probe reports an error that gRPC does not
            probe = await asyncio.start_server(print, config.host, config.port)
            probe.close()
        host = f"[{config.host}]" if ":" in config.host else config.host
        port = grpc_server.add_insecure_port(f"{host}:{config.port}")
    except (OSError, RuntimeError) as error:
        await runner.cleanup()
        raise T2TLiteError(
            f"Cannot listen on `host={config.host}` {option}: "
            f"{format_error(error)}. Choose another address or port, or port 0 "
            "for a free port."
        ) from error
    await grpc_server.start()
    await health.set("", health_pb2.HealthCheckResponse.SERVING)
    watching = asyncio.create_task(model.watch(config.poll_seconds))
    try:
        yield runner.addresses[0][1], port, batcher
    finally:
        watching.cancel()
        await health.enter_graceful_shutdown()
        stop_grpc = grpc_server.stop(config.drain_seconds)
        await asyncio.gather(stop_grpc, runner.cleanup())
        batcher.close()
