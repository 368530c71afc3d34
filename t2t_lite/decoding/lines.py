"""Streams of lines to their translations or scores, in the order of input."""

import dataclasses
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
import tensorflow as tf

from t2t_lite.decoding.log_probs import is_possible
from t2t_lite.decoding.streaming import map_sorted
from t2t_lite.decoding.translator import Translator
from t2t_lite.errors import T2TLiteError
from t2t_lite.text.encoder import EOS_ID, PAD_ID

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
      hypotheses: best first, at least one.
    """

    line: int
    source: str
    hypotheses: list[Hypothesis]

    def to_dict(self) -> dict[str, Any]:
        """All of it, fit for JSON; facts stand beside text and score."""
        record = dataclasses.asdict(self)
        for hypothesis in record["hypotheses"]:
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
    """

    line: int
    source: str
    target: str
    score: float
    log_probability: float
    tokens: int


def translate_lines(
    translator: Translator,
    lines: Iterable[str | bytes],
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
        file.
      batch_size: lines translated together.
      num_hypotheses: hypotheses a line, at most the translator's beam size.
      complete: `Problem.complete`; None gives what the model wrote.
      note: called with a line number and what the user should know about
        that line; by default it is logged as a warning.

    Raises:
      T2TLiteError: the model's scores are no numbers.
    """

    def record(line: int, texts: list[str], answer: _Answer) -> Translation:
        (source,) = texts
        hypotheses = hypotheses_of(answer, line)
        if complete:
            for k, each in enumerate(hypotheses):
                text, facts = complete(source, each.text)
                hypotheses[k] = dataclasses.replace(
                    each, text=text, facts=facts
                )
        return Translation(line, source, hypotheses)

    return _ask(
        lambda texts: translator.translate(texts, num_hypotheses),
        record,
        ((line,) for line in lines),
        batch_size,
        translator.max_length,
        note,
    )


def score_pairs(
    translator: Translator,
    pairs: Iterable[Sequence[str | bytes]],
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

    def record(line: int, texts: list[str], answer: _Answer) -> PairScore:
        if not is_possible(answer["log_probabilities"]):
            raise _not_a_number(line)
        source, target = texts
        return PairScore(
            line,
            source,
            target,
            score=float(answer["scores"]),
            log_probability=float(answer["log_probabilities"]),
            tokens=int(answer["lengths"]),
        )

    return _ask(
        translator.score, record, pairs, batch_size, translator.max_length, note
    )


def _ask(
    graph: Callable[..., Mapping[str, tf.Tensor]],
    record: Callable[[int, list[str], _Answer], Result],
    rows: Iterable[Sequence[str | bytes]],
    batch_size: int,
    max_length: int,
    note: Callable[[int, str], None] | None,
) -> Iterator[Result]:
    """What a graph answers to each row of texts, as records, in their order."""
    note = note or log_note

    def ask(
        batch: list[tuple[int, list[bytes]]],
    ) -> Iterator[tuple[Result, bool]]:
        columns = zip(*(texts for _, texts in batch), strict=True)
        answers = graph(*(tf.constant(column) for column in columns))
        values = {name: value.numpy() for name, value in answers.items()}
        for place, (line, texts) in enumerate(batch):
            answer = {name: value[place] for name, value in values.items()}
            decoded = [text.decode("utf-8", "replace") for text in texts]
            yield record(line, decoded, answer), bool(answer["cut"])

    answered = map_sorted(
        (
            (line, [strip_line_end(text) for text in texts])
            for line, texts in enumerate(rows, start=1)
        ),
        ask,
        batch_size,
        length=lambda item: sum(map(len, item[1])),
    )
    for line, (result, cut) in enumerate(answered, start=1):
        if cut:
            note(line, _CUT.format(max_length))
        yield result


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
