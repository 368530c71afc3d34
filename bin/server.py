"""Serves exports as TensorFlow Serving does, and on a page to try.

REST, gRPC, versions, batches and metrics; it needs t2t-lite[serve].
"""

import argparse
import contextlib
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from typing import TYPE_CHECKING, NoReturn

from t2t_lite.bin.cli import command, flags
from t2t_lite.errors import T2TLiteError, UsageError
from t2t_lite.runtime import (
    compute_in_background,
    look_for_garbage_rarely,
    share_cores,
    start_tensorflow,
    usable_cores,
)

if TYPE_CHECKING:
    from t2t_lite.serving.server.config import ServerConfig
    from t2t_lite.serving.server.models import ModelConfig
    from t2t_lite.serving.server.serve import Server

_LOOPBACK = ("127.0.0.1", "::1", "localhost")


def make_parser() -> flags.Parser:
    """The flags of `t2t-lite-server`."""
    parser = flags.Parser("t2t-lite-server", __doc__)
    group = parser.add_argument_group("what it serves, one of these")
    told = "the folder of an export's versions"
    flags.add(group, {"--model_base_path=DIR": told})
    told = "a ModelServerConfig as text, as TensorFlow Serving reads it"
    flags.add(group, {"--model_config_file=FILE": told})
    flags.add_run_flags(parser, "or a run, which is exported for as long")
    group = parser.add_argument_group("where it listens")
    told = "the model's name in requests"
    flags.add(group, {"--model_name=NAME": told}, default="default")
    told = "the address; others than your own machine's need a reverse proxy"
    flags.add(group, {"--host=ADDRESS": told}, default="127.0.0.1")
    told = "for gRPC; 0 takes a free one"
    flags.add(group, {"--port=N": told}, flags.port, 8500)
    told = "for REST and the page; 0 takes a free one"
    flags.add(group, {"--rest_api_port=N": told}, flags.port, 8501)
    _add_batching(parser)
    _add_limits(parser)
    return parser


def _add_batching(parser: flags.Parser) -> None:
    group = parser.add_argument_group("batches")
    told = "texts that run together at most; 1 joins no requests"
    flags.add(group, {"--max_batch_size=N": told}, flags.at_least(1), 32)
    told = "a text waits so long for others while a batch runs"
    flags.add(group, {"--batch_timeout_ms=X": told}, flags.number(0), 0.0)
    told = "texts that may wait; requests beyond are refused with 503"
    flags.add(group, {"--max_queue=N": told}, flags.at_least(1), 1024)
    told = (
        "batches that run at once; they share the cores (default: one for "
        "each core)"
    )
    flags.add(group, {"--workers=N": told}, flags.at_least(1))


def _add_limits(parser: flags.Parser) -> None:
    group = parser.add_argument_group("limits and logs")
    whole = flags.at_least(1)
    told = "of a request"
    flags.add(group, {"--max_body_bytes=N": told}, whole, 16 << 20)
    flags.add(group, {"--max_texts=N": told}, whole, 1024)
    flags.add(group, {"--max_characters=N": "of a text"}, whole, 10_000)
    told = "a request that takes longer is refused with 504"
    flags.add(group, {"--rest_api_timeout_in_ms=N": told}, whole, 30_000)
    told = "between looks for new versions"
    name = "--file_system_poll_wait_seconds=X"
    flags.add(group, {name: told}, flags.number(0.01), 1.0)
    told = "on SIGTERM, to finish what has begun"
    flags.add(group, {"--drain_seconds=X": told}, flags.number(0), 30.0)
    told = "append a line of JSON for each request, without its texts"
    flags.add(group, {"--access_log=FILE": told})
    flags.add(group, {"--log_texts": "with --access_log, with its texts"})


def run(args: argparse.Namespace) -> None:
    """Serves until a signal comes."""
    given = [
        name
        for name in ("model_base_path", "model_config_file")
        if getattr(args, name)
    ]
    if args.output_dir or args.problem:
        given.append("output_dir")
    if len(given) != 1:
        raise UsageError(
            "Give one of --model_base_path, --model_config_file and "
            f"--output_dir; got {' and '.join(given) or 'none'}."
        )
    flags.require(args, "model_name")
    if args.log_texts and not args.access_log:
        raise UsageError("--log_texts goes with --access_log.")
    _require_extra()
    with _base_path(args) as base_path:
        finished, loads = _serve(args, base_path)
    if not finished:
        command.note("What had begun did not finish within --drain_seconds.")
    if loads or not finished:
        sys.stdout.flush()
        # Threads that load or compute cannot be stopped.
        os._exit(0 if finished else command.FAILED)


def _require_extra() -> None:
    """Refuses to go on without the packages of the extra."""
    try:
        import aiohttp  # noqa: F401
        import grpc_health  # noqa: F401
        import prometheus_client  # noqa: F401
        import tensorflow_serving  # noqa: F401
        import uvloop  # noqa: F401
    except ImportError as error:
        raise T2TLiteError(
            f"{error.name} is not installed: pip install 't2t-lite[serve]'."
        ) from error


@contextlib.contextmanager
def _base_path(args: argparse.Namespace) -> Iterator[pathlib.Path | None]:
    """The folder of versions; of a run, a new one for as long as the block."""
    if args.model_config_file or args.model_base_path:
        yield flags.folder(args.model_base_path)
        return
    with (
        _sigterm_as_ctrl_c(),
        tempfile.TemporaryDirectory(prefix="t2t-lite-server.") as folder,
    ):
        names = ("output_dir", "problem", "hparams", "usr_dir")
        asked = [
            f"--{name}={getattr(args, name)}"
            for name in names
            if getattr(args, name)
        ]
        # In a process of its own, so that its memory is free again.
        words = [sys.executable, "-m", "t2t_lite.bin.exporter", *asked]
        words.append("--attention")  # the page shows it
        done = subprocess.run(
            [*words, f"--export_dir={folder}"], stdout=subprocess.DEVNULL
        )
        if done.returncode:
            raise T2TLiteError("The run cannot be exported.")
        yield pathlib.Path(folder)


@contextlib.contextmanager
def _sigterm_as_ctrl_c() -> Iterator[None]:
    """Within it SIGTERM, too, lets what is open be closed and removed."""

    def interrupt(number: int, frame: object) -> NoReturn:
        raise KeyboardInterrupt("SIGTERM")

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _serve(
    args: argparse.Namespace, base_path: pathlib.Path | None
) -> tuple[bool, bool]:
    """Serves until it is told to stop.

    Returns: whether all that had begun was answered, and whether it still loads
      a model.
    """
    start_tensorflow(args.verbose)
    import asyncio

    from t2t_lite.serving.server import saved_model, serve

    config = _config(args, base_path)
    share_cores(config.batching.workers)
    compute_in_background()
    look_for_garbage_rarely()

    async def main() -> tuple[bool, bool]:
        server = serve.Server(config, saved_model.SavedModel, command.note)
        finished = await serve.serve(server, lambda: _say_ready(args, server))
        return finished, server.models.is_loading

    with asyncio.Runner(loop_factory=serve.new_event_loop) as runner:
        return runner.run(main())


def _config(
    args: argparse.Namespace, base_path: pathlib.Path | None
) -> "ServerConfig":
    from t2t_lite.serving.server.batching import Batching
    from t2t_lite.serving.server.config import ServerConfig
    from t2t_lite.serving.server.predict import Limits

    return ServerConfig(
        models=_models(args, base_path),
        host=args.host,
        port=args.port,
        rest_api_port=args.rest_api_port,
        batching=Batching(
            workers=args.workers or usable_cores(),
            max_batch_size=args.max_batch_size,
            timeout=args.batch_timeout_ms / 1000,
            max_queue=args.max_queue,
        ),
        limits=Limits(
            body_bytes=args.max_body_bytes,
            texts=args.max_texts,
            characters=args.max_characters,
            seconds=args.rest_api_timeout_in_ms / 1000,
        ),
        poll_seconds=args.file_system_poll_wait_seconds,
        drain_seconds=args.drain_seconds,
        access_log=flags.folder(args.access_log),
        log_texts=args.log_texts,
    )


def _models(
    args: argparse.Namespace, base_path: pathlib.Path | None
) -> "tuple[ModelConfig, ...]":
    from t2t_lite.serving.server.config import read_config_file
    from t2t_lite.serving.server.models import ModelConfig

    if base_path is None:
        return read_config_file(pathlib.Path(args.model_config_file))
    if (base_path / "saved_model.pb").is_file():
        raise UsageError(
            f"--model_base_path is the folder of versions; {base_path} is a "
            f"version itself. Give {base_path.parent}."
        )
    return (ModelConfig(args.model_name, base_path),)


def _say_ready(args: argparse.Namespace, server: "Server") -> None:
    host = f"[{args.host}]" if ":" in args.host else args.host
    print(
        f"Serving {', '.join(server.models.by_name)}: "
        f"REST and page at http://{host}:{server.rest_api_port}/, "
        f"gRPC at {host}:{server.port}.",
        flush=True,
    )
    if args.host not in _LOOPBACK:
        command.note(
            f"--host={args.host} lets others ask, and nothing here checks who "
            "they are: put a reverse proxy with authentication and TLS before "
            "it."
        )


def main(argv: list[str] | None = None) -> int:
    """Runs `t2t-lite-server`; returns its exit code."""
    return command.run(make_parser(), run, argv)


if __name__ == "__main__":
    raise SystemExit(main())
