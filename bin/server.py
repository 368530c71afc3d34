"""Serve an export with REST, gRPC and a web page.

The server has the API of TensorFlow Serving, loads new versions while it runs,
and requires t2t-lite[serve].
"""

import argparse
import asyncio
import os
import signal
import sys

from t2t_lite.bin.cli import command, flags
from t2t_lite.bin.cli.command import Command
from t2t_lite.errors import UsageError, requires_extra
from t2t_lite.serving.options import ServerOptions
from t2t_lite.serving.versions import newest_version
from t2t_lite.tf_setup import num_cpus, set_num_threads, start_tensorflow

_LOOPBACK = ("127.0.0.1", "::1", "localhost")


def _add_flags(parser: flags.Parser) -> None:
    flags.add_settings(parser, ServerOptions)


def run(args: argparse.Namespace) -> None:
    """Serve until a signal arrives."""
    flags.require(args, "model_base_path")
    given = flags.given_settings(args, ServerOptions)
    options = ServerOptions(**{"workers": num_cpus(), **given})
    base_path = args.model_base_path
    if (base_path / "saved_model.pb").is_file():
        raise UsageError(
            f"--model_base_path={base_path} is a version. Use the folder of "
            f"the versions, {base_path.parent}."
        )
    if not base_path.is_dir():
        raise UsageError(f"--model_base_path={base_path} is not a folder.")
    if version := newest_version(base_path):  # TensorFlow starts in seconds
        name = f"{options.model_name} version {version.name}"
        command.note(f"Loading model {name}.")
    start_tensorflow(args.verbose)
    with requires_extra("serve"):
        import uvloop

        import t2t_lite.serving.server.serve  # noqa: F401 (checks the extra)
    set_num_threads(options.workers)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        finished = runner.run(_serve(options))
    if not finished:
        command.note("Some requests did not finish within --drain_seconds.")
        sys.stdout.flush()
        os._exit(command.FAILED)  # without waiting for the threads


async def _serve(options: ServerOptions) -> bool:
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
    async with running(options, command.note) as (rest_api_port, port, batcher):
        if not stopping.is_set():
            host = f"[{options.host}]" if ":" in options.host else options.host
            print(
                f"Serving {options.model_name}: REST and page at "
                f"http://{host}:{rest_api_port}/, gRPC at {host}:{port}.",
                flush=True,
            )
            if options.host not in _LOOPBACK:
                command.note(
                    f"--host={options.host} accepts requests from other "
                    "machines. Use a reverse proxy with authentication and TLS."
                )
        await stopping.wait()
    return not batcher.running


main = Command("t2t-lite-server", __doc__, _add_flags, run)
