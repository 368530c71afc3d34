"""Serve an export with REST, gRPC and a web page.

The server has the API of TensorFlow Serving, loads new versions while it runs,
and requires t2t-lite[serve].
"""

import argparse
import asyncio
import os
import pathlib
import signal
import sys
from typing import TYPE_CHECKING

from t2t_lite.bin.cli import command, flags
from t2t_lite.bin.cli.command import Command
from t2t_lite.errors import T2TLiteError, UsageError
from t2t_lite.tf_setup import num_cpus, set_num_threads, start_tensorflow
from t2t_lite.validators import integer, real

if TYPE_CHECKING:
    from t2t_lite.serving.server.serve import ServerConfig

_LOOPBACK = ("127.0.0.1", "::1", "localhost")


def _add_flags(parser: flags.Parser) -> None:
    table = {"--model_base_path=DIR": "folder of the versions of an export"}
    flags.add(parser, table)
    table = {"--model_name=NAME": "name of the model in requests"}
    flags.add(parser, table, default="default")
    group = parser.add_argument_group("Address")
    help_text = "address to listen on; use a reverse proxy for other machines"
    flags.add(group, {"--host=ADDRESS": help_text}, default="127.0.0.1")
    for flag, protocol, port in (
        ("port", "gRPC", 8500),
        ("rest_api_port", "REST and the web page", 8501),
    ):
        help_text = f"port of {protocol}; 0: any free port"
        flags.add(group, {f"--{flag}=N": help_text}, integer(0, 65535), port)
    group = parser.add_argument_group("Batching and limits")
    for flag, help_text, default in (
        ("max_batch_size", "maximum texts per batch; 1: no batching", 32),
        ("max_queue", "maximum texts in the queue, then error 503", 1024),
        ("workers", "concurrent batches (default: one per core)", None),
        ("max_body_bytes", "maximum bytes of a request", 16 << 20),
        ("max_texts", "maximum texts of a request", 1024),
        ("max_characters", "maximum characters of a text", 10_000),
        ("rest_api_timeout_in_ms", "milliseconds until error 504", 30_000),
    ):
        flags.add(group, {f"--{flag}=N": help_text}, integer(1), default)
    help_text = "seconds between checks for new versions"
    name = "--file_system_poll_wait_seconds=X"
    flags.add(group, {name: help_text}, real(at_least=0.01), 1.0)
    help_text = "seconds for running requests to finish after SIGTERM"
    flags.add(group, {"--drain_seconds=X": help_text}, real(at_least=0), 30.0)


def run(args: argparse.Namespace) -> None:
    """Serve until a signal arrives."""
    flags.require(args, "model_base_path", "model_name")
    base_path = pathlib.Path(args.model_base_path).expanduser().absolute()
    if (base_path / "saved_model.pb").is_file():
        raise UsageError(
            f"--model_base_path={base_path} is a version. Use the folder of "
            f"the versions, {base_path.parent}."
        )
    if not base_path.is_dir():
        raise UsageError(
            f"--model_base_path must be a folder; got {base_path}."
        )
    start_tensorflow(args.verbose)
    try:
        import uvloop

        from t2t_lite.serving.server.requests import Limits
        from t2t_lite.serving.server.serve import ServerConfig
    except ImportError as error:
        raise T2TLiteError(
            f"{error.name} is not installed: pip install 't2t-lite[serve]'."
        ) from error
    workers = args.workers or num_cpus()
    limits = Limits(
        body_bytes=args.max_body_bytes,
        texts=args.max_texts,
        characters=args.max_characters,
        seconds=args.rest_api_timeout_in_ms / 1000,
        batch=args.max_batch_size,
        workers=workers,
        queue=args.max_queue,
    )
    config = ServerConfig(
        base_path,
        args.model_name,
        args.host,
        args.port,
        args.rest_api_port,
        limits,
        args.file_system_poll_wait_seconds,
        args.drain_seconds,
    )
    set_num_threads(workers)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        finished = runner.run(_serve(config))
    if not finished:
        command.note("Some requests did not finish within --drain_seconds.")
        sys.stdout.flush()
        os._exit(command.FAILED)  # without waiting for the threads


async def _serve(config: "ServerConfig") -> bool:
    """Serve until SIGTERM or SIGINT; a second signal kills the process.

    Returns:
      True if all requests finished within `drain_seconds`.
    """
    from t2t_lite.serving.server.serve import running

    loop = asyncio.get_running_loop()
    stopping = asyncio.Event()

    def stop() -> None:
        stopping.set()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    async with running(config, command.note) as (rest_api_port, port, batcher):
        if not stopping.is_set():
            host = f"[{config.host}]" if ":" in config.host else config.host
            print(
                f"Serving {config.name}: REST and page at "
                f"http://{host}:{rest_api_port}/, gRPC at {host}:{port}.",
                flush=True,
            )
            if config.host not in _LOOPBACK:
                command.note(
                    f"--host={config.host} accepts requests from other "
                    "machines. Use a reverse proxy with authentication and TLS."
                )
        await stopping.wait()
    return not batcher.running


main = Command("t2t-lite-server", __doc__, _add_flags, run)
