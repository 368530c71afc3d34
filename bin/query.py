"""Ask a server for translations: lines in, lines out, in order.

The server is t2t-lite-server or TensorFlow Serving. A line without an answer
becomes an empty line, is reported on stderr, and makes the exit code 1. The
command needs t2t-lite[serve].
"""

import argparse
import contextlib
import json
import pathlib
import sys
from typing import Any

from t2t_lite import files
from t2t_lite.bin.cli import command, flags, io_paths
from t2t_lite.bin.cli.command import Command
from t2t_lite.errors import T2TLiteError
from t2t_lite.progress import Counter
from t2t_lite.tf_setup import start_tensorflow
from t2t_lite.validators import integer, real


def _add_flags(parser: flags.Parser) -> None:
    group = parser.add_argument_group("server")
    about = (
        "http://HOST:PORT for REST or grpc://HOST:PORT for gRPC; https:// and "
        "grpcs:// with TLS"
    )
    flags.add(group, {"--server=URL": about}, default="http://127.0.0.1:8501")
    about = "name of the model on the server"
    flags.add(group, {"--model_name=NAME": about}, default="default")
    about = "version of the model (default: the newest)"
    flags.add(group, {"--version=N": about}, integer(0))
    group = parser.add_argument_group("requests")
    count = integer(1)
    flags.add(group, {"--batch_size=N": "texts in a request"}, count, 16)
    flags.add(group, {"--concurrency=N": "concurrent requests"}, count, 4)
    about = (
        "seconds until a request is given up; while the server is busy or "
        "away, it is repeated"
    )
    flags.add(group, {"--timeout=X": about}, real(at_least=0.1), 60.0)
    group = parser.add_argument_group("input and output")
    table = {
        "--decode_from_file=FILE": "compressed or not (default: stdin)",
        "--decode_to_file=FILE": "written when complete (default: stdout)",
    }
    flags.add(group, table)
    about = (
        "write the N best translations of each line, separated by TABs; at "
        "most the beam size of the export"
    )
    flags.add(group, {"--nbest=N": about}, count, 1)
    about = (
        'json: one object a line, {"line", "source", "hypotheses": [{"text", '
        '"score", "tokens"}]}, or {"line", "error"}; tokens are null'
    )
    flags.add_choice(group, "format", about, "text", "json", default="text")


def query(args: argparse.Namespace) -> None:
    """Send every line and write the answers."""
    io_paths.check_paths(args.decode_from_file, args.decode_to_file)
    try:
        from t2t_lite.serving.client import Client, connect
    except ImportError as error:
        raise T2TLiteError(
            f"{error.name} is not installed: pip install 't2t-lite[serve]'."
        ) from error
    from t2t_lite.decoding.batching import Batching, map_sorted

    if args.server.startswith("grpc"):
        start_tensorflow(args.verbose)  # the messages of gRPC import it
    client = Client(
        connect(args.server, args.model_name, args.version),
        "nbest" if args.nbest > 1 else "serving_default",
        args.timeout,
        lambda reason: command.note(
            f"Waiting for {args.server}, at most {args.timeout:g} s "
            f"(--timeout): {reason.rstrip('.')}."
        ),
    )
    errors = 0
    opened: Any = contextlib.nullcontext(sys.stdout.buffer)
    if args.decode_to_file:
        opened = files.write_file(pathlib.Path(args.decode_to_file))
    with (
        io_paths.open_lines(args.decode_from_file) as lines,
        opened as file,
        command.LineNotes(args.verbose) as note,
        # Answers on a terminal show the progress by themselves.
        Counter("asking", "lines", shown=not sys.stdout.isatty()) as counter,
    ):
        answered = map_sorted(
            (line.removesuffix(b"\n").removesuffix(b"\r") for line in lines),
            parts=lambda line: [line.decode(errors="replace")],
            work=[client.translate] * args.concurrency,
            lengths=lambda texts: [len(text) for text in texts],
            batching=Batching(args.batch_size),
        )
        for number, (line, (answer,)) in enumerate(answered, 1):
            source = line.decode(errors="replace")
            text = _format(number, source, answer, args) + "\n"
            file.write(text.encode(errors="backslashreplace"))
            file.flush()
            if answer.error:
                errors += 1
                note(number, answer.error)
            elif answer.cut:
                note(number, "too long: its end was left out.")
            counter.advance(1)
    if errors:
        raise T2TLiteError(f"{errors:,} line(s) have no translation.")


def _format(
    number: int, source: str, answer: Any, args: argparse.Namespace
) -> str:
    """Return the output line of an input line."""
    hypotheses = answer.hypotheses[: args.nbest]
    if args.format == "text":
        # A line end or a TAB inside a text must not look like a separator.
        separators = "\r\n\t" if args.nbest > 1 else "\r\n"
        table = str.maketrans(dict.fromkeys(separators, " "))
        return "\t".join(text.translate(table) for text, _ in hypotheses)
    found = [{"text": t, "score": s, "tokens": None} for t, s in hypotheses]
    record = {"line": number, "source": source, "hypotheses": found}
    if answer.error:
        record = {"line": number, "error": answer.error}
    return json.dumps(record, ensure_ascii=False)


main = Command("t2t-lite-query", __doc__, _add_flags, query)
