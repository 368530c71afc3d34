r"""Translates lines of text with a trained model.

Reads stdin and writes stdout, or works on files, or asks you for lines. Line i
out answers line i in. With --score it reads lines `source<TAB>target` and gives
the score of each pair.
"""

import argparse
import contextlib
import hashlib
import io
import itertools
import pathlib
import signal
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import t2t_lite
from t2t_lite.bin.cli import (
    backend,
    command,
    flags,
    places,
    runs,
)
from t2t_lite.bin.cli.answers import Answers, add_answer_flags, check_answers
from t2t_lite.corpus.lines import lines_without_mark, open_packed
from t2t_lite.decoding.streams.batching import Batching
from t2t_lite.decoding.streams.growing_file import grow
from t2t_lite.errors import UsageError
from t2t_lite.progress import Counter
from t2t_lite.text.tags import known_tag

if TYPE_CHECKING:
    from t2t_lite.training.run import Run


def make_parser() -> flags.Parser:
    """The flags of `t2t-lite-decoder`."""
    parser = flags.Parser("t2t-lite-decoder", __doc__)
    flags.add_run_flags(parser)
    flags.add_search_flags(parser)
    backend.add_flags(parser)
    group = parser.add_argument_group("what goes in and out")
    table = {
        "--decode_from_file=FILE": "packed or not (default: stdin)",
        "--decode_to_file=FILE": "grows as FILE.partial and is renamed when "
        "complete; after a stop the same command goes on (default: stdout)",
    }
    flags.add(group, table)
    switches = {
        "--overwrite": "start a FILE.partial anew that is there",
        "--interactive": "ask for a line, translate it, ask again; ends at "
        "Ctrl-D",
        "--score": "score lines `source<TAB>target` instead of translating",
    }
    flags.add(group, switches)
    told = (
        "write the N best translations of each line, best first, separated by "
        "TABs; at most --beam_size, or any number with --sample"
    )
    flags.add(group, {"--nbest=N": told}, flags.at_least(1), default=1)
    told = (
        "put this tag of the problem's corpora before each source text, such "
        "as the target language; see --pairs"
    )
    flags.add(group, {"--tag=TAG": told})
    group.add_argument(
        "--input_format",
        choices=["text", "json"],
        default="text",
        help='json: one request a line, {"text", "id", "prefix", '
        '"constraints", "avoid", "seed", "tag"}, or with --score {"source", '
        '"target", "id", "tag"}; a line that is none is answered with '
        '{"error"}',
    )
    group.add_argument(
        "--format",
        choices=["text", "json"],
        help='json: one object a line, {"line", "source", "hypotheses": '
        '[{"text", "score", "tokens"}]} (default: as --input_format)',
    )
    switches = {
        "--split_sentences": "the lines are paragraphs: translate each "
        "sentence by itself and join them again",
        "--tokenize": "the lines are raw text: first split them into words as "
        "the problem's corpus does, for example a treebank",
        "--draw": "draw each tree, with an empty line after it",
    }
    flags.add(group, switches)
    add_answer_flags(parser)
    return parser


def decode(args: argparse.Namespace) -> None:
    """Translates or scores what the flags name."""
    args.format = args.format or args.input_format
    _check(args)
    check_answers(args)
    backend.check(args)
    if args.interactive:
        command.note("Loading the model.")
        args.replicas = 1
    run = runs.open_run(args)
    if args.draw and run.problem.text_form(run.encoders) is None:
        raise UsageError(
            f"--draw is for trees; the answers of {run.problem.name} are plain "
            "text: leave it out."
        )
    if args.tag:
        args.tag = known_tag(args.tag, run.problem.source_tags)
    asked = _asked(args, run)
    replicas = backend.make_replicas(run, args)
    most = replicas[0].translator.most_hypotheses
    if args.mbr and args.nbest == 1:
        if most is None:
            raise UsageError("--mbr over samples needs --nbest, their number.")
        args.nbest = most
    if most is not None and args.nbest > most:
        raise UsageError(
            "--nbest must be at most the beam size; got "
            f"nbest={args.nbest}, beam_size={most}."
        )
    with (
        command.LineNotes(args.verbose or args.interactive) as note,
        command.ended_at_once_by(
            "t2t-lite-decoder", signal.SIGINT, signal.SIGTERM
        ),
    ):
        answers = Answers(run, replicas, args, note)
        if args.interactive:
            replicas[0].translator.warm_up(args.nbest)
            _converse(answers)
        else:
            _answer_lines(answers, asked, args, len(replicas))
    answers.require_no_errors()


def _check(args: argparse.Namespace) -> None:
    """Refuses what cannot work before the model is loaded."""
    source, target = args.decode_from_file, args.decode_to_file
    for flag in ("draw", "tokenize"):
        if getattr(args, flag) and args.score:
            raise UsageError(f"--{flag} does not go with --score.")
    if args.jit and args.score:
        raise UsageError("--jit compiles searches; --score has none.")
    if args.draw and (args.format == "json" or args.nbest > 1):
        raise UsageError(
            "--draw shows one tree for each line: leave out --format=json and "
            "--nbest."
        )
    if args.split_sentences:
        for flag in ("score", "mbr", "token_scores", "alignment", "tokenize"):
            if getattr(args, flag):
                raise UsageError(
                    f"--{flag} does not go with --split_sentences."
                )
        if args.nbest > 1:
            raise UsageError(
                "--split_sentences gives one translation of each line; got "
                f"--nbest={args.nbest}."
            )
    if args.interactive and (source or target or args.score):
        raise UsageError(
            "--interactive asks for lines: leave out --decode_from_file, "
            "--decode_to_file and --score."
        )
    places.check(source, target, grows=True)


def _answer_lines(
    answers: Answers,
    asked: dict[str, Any],
    args: argparse.Namespace,
    replicas: int,
) -> None:
    """Answers what `--decode_from_file` or stdin holds, and shows progress."""
    source = args.decode_from_file
    total = sha256 = None
    if source and pathlib.Path(source).is_file():
        total, sha256 = _measure(source)
    if not args.decode_to_file:
        # Answers on the terminal show by themselves how far it is.
        shown = not sys.stdout.isatty()
        with (
            places.lines_in(source) as lines,
            Counter("decoding", "lines", shown, total) as counter,
        ):
            for answer in answers(lines, prompt=sha256 is None):
                if answer is not None:
                    print(answer, flush=True)
                counter.advance(1)
        return
    path = pathlib.Path(args.decode_to_file)
    batching = Batching(args.batch_size, args.batch_tokens, prompt=not sha256)
    # A drawing has several lines, a summary is of all pairs.
    goes_on = sha256 and not (args.draw or args.summary)
    record = {"input": sha256, **asked} if goes_on else None
    with (
        places.lines_in(source) as lines,
        grow(path, record, args.overwrite, command.note) as out,
    ):
        if out.kept:
            command.note(f"Going on behind line {out.kept:,}.")
        # The lines that were sorted together are so again: then no bit of a
        # score differs from what it would be without the stop.
        start = out.kept - out.kept % batching.chunk(replicas)
        lines = iter(lines)
        kept = zip(
            itertools.islice(lines, start), out.kept_lines(), strict=False
        )
        for number, (line, answered) in enumerate(kept, 1):
            answers.count_kept(number, line, answered)
        found = answers(lines, start + 1, batching.prompt)
        left = None if total is None else total - out.kept
        with Counter("decoding", "lines", total=left) as counter:
            for answer in itertools.islice(found, out.kept - start, None):
                if answer is not None:
                    out.write(answer)
                counter.advance(1)


def _measure(path: str) -> tuple[int, str]:
    """How many lines a file has, and the SHA-256 of their bytes."""
    sha256 = hashlib.sha256()
    count = 0
    with open_packed(path) as file:
        for line in file:
            sha256.update(line)
            count += 1
    return count, sha256.hexdigest()


# Flags that change the speed or the place of the answers, and what names the
# run and its weights, of which more is said.
_SAME_ANSWERS = {
    *("batch_size", "batch_tokens", "replicas", "verbose", "interactive"),
    *("decode_from_file", "decode_to_file", "overwrite"),
    *("problem", "hparams", "output_dir", "usr_dir", "checkpoint"),
}


def _asked(args: argparse.Namespace, run: "Run") -> dict[str, Any]:
    """All that answers follow from besides the lines; settles the weights."""
    weights = [
        found for _, found in run.ensemble(args.checkpoint, flags.members(args))
    ]
    args.checkpoint = str(weights[0].path)
    return {
        "weights": [str(each.path) for each in weights],
        "checksum of the weights": [each.checksum for each in weights],
        "vocabulary": run.config["vocabulary"],
        "version": t2t_lite.__version__,
    } | {
        f"--{name}": value
        for name, value in vars(args).items()
        if name not in _SAME_ANSWERS
    }


def _converse(answers: Answers) -> None:
    """Answers each line that is typed, until the end of input."""
    if isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(errors="replace")
    with contextlib.suppress(ImportError):
        import readline  # noqa: F401 (gives `input` a history)
    lines = lines_without_mark(_typed(), "stdin")
    for number, line in enumerate(lines, 1):
        for answer in answers([line], number):
            print(answer, flush=True)


def _typed() -> Iterator[bytes]:
    """The lines that are typed."""
    prompt = "> " if sys.stdin.isatty() else ""
    with contextlib.suppress(EOFError):
        while True:
            yield input(prompt).encode("utf-8", "surrogatepass")


def main(argv: list[str] | None = None) -> int:
    """Runs `t2t-lite-decoder`; returns its exit code."""
    return command.run(make_parser(), decode, argv)


if __name__ == "__main__":
    raise SystemExit(main())
