"""A server from its start to its end."""

import asyncio
import contextlib
import logging
import signal
from collections.abc import Callable

import uvloop
from aiohttp import web
from tensorflow.core.framework.tensor_pb2 import TensorProto

from t2t_lite.errors import T2TLiteError, in_words
from t2t_lite.serving.server import json_tensors, proto_tensors
from t2t_lite.serving.server.batching import Batcher, Tensors
from t2t_lite.serving.server.config import ServerConfig
from t2t_lite.serving.server.grpc_service import GrpcApi
from t2t_lite.serving.server.models import Load, Model, Models
from t2t_lite.serving.server.monitoring import AccessLog, Monitor, Record
from t2t_lite.serving.server.predict import ModelSpec, Predictor
from t2t_lite.serving.server.rest import OneLine, RestApi

# A request is many small events, for which Python's own loop takes longer.
new_event_loop = uvloop.new_event_loop


class Server:
    """Models behind a port for gRPC and one for REST.

    Attributes:
      port: of gRPC, once started.
      rest_api_port: of REST, once started.
      models: what it serves.

    Args:
      config: see there.
      load: makes of a version's folder what serves it: `SavedModel`.
      say: is told what happens to versions.
    """

    def __init__(
        self, config: ServerConfig, load: Load, say: Callable[[str], None]
    ):
        self.port = config.port
        self.rest_api_port = config.rest_api_port
        self.models = Models(config.models, load, say)
        self._config = config
        log = config.access_log
        self._log = AccessLog(log, config.log_texts) if log else None
        self._monitor = Monitor(self._log)
        for name, model in self.models.by_name.items():
            self._monitor.count_versions(name, _counter(model))
        self._batcher = Batcher(config.batching, self._monitor)
        self._predictor = predictor = Predictor(
            self.models, self._batcher, config.limits
        )
        self._grpc = GrpcApi(predictor, self._monitor)
        self._rest = web.AppRunner(
            RestApi(predictor, self._monitor).application(),
            handler_cancellation=True,
            logger=_logger(),
            access_log=None,
            shutdown_timeout=config.drain_seconds,
        )
        self._watching: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Loads the models, then listens.

        Raises:
          T2TLiteError: a model cannot be served, or a port is taken.
        """
        await self.models.start()
        await self._warm_up()
        await self._rest.setup()
        host = self._config.host
        try:
            site = web.TCPSite(self._rest, host, self.rest_api_port)
            await site.start()
        except OSError as error:
            flag = f"rest_api_port={self.rest_api_port}"
            raise _cannot_listen(flag, host, error) from error
        self.rest_api_port = self._rest.addresses[0][1]
        address = f"[{host}]" if ":" in host else host
        try:
            if self.port:  # gRPC does not tell what is wrong with a port
                await _listen_once(host, self.port)
            self.port = self._grpc.server.add_insecure_port(
                f"{address}:{self.port}"
            )
        except (OSError, RuntimeError) as error:
            flag = f"port={self.port}"
            raise _cannot_listen(flag, host, error) from error
        await self._grpc.start(f"{address}:{self.port}")
        self._watching = asyncio.create_task(
            self.models.watch(self._config.poll_seconds)
        )

    async def _warm_up(self) -> None:
        """Asks each model once in each thread, so that no first one is slow."""
        for name, model in self.models.by_name.items():
            if model.newest and model.newest.model.sample:
                sample = model.newest.model.sample
                workers = range(self._config.batching.workers)
                await asyncio.gather(
                    *(self._ask(name, *sample) for _ in workers)
                )

    async def _ask(self, name: str, signature: str, inputs: Tensors) -> None:
        """Goes the way of a request."""
        outputs = await self._predictor.predict(
            ModelSpec(name), signature, lambda _: inputs, Record("", "", "")
        )
        json_tensors.json_of(outputs, in_rows=False)
        for output in outputs.values():
            proto_tensors.fill(TensorProto(), output)

    async def stop(self) -> bool:
        """Accepts nothing more, and finishes what it can in its seconds.

        Returns: whether no request is being computed any more.
        """
        if self._watching:
            self._watching.cancel()
            await asyncio.gather(
                self._grpc.stop(self._config.drain_seconds),
                self._rest.cleanup(),
            )
        self._batcher.close()
        self.models.close()
        if self._log:
            self._log.close()
        return not self._batcher.running


def _counter(model: Model) -> Callable[[], int]:
    return lambda: len(model.available)


def _logger() -> logging.Logger:
    logger = logging.Logger("aiohttp.server", logging.WARNING)
    logger.addFilter(OneLine())
    return logger


async def _listen_once(host: str, port: int) -> None:
    """Raises OSError where one cannot listen."""
    loop = asyncio.get_running_loop()
    probe = await loop.create_server(asyncio.Protocol, host, port)
    probe.close()
    await probe.wait_closed()


def _cannot_listen(flag: str, host: str, error: Exception) -> T2TLiteError:
    return T2TLiteError(
        f"Cannot listen at --host={host} --{flag}: {in_words(error)}. Choose "
        "another address or port; port 0 takes a free one."
    )


async def serve(server: Server, ready: Callable[[], None]) -> bool:
    """Runs a server until SIGTERM or SIGINT; a second one ends the process.

    Args:
      server: not yet started.
      ready: is told when it listens.

    Returns: see `Server.stop`.

    Raises:
      T2TLiteError: see `Server.start`.
    """
    loop = asyncio.get_running_loop()
    told = asyncio.Event()

    def stop() -> None:
        told.set()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    starting = asyncio.create_task(server.start())
    stopping = asyncio.create_task(told.wait())
    try:
        await asyncio.wait(
            (starting, stopping), return_when=asyncio.FIRST_COMPLETED
        )
        if starting.done():
            await starting
            ready()
            await stopping
    finally:
        starting.cancel()
        with contextlib.suppress(asyncio.CancelledError, T2TLiteError):
            await starting
        idle = await server.stop()
    return idle
