"""Asks a server for translations: lines in, lines out, in order.

The server is t2t-lite-server or TensorFlow Serving. A line that it cannot
answer becomes an empty one, is named on stderr, and makes the exit code 1.
"""

import argparse
import contextlib
import json
import pathlib
import sys
from collections.abc import Callable, Iterator
from typing import BinaryIO

from t2t_lite import files
from t2t_lite.bin.cli import command, flags, places
from t2t_lite.errors import T2TLiteError
from t2t_lite.progress import Counter, duration
from t2t_lite.serving.client.address import Address
from t2t_lite.serving.client.lines import Asking, Line, ask_lines, connect
from t2t_lite.serving.client.patience import Patience

_USUAL = Asking()


def make_parser() -> flags.Parser:
    """The flags of `t2t-lite-query`."""
    parser = flags.Parser("t2t-lite-query", __doc__)
    group = parser.add_argument_group("whom to ask")
    told = (
        "http://HOST:PORT for REST, grpc://HOST:PORT for gRPC, which needs "
        "t2t-lite[serve]; https:// and grpcs:// with TLS"
    )
    flags.add(group, {"--server=URL": told}, default="http://127.0.0.1:8501")
    told = "as the server has it"
    flags.add(group, {"--model_name=NAME": told}, default="default")
    told = "of the model (default: the newest)"
    flags.add(group, {"--version=N": told}, flags.at_least(0))
    group = parser.add_argument_group("how")
    count = flags.at_least(1)
    told = "texts in a request"
    flags.add(group, {"--batch_size=N": told}, count, _USUAL.batch_size)
    told = "requests under way at once"
    flags.add(group, {"--at_once=N": told}, count, _USUAL.at_once)
    told = (
        "seconds that the answer to a request may take; while the server is "
        "busy or away it is asked again for so long"
    )
    flags.add(group, {"--timeout=X": told}, flags.number(0.1), _USUAL.seconds)
    group = parser.add_argument_group("what goes in and out")
    table = {
        "--decode_from_file=FILE": "packed or not (default: stdin)",
        "--decode_to_file=FILE": "written when complete (default: stdout)",
    }
    flags.add(group, table)
    told = (
        "write the N best translations of each line, best first, separated by "
        "TABs; at most the beam size of the export"
    )
    flags.add(group, {"--nbest=N": told}, count, 1)
    group.add_argument(
        "--format",
        choices=["text", "json"],
        default="text",
        help='json: one object a line, {"line", "source", "hypotheses": '
        '[{"text", "score", "tokens"}]}, or {"line", "error"}; no server '
        "tells tokens, so they are null",
    )
    return parser


def query(args: argparse.Namespace) -> None:
    """Asks for every line, and writes the answers."""
    places.check(args.decode_from_file, args.decode_to_file)
    model = connect(Address.parse(args.server), args.model_name, args.version)
    asking = Asking(
        batch_size=args.batch_size,
        at_once=args.at_once,
        seconds=args.timeout,
        nbest=args.nbest > 1,
    )

    def waits(why: str, seconds: float) -> None:
        command.note(
            f"Waiting for the server at {args.server}, {duration(seconds)} at "
            f"most (--timeout): {why.rstrip('.')}."
        )

    patience = Patience(asking.seconds, waits)
    errors = 0
    with (
        places.lines_in(args.decode_from_file) as lines,
        _lines_out(args.decode_to_file) as write,
        command.LineNotes(args.verbose) as note,
        # Answers on the terminal show by themselves how far it is.
        Counter("asking", "lines", shown=not sys.stdout.isatty()) as counter,
    ):
        for line in ask_lines(model, lines, asking, patience):
            write(_shown(line, args))
            if line.answer.error:
                errors += 1
                note(line.number, line.answer.error)
            elif line.answer.cut:
                note(line.number, "too long: its end was left out.")
            counter.advance(1)
    if errors:
        raise T2TLiteError(f"{errors:,} line(s) have no translation.")


def _shown(line: Line, args: argparse.Namespace) -> str:
    """What is written for a line."""
    answer = line.answer
    hypotheses = answer.hypotheses[: args.nbest]
    if args.format == "text":
        # What is inside a text must not look like a border.
        borders = str.maketrans(dict.fromkeys("\r\n", " "))
        if args.nbest > 1:
            borders[ord("\t")] = " "
        texts = [text.translate(borders) for text, _ in hypotheses]
        return "\t".join(texts).encode("utf-8", "replace").decode()
    record: dict[str, object] = {"line": line.number}
    if answer.error:
        record["error"] = answer.error
    else:
        record["source"] = line.source
        record["hypotheses"] = [
            {"text": text, "score": score, "tokens": None}
            for text, score in hypotheses
        ]
    text = json.dumps(record, ensure_ascii=False)
    return text.encode("utf-8", "backslashreplace").decode()


@contextlib.contextmanager
def _lines_out(path: str | None) -> Iterator[Callable[[str], None]]:
    """What writes a line: to stdout, or to a file that is complete or not."""
    if path is None:
        yield lambda line: print(line, flush=True)
        return
    with files.write_file(pathlib.Path(path)) as file:
        yield lambda line: _write(file, line)


def _write(file: BinaryIO, line: str) -> None:
    file.write(f"{line}\n".encode())


def main(argv: list[str] | None = None) -> int:
    """Runs `t2t-lite-query`; returns its exit code."""
    return command.run(make_parser(), query, argv)


if __name__ == "__main__":
    raise SystemExit(main())
