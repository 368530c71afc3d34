"""Print the answers of the decoder: translations or scores of lines."""

import argparse
import dataclasses
import itertools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from t2t_lite.bin.cli import flags
from t2t_lite.errors import T2TLiteError, UsageError

if TYPE_CHECKING:
    from t2t_lite.decoding.answers import PairScore, Translation
    from t2t_lite.decoding.streams.replicas import Replica
    from t2t_lite.training.run import Run


def add_answer_flags(parser: flags.Parser) -> None:
    """Add the flags that add to each answer, or choose one."""
    group = parser.add_argument_group("what else is told of an answer")
    told = {
        "--token_scores": "with --format=json, the log-probability and the "
        "piece of each token; --score tells them anyway",
        "--summary": "with --score, only one report on all of the pairs: "
        "cross-entropy and perplexity",
    }
    flags.add(group, told)
    group.add_argument(
        "--alignment",
        choices=["tokens", "words"],
        help="which of the source each token or word is from, as `0-0 1-2` "
        "(source-target) behind ` ||| `, or in JSON",
    )
    layer = "the decoder layer that --alignment asks (default: last but one)"
    flags.add(group, {"--alignment_layer=N": layer}, flags.at_least(1))
    group.add_argument(
        "--mbr",
        choices=["chrf"],
        help="of the --nbest=N translations of a line (default: --beam_size) "
        "give the one that is most like all of them; JSON has them all, with "
        "their utility",
    )


def check_answers(args: argparse.Namespace) -> None:
    """Raise UsageError for flags that conflict."""
    if args.token_scores and (args.format != "json" or args.score):
        raise UsageError(
            "--token_scores is for hypotheses in JSON: give --format=json, "
            "with which --score tells them by itself."
        )
    if args.summary and (not args.score or args.alignment):
        raise UsageError(
            "--summary reports on pairs: give --score, without --alignment."
        )
    if args.alignment and args.draw:
        raise UsageError("--alignment does not go with --draw.")
    if args.alignment_layer and not args.alignment:
        raise UsageError("--alignment_layer needs --alignment=tokens or words.")
    if args.mbr and args.score:
        raise UsageError("--mbr chooses a translation: leave out --score.")


class Answers:
    """Translates or scores lines, as the flags ask.

    Args:
      run: whose problem and translators these are.
      replicas: what translates.
      args: the flags.
      note: is told the number of a line and a remark on it.
    """

    def __init__(
        self,
        run: "Run",
        replicas: "Sequence[Replica]",
        args: argparse.Namespace,
        note: Callable[[int, str], None],
    ):
        self._run = run
        self._replicas = replicas
        self._args = args
        self._note = note
        self._split = None
        if args.split_sentences:
            from t2t_lite.decoding.streams.paragraphs import splitter_of

            self._split = splitter_of(run.problem, run.encoders)
        self._details = None
        pairs_in_json = (
            args.score and args.format == "json" and not args.summary
        )
        if args.token_scores or args.alignment or pairs_in_json:
            from t2t_lite.decoding.token_details import TokenDetails

            self._details = TokenDetails(
                replicas[0].translator,
                token_scores=args.token_scores,
                alignment=args.alignment,
                alignment_layer=args.alignment_layer,
            )
        self._errors = 0
        self._last_error = ""

    def __call__(
        self,
        lines: Iterable[bytes],
        first_line: int = 1,
        prompt: bool = True,
    ) -> Iterator[str | None]:
        """What to print for each line, in their order; None: nothing."""
        answer = self._scores if self._args.score else self._translations
        return answer(lines, first_line, prompt)

    def count_kept(self, number: int, line: bytes, answer: bytes) -> None:
        """Counts an answer of before, which may be an error.

        Args:
          number: of the line.
          line: what was asked.
          answer: what was written.
        """
        if self._args.input_format != "json":
            return
        if self._args.format == "json":
            error = json.loads(answer).get("error")
            if error is not None:
                self._count_error(error)
        elif answer == b"\n":  # an error or a request without text: ask again
            list(self([line], number))

    def _count_error(self, error: str) -> None:
        self._errors += 1
        self._last_error = error

    def require_no_errors(self) -> None:
        """Raises T2TLiteError if there were such requests."""
        if self._errors:
            raise T2TLiteError(
                f"{self._errors:,} request(s) had an error instead of an "
                f"answer; the last: {self._last_error}"
            )

    def _translations(
        self, lines: Iterable[bytes], first_line: int, prompt: bool
    ) -> Iterator[str | None]:
        from t2t_lite.decoding.lines import translate_lines
        from t2t_lite.decoding.streams.requests import Request
        from t2t_lite.decoding.texts import decoded

        args, problem = self._args, self._run.problem
        is_json = args.input_format == "json"
        requests: Iterable[Request]
        requests = map(Request.parse if is_json else Request, lines)
        if args.tag:
            requests = (
                dataclasses.replace(request, tag=request.tag or args.tag)
                for request in requests
            )
        if args.tokenize:
            requests = (
                dataclasses.replace(
                    request, text=problem.tokenize(decoded(request.text))
                )
                for request in requests
            )
        for translation in translate_lines(
            self._replicas,
            requests,
            batch_size=args.batch_size,
            batch_tokens=args.batch_tokens,
            prompt=prompt,
            first_line=first_line,
            num_hypotheses=args.nbest,
            complete=problem.complete,
            details=self._details,
            mbr=args.mbr,
            split=self._split,
            tags=problem.source_tags,
            note=self._note,
        ):
            yield self._shown(translation)

    def _shown(self, translation: "Translation") -> str | None:
        args = self._args
        if translation.error:
            return self._refusal(translation)
        if args.format == "json":
            return _json(translation)
        texts = [
            _with_alignment(each.text, each.alignment)
            for each in translation.hypotheses
        ]
        if args.draw:
            return _drawn(texts[0])
        if args.nbest == 1 or args.mbr:
            return texts[0]
        # A tab inside a text must not look like a border.
        return "\t".join(text.replace("\t", " ") for text in texts)

    def _scores(
        self, lines: Iterable[bytes], first_line: int, prompt: bool
    ) -> Iterator[str | None]:
        from t2t_lite.decoding.answers import ScoreSummary
        from t2t_lite.decoding.lines import score_pairs, split_pairs
        from t2t_lite.decoding.streams.requests import Pair

        args = self._args
        in_json = args.format == "json"
        summary = ScoreSummary()
        pairs: Iterable[Pair]
        if args.input_format == "json":
            pairs = map(Pair.parse, lines)
        else:
            pairs = itertools.starmap(Pair, split_pairs(lines, first_line))
        if args.tag:
            pairs = (pair._replace(tag=pair.tag or args.tag) for pair in pairs)
        for pair in score_pairs(
            self._replicas,
            pairs,
            batch_size=args.batch_size,
            batch_tokens=args.batch_tokens,
            prompt=prompt,
            first_line=first_line,
            details=self._details,
            tags=self._run.problem.source_tags,
            note=self._note,
        ):
            summary.add(pair)
            if pair.error:
                yield self._refusal(pair)
            elif args.summary:
                yield None
            elif in_json:
                yield _json(pair)
            else:
                score = f"{pair.score:.6f}"
                yield _with_alignment(score, pair.alignment)
        if args.summary:
            report = summary.report()
            yield json.dumps(report) if in_json else _as_text(report)

    def _refusal(self, answer: "Translation | PairScore") -> str | None:
        """What stands for an answer with an error: as text, an empty line."""
        self._count_error(str(answer.error))
        if self._args.format == "json" and not self._args.summary:
            return _json(answer)
        self._note(answer.line, str(answer.error))
        return None if self._args.summary else ""


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


def _with_alignment(
    text: str, alignment: Sequence[Sequence[int]] | None
) -> str:
    """The text, and behind it its alignment if there is one."""
    if alignment is None:
        return text
    from t2t_lite.decoding.token_details import pharaoh

    return f"{text} ||| {pharaoh(alignment)}"


def _as_text(summary: Mapping[str, Any]) -> str:
    """A summary on one line, to read; "none" stands for None."""
    return "  ".join(
        f"{name} {_number_or_none(value)}" for name, value in summary.items()
    )


def _number_or_none(value: float | None) -> str:
    if value is None:
        return "none"
    return f"{value:.4f}" if isinstance(value, float) else str(value)
