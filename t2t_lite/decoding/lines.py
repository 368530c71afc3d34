"""Streams of lines to their translations or scores, in the order of input."""

import dataclasses
import logging
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
import tensorflow as tf

from t2t_lite.decoding.log_probs import is_possible
from t2t_lite.decoding.requests import Pair, Request
from t2t_lite.decoding.streaming import map_sorted
from t2t_lite.decoding.translator import Translator
from t2t_lite.errors import T2TLiteError
from t2t_lite.text.encoder import EOS_ID, PAD_ID

Asked = TypeVar("Asked", Request, Pair)
Result = TypeVar("Result")
_Answer = Mapping[str, Any]  # the values of one row by name

_CUT = (
    "a text may have {} tokens (max_length, EOS included); what is beyond was "
    "left out."
)


@dataclasses.dataclass(frozen=True)
class Hypothesis:
    """One translation.

    Attributes:
      text: one line, without its end.
      score: log-probability / ((5 + length) / 6) ** alpha.
      tokens: the ids, with the EOS unless it was cut at the limit; None of an
        export, which does not tell them.
      facts: what the problem says of it, see `Problem.complete`.
    """

    text: str
    score: float
    tokens: list[int] | None
    facts: Mapping[str, Any] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Translation:
    """The answer to one line.

    Attributes:
      line: its number, from 1.
      source: the line without its end, U+FFFD for what is not UTF-8.
      hypotheses: best first, at least one; none of a request with an error.
      id: of the request.
      error: why the request is not answered.
    """

    line: int
    source: str
    hypotheses: list[Hypothesis]
    id: str | int | None = None
    error: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """All of it, fit for JSON; facts stand beside text and score."""
        record = _record(self)
        for hypothesis in record.get("hypotheses", ()):
            hypothesis |= hypothesis.pop("facts")
        return record


@dataclasses.dataclass(frozen=True)
class PairScore:
    """How likely a given translation is.

    Attributes:
      line: the number of the pair, from 1.
      source: its first text, U+FFFD for what is not UTF-8.
      target: its second text, likewise.
      score: log_probability / ((5 + tokens) / 6) ** alpha, as a hypothesis's.
      log_probability: natural logarithm, of the target with its EOS.
      tokens: how many the target has, EOS included.
      id: of the request.
      error: why the pair is not scored; the numbers say nothing then.
    """

    line: int
    source: str
    target: str
    score: float = math.nan
    log_probability: float = math.nan
    tokens: int = 0
    id: str | int | None = None
    error: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """All of it, fit for JSON."""
        return _record(self)


def _record(answer: Translation | PairScore) -> dict[str, Any]:
    """The fields of an answer; of one with an error, only what says so."""
    record = dataclasses.asdict(answer)
    if answer.error is not None:
        record = {name: record[name] for name in ("line", "id", "error")}
    return {
        name: value
        for name, value in record.items()
        if not (name in ("id", "error") and value is None)
    }


def translate_lines(
    translator: Translator,
    lines: Iterable[str | bytes | Request],
    *,
    batch_size: int = 32,
    num_hypotheses: int = 1,
    complete: Callable[[str, str], tuple[str, Mapping[str, Any]]] | None = None,
    note: Callable[[int, str], None] | None = None,
) -> Iterator[Translation]:
    r"""Translates a stream of lines, one answer a line, in their order.

    It answers the lines that have come without waiting for more, so `lines`
    may be a pipe or a person. The batch size changes the speed, not the
    answers.

    Args:
      translator: what translates.
      lines: each ends with "\n", "\r\n" or nothing; every other character,
        such as NUL or U+2028, belongs to the line. It may be an open binary
        file. A `Request` asks for more; the answer to one that cannot be met
        is its error.
      batch_size: lines translated together.
      num_hypotheses: hypotheses a line, at most the translator's beam size.
      complete: `Problem.complete`; None gives what the model wrote.
      note: called with a line number and what the user should know about
        that line; by default it is logged as a warning.

    Raises:
      T2TLiteError: the model's scores are no numbers.
    """

    def search(requests: Sequence[Request]) -> Mapping[str, tf.Tensor]:
        # Here what the requests ask for reaches the translator, in columns.
        texts = [strip_line_end(request.text) for request in requests]
        return translator.translate(tf.constant(texts), num_hypotheses)

    def answer(line: int, request: Request, found: _Answer) -> Translation:
        source = decoded(request.text)
        hypotheses = hypotheses_of(found, line)
        if complete:
            for k, each in enumerate(hypotheses):
                text, facts = complete(source, each.text)
                hypotheses[k] = dataclasses.replace(
                    each, text=text, facts=facts
                )
        return Translation(line, source, hypotheses, request.id)

    def refuse(line: int, request: Request) -> Translation:
        source = decoded(request.text)
        return Translation(line, source, [], request.id, request.error)

    return _ask(
        search,
        answer,
        refuse,
        map(_supported, lines),
        lambda request: len(request.text),
        batch_size,
        translator.max_length,
        note,
    )


# What a `Request` may ask for and the translator does not do yet.
_UNSUPPORTED = ("prefix", "constraints", "avoid", "seed")


def _supported(line: str | bytes | Request) -> Request:
    """The request of a line, with an error if it asks for what nobody does."""
    if not isinstance(line, Request):
        return Request(line)
    for name in _UNSUPPORTED:
        if line.error is None and getattr(line, name) not in ("", (), None):
            return dataclasses.replace(line, error=f"{name} is not supported.")
    return line


def score_pairs(
    translator: Translator,
    pairs: Iterable[Sequence[str | bytes] | Pair],
    *,
    batch_size: int = 32,
    note: Callable[[int, str], None] | None = None,
) -> Iterator[PairScore]:
    """Scores a stream of (source, target) pairs, in their order.

    Args:
      translator: whose model, encoders, alpha and longest length to use.
      pairs: texts, with or without line ends.
      batch_size: pairs scored together.
      note: as in `translate_lines`.

    Raises:
      T2TLiteError: the model's scores are no numbers.
    """

    def score(pairs: Sequence[Pair]) -> Mapping[str, tf.Tensor]:
        columns = [
            [strip_line_end(pair.source) for pair in pairs],
            [strip_line_end(pair.target) for pair in pairs],
        ]
        return translator.score(*map(tf.constant, columns))

    def answer(line: int, pair: Pair, found: _Answer) -> PairScore:
        if not is_possible(found["log_probabilities"]):
            raise _not_a_number(line)
        return PairScore(
            line,
            decoded(pair.source),
            decoded(pair.target),
            score=float(found["scores"]),
            log_probability=float(found["log_probabilities"]),
            tokens=int(found["lengths"]),
            id=pair.id,
        )

    def refuse(line: int, pair: Pair) -> PairScore:
        source, target = decoded(pair.source), decoded(pair.target)
        return PairScore(line, source, target, id=pair.id, error=pair.error)

    return _ask(
        score,
        answer,
        refuse,
        (
            pair if isinstance(pair, Pair) else Pair(pair[0], pair[1])
            for pair in pairs
        ),
        lambda pair: len(pair.source) + len(pair.target),
        batch_size,
        translator.max_length,
        note,
    )


def _ask(
    graph: Callable[[Sequence[Asked]], Mapping[str, tf.Tensor]],
    answer: Callable[[int, Asked, _Answer], Result],
    refuse: Callable[[int, Asked], Result],
    requests: Iterable[Asked],
    length: Callable[[Asked], int],
    batch_size: int,
    max_length: int,
    note: Callable[[int, str], None] | None,
) -> Iterator[Result]:
    """What a graph answers to each request, as records, in their order."""
    note = note or log_note

    def rows(batch: list[Asked]) -> Iterator[_Answer]:
        values = {name: x.numpy() for name, x in graph(batch).items()}
        for place in range(len(batch)):
            yield {name: value[place] for name, value in values.items()}

    answered = map_sorted(
        requests,
        lambda request: [] if request.error else [request],
        rows,
        batch_size,
        length,
    )
    for line, (request, found) in enumerate(answered, start=1):
        if not found:
            yield refuse(line, request)
            continue
        if found[0]["cut"]:
            note(line, _CUT.format(max_length))
        yield answer(line, request, found[0])


def split_pairs(lines: Iterable[bytes]) -> Iterator[list[bytes]]:
    r"""Splits lines `source<TAB>target`: `b"one\teins\n"` -> one, eins.

    Raises:
      T2TLiteError: a line has no tab, or more than one.
    """
    for number, line in enumerate(lines, start=1):
        sides = line.split(b"\t")
        if len(sides) != 2:
            raise T2TLiteError(
                "Pairs to score are lines source<TAB>target, one tab each; "
                f"line {number} has {len(sides) - 1} tabs."
            )
        yield sides


def strip_line_end(line: str | bytes) -> bytes:
    r"""The line as bytes, without "\n" or "\r\n" at its end."""
    if isinstance(line, str):
        # Lone surrogates become broken bytes, which the encoder cleans.
        line = line.encode("utf-8", "surrogatepass")
    return line.removesuffix(b"\n").removesuffix(b"\r")


def decoded(line: str | bytes) -> str:
    """The line as text, without its end, U+FFFD for what is not UTF-8."""
    return strip_line_end(line).decode("utf-8", "replace")


def hypotheses_of(answer: _Answer, line: int) -> list[Hypothesis]:
    """The hypotheses of one text.

    Args:
      answer: of a graph: `outputs` bytes [N] and `scores` [N], best first,
        and maybe `tokens` int32 [N, L]. Those that do not exist have scores
        that are not possible.
      line: the number of the text, for an error.

    Raises:
      T2TLiteError: the model's scores are no numbers.
    """
    if not is_possible(answer["scores"][0]):
        raise _not_a_number(line)
    return [
        Hypothesis(
            text=answer["outputs"][k].decode("utf-8", "replace"),
            score=float(score),
            tokens=_trim(answer["tokens"][k]) if "tokens" in answer else None,
        )
        for k, score in enumerate(answer["scores"])
        if is_possible(score)
    ]


def _trim(tokens: np.ndarray) -> list[int]:
    """Ids as a list, up to the EOS, or up to the zeros if there is none."""
    ids = tokens.tolist()
    if EOS_ID in ids:
        return ids[: ids.index(EOS_ID) + 1]
    while ids and ids[-1] == PAD_ID:
        ids.pop()
    return ids


def log_note(number: int, message: str) -> None:
    """Logs a remark on a line as a warning."""
    logging.getLogger("t2t_lite").warning("line %d: %s", number, message)


def _not_a_number(number: int) -> T2TLiteError:
    return T2TLiteError(
        "The scores of a model must be numbers; got NaN or infinities for "
        f"line {number}. The training diverged or the checkpoint is damaged: "
        "choose another with --checkpoint."
    )
