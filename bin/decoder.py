r"""Translate lines of text with a trained model.

The command reads stdin and writes stdout, reads and writes files, or prompts
for lines. Output line i is the translation of input line i. With --score, input
lines are `source<TAB>target`, and output lines are their scores.
"""

import argparse
import contextlib
import dataclasses
import functools
import hashlib
import io
import itertools
import signal
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeGuard

import t2t_lite
from t2t_lite.api import LoadedTranslator
from t2t_lite.bin.cli import command, flags, io_paths, runs
from t2t_lite.bin.cli.command import Command
from t2t_lite.corpus.lines import STDIN, check_byte_lines, open_compressed
from t2t_lite.decoding.batching import DEFAULT_BATCHING, Batching
from t2t_lite.decoding.requests import Pair, Request
from t2t_lite.decoding.resumable_output import open_resumable
from t2t_lite.errors import T2TLiteError
from t2t_lite.progress import Counter
from t2t_lite.tokenizers.tags import check_tag

if TYPE_CHECKING:
    from t2t_lite.training.run import Run

_print = functools.partial(print, flush=True)
# The first flag of each row conflicts with all others.
_CONFLICTS = (
    ("score", "tokenize", "jit", "mbr", "token_scores", "nbest", "sample"),
    ("split_sentences", "score", "mbr", "token_scores", "alignment"),
    ("split_sentences", "tokenize", "nbest"),
    ("interactive", "decode_from_file", "decode_to_file", "score"),
)
_STREAM_OPTIONS = (
    *("score", "nbest", "mbr", "split_sentences"),
    *("token_scores", "alignment"),
)
# Flags that cannot change the results, and flags of the run and its weights,
# which are compared by checksum.
_IGNORED_ON_RESUME = {
    *("batch_size", "batch_tokens", "replicas", "verbose", "interactive"),
    *("decode_from_file", "decode_to_file", "overwrite"),
    *("problem", "hparams", "output_dir", "usr_dir", "checkpoint"),
}


def _add_flags(parser: flags.Parser) -> None:
    flags.add_run_flags(parser)
    flags.add_search_flags(parser)
    runs.add_engine_flags(parser)
    group = parser.add_argument_group("Input")
    table = {
        "--decode_from_file=FILE": "input file, compressed or not (default: "
        "stdin)",
        "--interactive": "prompt for lines and translate each; end with Ctrl-D",
        "--score": "score lines `source<TAB>target` instead of translating",
        "--tag=TAG": "tag before each source text, such as the target "
        "language, for problems with tagged corpora; see --pairs",
        "--split_sentences": "translate each sentence of a line separately, "
        "for lines that are paragraphs",
        "--tokenize": "tokenize raw text like the corpus, such as a treebank",
    }
    flags.add(group, table)
    help_text = (
        'json: one request per line, {"text", "id", "prefix", "constraints", '
        '"bad_phrases", "seed", "tag"}, or with --score {"source", "target", '
        '"id", "tag"}; the result of an invalid line is {"error"}'
    )
    flags.add(group, {"--input_format=text|json": help_text}, default="text")
    group = parser.add_argument_group("Output")
    table = {
        "--decode_to_file=FILE": "output file, FILE.partial until it is "
        "complete; the same command resumes it (default: stdout)",
        "--overwrite": "start again instead of resuming FILE.partial",
        "--format=text|json": 'json: one object per line, {"line", "source", '
        '"hypotheses": [{"text", "score", "tokens"}]} (default: '
        "--input_format)",
        "--nbest=N": "number of translations per line, separated by TABs, the "
        "best first; at most --beam_size, or any number with --sample "
        "(default: 1)",
        "--token_scores": "with --format=json, add the log-probability and the "
        "text of each token; --score always adds them",
        "--alignment=words": "add the source word of each target word, as `0-0 "
        "1-2` (source-target) after ` ||| `, or in JSON",
        "--mbr=chrf": "minimum Bayes risk: print the hypothesis that is most "
        "similar to all --nbest=N hypotheses (default: --beam_size); JSON has "
        "all hypotheses with their utility",
    }
    flags.add(group, table)


def _decode(args: argparse.Namespace) -> None:
    args.format = args.format or args.input_format
    flags.check_together(args, _CONFLICTS, runs.REQUIRED)
    flags.check_together(args, (), {"token_scores": "format=json"})
    io_paths.check_paths(args.decode_from_file, args.decode_to_file)
    if args.interactive:
        command.note("Loading the model.")
        args.replicas = 1
    run = runs.open_run(args)
    if args.tag:
        tags = run.problem.source_tags or run.encoders["inputs"].tags
        args.tag = check_tag(args.tag, tags)
    resume_key = _resume_key(args, run)
    replicas = runs.make_replicas(run, args)
    translator = LoadedTranslator(str(run.output_dir), lambda: replicas, run)
    args.tokenize = args.tokenize and run.problem.tokenize
    errors: list[str] = []
    with command.line_notes(args.verbose or args.interactive) as note:
        arguments = translator, args, note, errors
        decode = functools.partial(_decode_lines, *arguments)
        if args.interactive:
            translator("", nbest=args.nbest)  # warm-up
            _run_interactive(decode)
        else:
            try:
                command.interruptible(
                    lambda: _write(decode, resume_key, args, len(replicas)),
                    *(signal.SIGINT, signal.SIGTERM),
                )
            except KeyboardInterrupt as error:
                to_file = args.decode_to_file and not args.overwrite
                if to_file and _is_file(args.decode_from_file):
                    raise command.ResumableInterrupt(*error.args) from None
                raise
    if errors:
        raise T2TLiteError(
            f"{len(errors):,} request(s) failed; the last error: {errors[-1]}"
        )


def _decode_lines(
    translator: LoadedTranslator,
    args: argparse.Namespace,
    note: Callable[[int, str], None],
    errors: list[str],
    lines: Iterable[bytes],
    first_line: int = 1,
    batching: Batching = DEFAULT_BATCHING,
    skip: int = 0,
) -> Iterator[str]:
    """Yield the output of each line, in input order; add to `errors`.

    The first `skip` lines are only checked; their output is empty.
    """
    stream = {"batching": batching, "first_line": first_line, "skip": skip}
    options = {name: getattr(args, name) for name in _STREAM_OPTIONS}
    items = (_parse(line, args) for line in lines)
    is_single = args.nbest is None or args.mbr
    for result in translator.stream(items, {**stream, "note": note}, **options):
        if result.error:
            errors.append(result.error)
            if args.format == "text":
                note(result.line, result.error)
        if args.format == "json" and result.line > skip:
            yield result.to_json()
        else:
            yield result.to_text(1 if is_single else args.nbest)


def _parse(line: bytes, args: argparse.Namespace) -> Request | Pair:
    item: Any
    if args.input_format == "json":
        item = (Pair if args.score else Request).parse(line)
    else:
        item = Pair.split(line) if args.score else Request(line)
    item = dataclasses.replace(item, tag=item.tag or args.tag or "")
    if args.tokenize:
        item = dataclasses.replace(item, text=args.tokenize(item.text))
    return item


def _write(
    decode: Callable[..., Iterator[str]],
    resume_key: Mapping[str, Any],
    args: argparse.Namespace,
    replicas: int,
) -> None:
    """Write the results to a resumable `--decode_to_file`, or to stdout.

    Progress is not shown if the results go to a terminal.
    """
    total, sha256 = _measure(args.decode_from_file)
    batching = Batching(args.batch_size, args.batch_tokens, not sha256)
    opened: Any = contextlib.nullcontext((_print, 0))
    path = Path(args.decode_to_file or "")
    if args.decode_to_file:
        record = {"input": sha256, **resume_key} if sha256 else None
        opened = open_resumable(path, record, args.overwrite, command.note)
    lines = io_paths.open_lines(args.decode_from_file)
    with opened as (write, num_kept):
        if num_kept:
            command.note(f"Resuming after line {num_kept:,}.")
        # Start at the same chunk of sorted lines, because scores depend in
        # their last bits on the batches.
        start = num_kept - num_kept % batching.chunk(replicas)
        results = decode(lines, 1, batching, start)
        left = None if total is None else total - num_kept
        shown = bool(args.decode_to_file) or not sys.stdout.isatty()
        with Counter("decoding", "lines", shown, left) as counter:
            for line in itertools.islice(results, num_kept, None):
                write(line)
                counter.advance(1)


def _is_file(path: str | None) -> TypeGuard[str]:
    return path not in (None, STDIN) and Path(str(path)).is_file()


def _measure(path: str | None) -> tuple[int | None, str | None]:
    """Return the number of lines of a file, and the SHA-256 of its content.

    Both are None for stdin and for pipes.
    """
    if not _is_file(path):
        return None, None
    sha256, count = hashlib.sha256(), 0
    with open_compressed(path) as file:
        for line in file:
            sha256.update(line)
            count += 1
    return count, sha256.hexdigest()


def _resume_key(args: argparse.Namespace, run: "Run") -> dict[str, Any]:
    """Return all facts that affect the results, and fix `args.checkpoint`."""
    members = flags.ensemble_members(args)
    weights = [each for _, each in run.ensemble(args.checkpoint, members)]
    args.checkpoint = str(weights[0].path)
    return {
        "weights": [str(each.path) for each in weights],
        "checksum of the weights": [each.checksum for each in weights],
        "vocabulary": run.config["vocabulary"],
        "version": t2t_lite.__version__,
    } | {
        f"--{name}": value
        for name, value in vars(args).items()
        if name not in _IGNORED_ON_RESUME
    }


def _run_interactive(decode: Callable[..., Iterator[str]]) -> None:
    if isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(errors="replace")
    with contextlib.suppress(ImportError):
        import readline  # noqa: F401 (adds a history to `input`)
    lines = check_byte_lines(_typed_lines(), STDIN)
    for number, line in enumerate(lines, 1):
        for result in decode([line], number):
            _print(result)


def _typed_lines() -> Iterator[bytes]:
    prompt = "> " if sys.stdin.isatty() else ""
    with contextlib.suppress(EOFError):
        while True:
            yield input(prompt).encode("utf-8", "surrogatepass")


main = Command("t2t-lite-decoder", __doc__, _add_flags, _decode)
