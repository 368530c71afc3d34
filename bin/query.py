"""Translate lines with t2t-lite-server or TensorFlow Serving.

A failed request writes an empty line, logs the error to stderr and sets the
exit code to 1. The command requires t2t-lite[serve].
"""

import argparse
import contextlib
import dataclasses
import sys
from pathlib import Path
from typing import Any

from t2t_lite import files
from t2t_lite.bin.cli import command, flags, io_paths
from t2t_lite.bin.cli.command import Command
from t2t_lite.errors import T2TLiteError, requires_extra
from t2t_lite.progress import Counter
from t2t_lite.tf_setup import start_tensorflow
from t2t_lite.validators import integer, real


def _add_flags(parser: flags.Parser) -> None:
    group = parser.add_argument_group("Server")
    help_text = (
        "http://HOST:PORT for REST or grpc://HOST:PORT for gRPC; https:// or "
        "grpcs:// with TLS"
    )
    url = "http://127.0.0.1:8501"
    flags.add(group, {"--server=URL": help_text}, default=url)
    help_text = "name of the model on the server"
    flags.add(group, {"--model_name=NAME": help_text}, default="default")
    help_text = "version of the model (default: the newest)"
    flags.add(group, {"--version=N": help_text}, integer(0))
    group = parser.add_argument_group("Requests")
    flags.add(group, {"--batch_size=N": "texts per request"}, default=16)
    flags.add(group, {"--concurrency=N": "concurrent requests"}, default=4)
    help_text = (
        "time limit of a request in seconds, retries of a busy or unreachable "
        "server included"
    )
    flags.add(group, {"--timeout=X": help_text}, real(at_least=0.1), 60.0)
    group = parser.add_argument_group("Input and output")
    table = {
        "--decode_from_file=FILE": "compressed or not (default: stdin)",
        "--decode_to_file=FILE": "written atomically (default: stdout)",
    }
    flags.add(group, table)
    help_text = (
        "number of translations per line, separated by TABs, the best first; "
        "at most the beam size of the export"
    )
    flags.add(group, {"--nbest=N": help_text}, default=1)
    help_text = (
        'json: one object per line, {"line", "source", "hypotheses": [{"text", '
        '"score", "tokens"}]}, or {"line", "error"}; tokens are null'
    )
    flags.add(group, {"--format=text|json": help_text}, default="text")


def query(args: argparse.Namespace) -> None:
    """Send all lines to the server and write the results."""
    io_paths.check_paths(args.decode_from_file, args.decode_to_file)
    with requires_extra("serve"):
        from t2t_lite.serving.client import Client, connect
    from t2t_lite.decoding.batching import Batching, map_sorted

    if args.server.startswith("grpc"):
        start_tensorflow(args.verbose)  # gRPC messages import TensorFlow
    client = Client(
        connect(args.server, args.model_name, args.version),
        signature="nbest" if args.nbest > 1 else "serving_default",
        seconds=args.timeout,
        note=lambda reason: command.note(
            f"Waiting for {args.server}, at most {args.timeout:g} s "
            f"(--timeout): {reason.rstrip('.')}."
        ),
    )
    errors = 0
    opened: Any = contextlib.nullcontext(sys.stdout.buffer)
    if args.decode_to_file:
        opened = files.write_file(Path(args.decode_to_file))
    lines = io_paths.open_lines(args.decode_from_file)
    # Results on a terminal already show the progress.
    shown = bool(args.decode_to_file) or not sys.stdout.isatty()
    with (
        opened as file,
        command.line_notes(args.verbose) as note,
        Counter("querying", "lines", shown) as counter,
    ):
        results = map_sorted(
            lines,
            split=lambda line: [line.decode(errors="replace")],
            work=[client.translate] * args.concurrency,
            lengths=lambda texts: [len(text) for text in texts],
            batching=Batching(args.batch_size),
        )
        for number, (_, (result,)) in enumerate(results, 1):
            best = result.hypotheses[: args.nbest]
            result = dataclasses.replace(result, line=number, hypotheses=best)
            as_json = args.format == "json"
            text = result.to_json() if as_json else result.to_text(args.nbest)
            file.write(f"{text}\n".encode(errors="backslashreplace"))
            file.flush()
            if result.error:
                errors += 1
                note(number, result.error)
            elif result.truncated:
                note(number, "too long: translated only its beginning.")
            counter.advance(1)
    if errors:
        raise T2TLiteError(f"{errors:,} line(s) have no translation.")


main = Command("t2t-lite-query", __doc__, _add_flags, query)
