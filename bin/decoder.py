r"""Translate lines of text with a trained model.

Reads stdin and writes stdout, or works on files, or prompts for lines. Line i
out answers line i in. With --score it reads lines `source<TAB>target` and
writes the score of each pair.
"""

import argparse
import contextlib
import dataclasses
import hashlib
import io
import itertools
import json
import pathlib
import signal
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import t2t_lite
from t2t_lite.api import LoadedTranslator
from t2t_lite.bin.cli import command, flags, io_paths, runs
from t2t_lite.bin.cli.command import Command
from t2t_lite.corpus.lines import lines_without_mark, open_compressed
from t2t_lite.decoding.batching import DEFAULT_BATCHING, Batching
from t2t_lite.decoding.resumable_output import open_resumable
from t2t_lite.errors import T2TLiteError
from t2t_lite.problem import Problem
from t2t_lite.progress import Counter
from t2t_lite.tokenizers.tags import check_tag
from t2t_lite.validators import integer

if TYPE_CHECKING:
    from t2t_lite.decoding.requests import Pair, Request
    from t2t_lite.decoding.results import PairScore, Translation
    from t2t_lite.training.run import Run

# Each flag conflicts with those after it.
_CONFLICTS = (
    ("score", "tokenize", "jit", "mbr", "token_scores"),
    ("split_sentences", "score", "mbr", "token_scores", "alignment"),
    ("split_sentences", "tokenize", "nbest"),
    ("interactive", "decode_from_file", "decode_to_file", "score"),
)
_REQUIRED = runs.REQUIRED | {
    "token_scores": "format=json",
}
_DETAILS = ("token_scores", "alignment")
# Flags that cannot change the answers, and those that name the run and its
# weights, which are compared by their checksums.
_SAME_ANSWERS = {
    *("batch_size", "batch_tokens", "replicas", "verbose", "interactive"),
    *("decode_from_file", "decode_to_file", "overwrite"),
    *("problem", "hparams", "output_dir", "usr_dir", "checkpoint"),
}


def _add_flags(parser: flags.Parser) -> None:
    flags.add_run_flags(parser)
    flags.add_search_flags(parser)
    runs.add_engine_flags(parser)
    group = parser.add_argument_group("input and output")
    table = {
        "--decode_from_file=FILE": "compressed or not (default: stdin)",
        "--decode_to_file=FILE": "grows as FILE.partial and is renamed when "
        "complete; after a stop the same command resumes it (default: stdout)",
        "--overwrite": "start a FILE.partial that is there from the beginning",
        "--interactive": "prompt for a line, translate it, prompt again; ends "
        "at Ctrl-D",
        "--score": "score lines `source<TAB>target` instead of translating",
        "--tag=TAG": "put this tag of the problem's corpora before each source "
        "text, such as the target language; see --pairs",
        "--split_sentences": "the lines are paragraphs: translate each "
        "sentence separately and join the translations",
        "--tokenize": "the lines are raw text: first split them into words as "
        "the problem's corpus does, for example a treebank",
    }
    flags.add(group, table)
    told = (
        "write the N best translations of each line, best first, separated by "
        "TABs; at most --beam_size, or any number with --sample"
    )
    flags.add(group, {"--nbest=N": told}, integer(1))
    told = (
        'json: one request a line, {"text", "id", "prefix", "constraints", '
        '"bad_phrases", "seed", "tag"}, or with --score {"source", "target", '
        '"id", "tag"}; any other line is answered with {"error"}'
    )
    kinds = ("text", "json")
    flags.add_choice(group, "input_format", told, *kinds, default="text")
    told = (
        'json: one object a line, {"line", "source", "hypotheses": [{"text", '
        '"score", "tokens"}]} (default: as --input_format)'
    )
    flags.add_choice(group, "format", told, *kinds)
    group = parser.add_argument_group("details")
    told = (
        "with --format=json, add the log-probability and the piece of each "
        "token; --score always adds them"
    )
    flags.add(group, {"--token_scores": told})
    told = (
        "the source of each word, as `0-0 1-2` (source-target) after "
        "` ||| `, or in JSON"
    )
    flags.add_choice(group, "alignment", told, "words")
    told = (
        "of the --nbest=N translations of a line (default: --beam_size) print "
        "the one most similar to all of them; JSON has them all, with their "
        "utility"
    )
    flags.add_choice(group, "mbr", told, "chrf")


def _decode(args: argparse.Namespace) -> None:
    """Translate or score the lines that the flags name."""
    args.format = args.format or args.input_format
    flags.check_together(args, _CONFLICTS, _REQUIRED)
    io_paths.check_paths(args.decode_from_file, args.decode_to_file)
    if args.interactive:
        command.note("Loading the model.")
        args.replicas = 1
    run = runs.open_run(args)
    if args.tag:
        args.tag = check_tag(args.tag, run.problem.source_tags)
    asked = _asked(args, run)
    replicas = runs.make_replicas(run, args)
    translator = LoadedTranslator(str(run.output_dir), lambda: replicas, run)
    with command.LineNotes(args.verbose or args.interactive) as note:
        answers = _Answers(translator, run.problem, args, note)
        if args.interactive:
            translator("", nbest=args.nbest)  # so that the first line is quick
            _converse(answers)
        else:
            command.interruptible(
                lambda: _write(answers, asked, args, len(replicas)),
                *(signal.SIGINT, signal.SIGTERM),
            )
    if answers.errors:
        raise T2TLiteError(
            f"{answers.errors:,} request(s) had an error instead of an answer; "
            f"the last: {answers.last_error}"
        )


class _Answers:
    """The output lines of input lines, as the flags say.

    Args:
      translator: of the lines.
      problem: of the model.
      args: the flags.
      note: called with the number of a line and a warning.

    Attributes:
      errors: the number of requests that have an error instead of an answer.
      last_error: the last of these errors.
    """

    def __init__(
        self,
        translator: LoadedTranslator,
        problem: Problem,
        args: argparse.Namespace,
        note: Callable[[int, str], None],
    ):
        self._translator, self._problem = translator, problem
        self._args, self._note = args, note
        self.errors, self.last_error = 0, ""

    def __call__(
        self,
        lines: Iterable[bytes],
        first_line: int = 1,
        batching: Batching = DEFAULT_BATCHING,
    ) -> Iterator[str]:
        """Yield the output for each line, in their order."""
        args = self._args
        how = {
            "batching": batching,
            "first_line": first_line,
            "note": self._note,
        }
        options = {name: getattr(args, name) for name in _DETAILS}
        if args.score:
            pairs = map(self._pair, lines)
            results: Any = self._translator.score_stream(pairs, how, **options)
        else:
            for name in ("nbest", "mbr", "split_sentences"):
                options[name] = getattr(args, name)
            requests = map(self._request, lines)
            results = self._translator.stream(requests, how, **options)
        for result in results:
            if result.error:
                yield self._error(result)
            elif args.format == "json":
                yield _json(result)
            elif args.score:
                yield _with_alignment(f"{result.score:.6f}", result.alignment)
            else:
                yield self._text(result)

    def _request(self, line: bytes) -> "Request":
        from t2t_lite.decoding.requests import Request

        args = self._args
        in_json = args.input_format == "json"
        request = Request.parse(line) if in_json else Request(line)
        request = self._tagged(request)
        if args.tokenize:
            words = self._problem.tokenize(request.text)
            request = dataclasses.replace(request, text=words)
        return request

    def _text(self, translation: "Translation") -> str:
        args = self._args
        texts = [
            _with_alignment(each.text, each.alignment)
            for each in translation.hypotheses
        ]
        if args.nbest in (None, 1) or args.mbr:
            return texts[0]
        # A TAB inside a text must not look like a separator.
        return "\t".join(text.replace("\t", " ") for text in texts)

    def _pair(self, line: bytes) -> "Pair":
        from t2t_lite.decoding.requests import Pair

        in_json = self._args.input_format == "json"
        return self._tagged(Pair.parse(line) if in_json else Pair.split(line))

    def _tagged(self, item: Any) -> Any:
        return dataclasses.replace(item, tag=item.tag or self._args.tag or "")

    def _error(self, answer: "Translation | PairScore") -> str:
        """Count an error; return its JSON, or an empty line of text."""
        self.errors, self.last_error = self.errors + 1, str(answer.error)
        if self._args.format == "json":
            return _json(answer)
        self._note(answer.line, str(answer.error))
        return ""


def _json(answer: "Translation | PairScore") -> str:
    """Return an answer on one line; characters outside UTF-8 are escaped."""
    text = json.dumps(answer.to_dict(), ensure_ascii=False)
    return text.encode("utf-8", "backslashreplace").decode()


def _with_alignment(
    text: str, alignment: Sequence[Sequence[int]] | None
) -> str:
    if alignment is None:
        return text
    pairs = " ".join(f"{source}-{target}" for source, target in alignment)
    return f"{text} ||| {pairs}"


def _write(
    answers: _Answers,
    asked: Mapping[str, Any],
    args: argparse.Namespace,
    replicas: int,
) -> None:
    """Write the answers to `--decode_to_file`, which may be resumed, or stdout.

    Progress on stderr would disturb answers on a terminal.
    """
    total, sha256 = _measure(args.decode_from_file)
    batching = Batching(args.batch_size, args.batch_tokens, prompt=not sha256)
    opened: Any = contextlib.nullcontext((_print, 0))
    path = pathlib.Path(args.decode_to_file or "")
    if args.decode_to_file:
        record = {"input": sha256, **asked} if sha256 else None
        opened = open_resumable(path, record, args.overwrite, command.note)
    with io_paths.open_lines(args.decode_from_file) as lines, opened as output:
        write, kept = output
        if kept:
            command.note(f"Resuming after line {kept:,}.")
        # Lines that were sorted together are sorted together again, so that
        # scores are the same to the last bit.
        start = kept - kept % batching.chunk(replicas)
        rest = itertools.islice(lines, start, None)
        found = answers(rest, start + 1, batching)
        left = None if total is None else total - kept
        shown = bool(args.decode_to_file) or not sys.stdout.isatty()
        with Counter("decoding", "lines", shown, left) as counter:
            for answer in itertools.islice(found, kept - start, None):
                write(answer)
                counter.advance(1)


def _print(line: str) -> None:
    print(line, flush=True)


def _measure(path: str | None) -> tuple[int | None, str | None]:
    """Return the number of lines of a file, and the SHA-256 of its text.

    Both are None for stdin and for a pipe.
    """
    if not (path and pathlib.Path(path).is_file()):
        return None, None
    sha256, count = hashlib.sha256(), 0
    with open_compressed(path) as file:
        for line in file:
            sha256.update(line)
            count += 1
    return count, sha256.hexdigest()


def _asked(args: argparse.Namespace, run: "Run") -> dict[str, Any]:
    """Return all that answers depend on, except the lines; fix the weights."""
    weights = [
        found
        for _, found in run.ensemble(
            args.checkpoint, flags.ensemble_members(args)
        )
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


def _converse(answers: _Answers) -> None:
    """Answer each line that is typed, until the end of input."""
    if isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(errors="replace")
    with contextlib.suppress(ImportError):
        import readline  # noqa: F401 (gives `input` a history)
    lines = lines_without_mark(_typed(), "stdin")
    for number, line in enumerate(lines, 1):
        for answer in answers([line], number):
            _print(answer)


def _typed() -> Iterator[bytes]:
    prompt = "> " if sys.stdin.isatty() else ""
    with contextlib.suppress(EOFError):
        while True:
            yield input(prompt).encode("utf-8", "surrogatepass")


main = Command("t2t-lite-decoder", __doc__, _add_flags, _decode)
