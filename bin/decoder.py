r"""Translates lines of text with a trained model.

Reads stdin and writes stdout, or works on files, or asks you for lines. Line i
out answers line i in. With --score it reads lines `source<TAB>target` and gives
the score of each pair.
"""

import argparse
import collections
import contextlib
import dataclasses
import functools
import io
import json
import os
import pathlib
import signal
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NoReturn, TextIO

from t2t_lite import files
from t2t_lite.bin.cli import command, details, flags, runs
from t2t_lite.corpus.encoding import lines_without_mark
from t2t_lite.errors import T2TLiteError, UsageError
from t2t_lite.progress import Counter

if TYPE_CHECKING:
    from t2t_lite.decoding.answers import PairScore, Translation
    from t2t_lite.decoding.streams.replicas import Replica
    from t2t_lite.decoding.token_details import TokenDetails
    from t2t_lite.training.run import Run


def make_parser() -> flags.Parser:
    """The flags of `t2t-lite-decoder`."""
    parser = flags.Parser("t2t-lite-decoder", __doc__)
    flags.add_run_flags(parser)
    flags.add_search_flags(parser)
    group = parser.add_argument_group("what goes in and out")
    places = {
        "--decode_from_file=FILE": "(default: stdin)",
        "--decode_to_file=FILE": "written aside and renamed when complete "
        "(default: stdout)",
    }
    flags.add(group, places)
    switches = {
        "--interactive": "ask for a line, translate it, ask again; ends at "
        "Ctrl-D",
        "--score": "score lines `source<TAB>target` instead of translating",
    }
    flags.add(group, switches)
    told = (
        "write the N best translations of each line, best first, separated by "
        "TABs; at most --beam_size"
    )
    flags.add(group, {"--nbest=N": told}, flags.at_least(1), default=1)
    group.add_argument(
        "--input_format",
        choices=["text", "json"],
        default="text",
        help='json: one request a line, {"text", "id", "prefix", '
        '"constraints", "avoid", "seed"}, or with --score {"source", "target", '
        '"id"}; a line that is none is answered with {"error"}',
    )
    group.add_argument(
        "--format",
        choices=["text", "json"],
        help='json: one object a line, {"line", "source", "hypotheses": '
        '[{"text", "score", "tokens"}]} (default: as --input_format)',
    )
    switches = {
        "--tokenize": "the lines are raw text: first split them into words as "
        "the problem's corpus does, for example a treebank",
        "--draw": "draw each tree, with an empty line after it",
    }
    flags.add(group, switches)
    details.add_flags(parser)
    return parser


def decode(args: argparse.Namespace) -> None:
    """Translates or scores what the flags name."""
    args.format = args.format or args.input_format
    _check(args)
    details.check(args)
    if args.interactive:
        command.note("Loading the model.")
    run = runs.open_run(args)
    beam_size = args.beam_size or run.hparams.beam_size
    if args.mbr and args.nbest == 1:
        args.nbest = beam_size
    if args.nbest > beam_size:
        raise UsageError(
            "--nbest must be at most the beam size; got "
            f"nbest={args.nbest}, beam_size={beam_size}."
        )
    if args.draw and run.problem.text_form(run.encoders) is None:
        raise UsageError(
            f"--draw is for trees; the answers of {run.problem.name} are plain "
            "text: leave it out."
        )
    if args.interactive:
        args.replicas = 1
    replicas = runs.make_replicas(run, args)
    refused = collections.Counter[str]()
    with command.LineNotes(args.verbose or args.interactive) as note:
        answers = functools.partial(
            _scores if args.score else _translations,
            run,
            replicas,
            args,
            details.token_details(replicas[0].translator, args),
            note,
            refused,
        )
        if args.interactive:
            replicas[0].translator.warm_up(args.nbest)
            _converse(answers)
        else:
            _answer_lines(answers, args)
    if refused:
        raise T2TLiteError(
            f"{refused.total():,} request(s) had an error instead of an "
            f"answer, for example: {next(iter(refused))}"
        )


def _check(args: argparse.Namespace) -> None:
    """Refuses what cannot work before the model is loaded."""
    source, target = args.decode_from_file, args.decode_to_file
    for flag in ("draw", "tokenize"):
        if getattr(args, flag) and args.score:
            raise UsageError(f"--{flag} does not go with --score.")
    if args.draw and (args.format == "json" or args.nbest > 1):
        raise UsageError(
            "--draw shows one tree for each line: leave out --format=json and "
            "--nbest."
        )
    if args.interactive and (source or target or args.score):
        raise UsageError(
            "--interactive asks for lines: leave out --decode_from_file, "
            "--decode_to_file and --score."
        )
    # A pipe, such as /dev/stdin, is as good as a file.
    path = pathlib.Path(source or __file__)
    if path.is_dir() or not path.exists():
        raise T2TLiteError(f"--decode_from_file: there is no file {source}.")
    if target:
        if pathlib.Path(target).is_dir():
            raise T2TLiteError(f"--decode_to_file: {target} is a folder.")
        folder = pathlib.Path(target).absolute().parent
        if not folder.is_dir():
            raise T2TLiteError(f"--decode_to_file: no folder {folder}.")
        if source and pathlib.Path(target).resolve() == (
            pathlib.Path(source).resolve()
        ):
            raise UsageError(
                "--decode_to_file must not be --decode_from_file; got "
                f"{target} for both."
            )


def _answer_lines(
    answers: Callable[[Iterable[bytes]], Iterator[str | None]],
    args: argparse.Namespace,
) -> None:
    """Answers what `--decode_from_file` or stdin holds, and shows progress."""
    source = args.decode_from_file
    total = None
    if source and pathlib.Path(source).is_file():
        with open(source, "rb") as file:
            total = sum(1 for _ in file)
    signal.signal(signal.SIGTERM, _stopped)
    # Answers on the terminal show by themselves how far it is.
    shown = bool(args.decode_to_file) or not sys.stdout.isatty()
    with (
        _lines_in(source) as lines,
        _text_out(args) as out,
        Counter("decoding", "lines", shown, total) as counter,
    ):
        for answer in answers(lines_without_mark(lines, source or "stdin")):
            if answer is not None:
                print(answer, file=out, flush=True)
            counter.advance(1)


@contextlib.contextmanager
def _lines_in(path: str | None) -> Iterator[Iterable[bytes]]:
    """The lines of a file or of stdin, as bytes."""
    if path:
        with open(path, "rb") as file:
            yield file
        return
    if sys.stdin is None:
        raise T2TLiteError("stdin is closed, but lines are read from it.")
    if sys.stdin.isatty():
        command.note("Reading lines from the keyboard; Ctrl-D ends them.")
    # A file object of its own that is never closed: closing waits for the
    # thread that reads ahead, as Python would at exit for `sys.stdin`.
    yield open(sys.stdin.fileno(), "rb", closefd=False)


@contextlib.contextmanager
def _text_out(args: argparse.Namespace) -> Iterator[TextIO]:
    """Stdout, or `--decode_to_file`, which is complete or not there.

    Whatever stops the work leaves the lines so far in `FILE.partial`.
    """
    if not args.decode_to_file:
        yield sys.stdout
        return
    path = pathlib.Path(args.decode_to_file)
    files.remove_unfinished(path.parent, path.name)
    hidden = files.aside(path)
    try:
        with open(hidden, "w", encoding="utf-8", newline="\n") as text:
            yield text
        files.put_in_place(hidden, path)
    except BaseException:
        _keep_lines(hidden, path.with_name(f"{path.name}.partial"))
        raise
    finally:
        hidden.unlink(missing_ok=True)


def _keep_lines(written: pathlib.Path, partial: pathlib.Path) -> None:
    """Renames a file with its whole lines, if it has any; takes no space."""
    content = written.read_bytes() if written.exists() else b""
    end = content.rfind(b"\n") + 1
    if end:
        os.truncate(written, end)
        os.replace(written, partial)
        count = content.count(b"\n")
        command.note(f"{partial} has the first {count:,} lines.")


def _stopped(number: int, frame: object) -> NoReturn:
    """A handler that lets a signal end the work as Ctrl-C does."""
    raise KeyboardInterrupt(signal.Signals(number).name)


def _translations(
    run: "Run",
    replicas: "Sequence[Replica]",
    args: argparse.Namespace,
    asked: "TokenDetails | None",
    note: command.LineNotes,
    refused: collections.Counter[str],
    lines: Iterable[str | bytes],
) -> Iterator[str | None]:
    from t2t_lite.decoding.lines import decoded, translate_lines
    from t2t_lite.decoding.streams.requests import Request

    is_json = args.input_format == "json"
    requests: Iterable[Request]
    requests = map(Request.parse if is_json else Request, lines)
    if args.tokenize:
        requests = (
            dataclasses.replace(
                request, text=run.problem.tokenize(decoded(request.text))
            )
            for request in requests
        )
    for translation in translate_lines(
        replicas,
        requests,
        batch_size=args.batch_size,
        batch_tokens=args.batch_tokens,
        num_hypotheses=args.nbest,
        complete=run.problem.complete,
        details=asked,
        mbr=args.mbr,
        note=note,
    ):
        if translation.error:
            refused[translation.error] += 1
            yield _refusal(translation, args, note)
            continue
        texts = [
            details.with_alignment(each.text, each.alignment)
            for each in translation.hypotheses
        ]
        if args.draw:
            yield _drawn(texts[0])
        elif args.format == "json":
            yield _json(translation)
        elif args.nbest == 1 or args.mbr:
            yield texts[0]
        else:  # a tab inside a text must not look like a border
            yield "\t".join(text.replace("\t", " ") for text in texts)


def _scores(
    run: "Run",
    replicas: "Sequence[Replica]",
    args: argparse.Namespace,
    asked: "TokenDetails | None",
    note: command.LineNotes,
    refused: collections.Counter[str],
    lines: Iterable[bytes],
) -> Iterator[str | None]:
    from t2t_lite.decoding.answers import ScoreSummary
    from t2t_lite.decoding.lines import score_pairs, split_pairs
    from t2t_lite.decoding.streams.requests import Pair

    del run
    is_json = args.input_format == "json"
    summary = ScoreSummary()
    for pair in score_pairs(
        replicas,
        map(Pair.parse, lines) if is_json else split_pairs(lines),
        batch_size=args.batch_size,
        details=asked,
        batch_tokens=args.batch_tokens,
        note=note,
    ):
        summary.add(pair)
        if pair.error:
            refused[pair.error] += 1
            yield _refusal(pair, args, note)
        elif args.summary:
            yield None
        elif args.format == "json":
            yield _json(pair)
        else:
            yield details.with_alignment(f"{pair.score:.6f}", pair.alignment)
    if args.summary:
        report = summary.report()
        is_json = args.format == "json"
        yield json.dumps(report) if is_json else details.as_text(report)


def _refusal(
    answer: "Translation | PairScore",
    args: argparse.Namespace,
    note: command.LineNotes,
) -> str | None:
    """What stands for an answer with an error: as text, an empty line."""
    if args.format == "json" and not args.summary:
        return _json(answer)
    note(answer.line, str(answer.error))
    return None if args.summary else ""


def _json(answer: "Translation | PairScore") -> str:
    """An answer on one line; what UTF-8 cannot write is escaped."""
    text = json.dumps(answer.to_dict(), ensure_ascii=False)
    return text.encode("utf-8", "backslashreplace").decode()


def _drawn(tree: str) -> str:
    """The drawing of an answer and a line end; an empty one has none."""
    if not tree:
        return ""
    from t2t_lite.parsing.tree_drawing import draw_tree

    return f"{draw_tree(tree)}\n"


def _converse(answers: Callable[[list[str]], Iterator[str | None]]) -> None:
    """Answers each line that is typed, until the end of input."""
    if isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(errors="replace")
    with contextlib.suppress(ImportError):
        import readline  # noqa: F401 (gives `input` a history)
    prompt = "> " if sys.stdin.isatty() else ""
    while True:
        try:
            line = input(prompt)
        except EOFError:
            break
        for answer in answers([line]):
            print(answer, flush=True)


def main(argv: list[str] | None = None) -> int:
    """Runs `t2t-lite-decoder`; returns its exit code."""
    return command.run(make_parser(), decode, argv)


if __name__ == "__main__":
    raise SystemExit(main())
