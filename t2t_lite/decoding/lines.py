"""Streams of lines to their translations or scores, in the order of input."""

import dataclasses
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from t2t_lite.decoding.beam_search import is_possible
from t2t_lite.decoding.streaming import map_sorted
from t2t_lite.decoding.translator import Translator
from t2t_lite.errors import T2TLiteError
from t2t_lite.text.encoder import EOS_ID, PAD_ID


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

    Answers to the lines that have come are given without waiting for more, so
    that `lines` may be a pipe or a person. The batch size changes the speed,
    not the answers.

    Args:
      translator: what translates.
      lines: each ends with "\n", "\r\n" or nothing; every other character,
        such as NUL or U+2028, belongs to the line. An open binary file does.
      batch_size: lines translated together.
      num_hypotheses: hypotheses a line, at most the translator's beam size.
      complete: `Problem.complete`; None gives what the model wrote.
      note: called with a line number and what the user should know about
        that line; by default it is logged as a warning.

    Raises:
      T2TLiteError: the model's scores are no numbers.
    """
    note = note or _log_note

    def translate(batch):
        answers = translator.translate(
            tf.constant([text for _, text in batch]), num_hypotheses
        )
        answers = {name: value.numpy() for name, value in answers.items()}
        for row, (number, text) in enumerate(batch):
            if answers["cut"][row]:
                note(number, _cut_note(translator, "translated"))
            source = text.decode("utf-8", "replace")
            hypotheses = hypotheses_of(
                *(
                    answers[name][row]
                    for name in ("outputs", "scores", "tokens")
                ),
                line=number,
            )
            if complete:
                hypotheses = [
                    _completed(each, *complete(source, each.text))
                    for each in hypotheses
                ]
            yield Translation(number, source, hypotheses)

    return map_sorted(
        ((number, _strip_line_end(line)) for number, line in _numbered(lines)),
        translate,
        batch_size,
        length=lambda item: len(item[1]),
    )


def score_pairs(
    translator: Translator,
    pairs: Iterable[tuple[str | bytes, str | bytes]],
    *,
    batch_size: int = 32,
    note: Callable[[int, str], None] | None = None,
) -> Iterator[PairScore]:
    """Scores a stream of (source, target) pairs, in their order.

    Args:
      translator: whose model, encoders, alpha and longest length to use.
      pairs: texts; line ends are no part of them.
      batch_size: pairs scored together.
      note: as of `translate_lines`.

    Raises:
      T2TLiteError: the model's scores are no numbers.
    """
    note = note or _log_note

    def score(batch):
        answers = translator.score(
            tf.constant([source for _, source, _ in batch]),
            tf.constant([target for _, _, target in batch]),
        )
        answers = {name: value.numpy() for name, value in answers.items()}
        for row, (number, source, target) in enumerate(batch):
            if answers["cut"][row]:
                note(number, _cut_note(translator, "scored"))
            if not is_possible(answers["log_probabilities"][row]):
                raise _not_a_number(number)
            yield PairScore(
                line=number,
                source=source.decode("utf-8", "replace"),
                target=target.decode("utf-8", "replace"),
                score=float(answers["scores"][row]),
                log_probability=float(answers["log_probabilities"][row]),
                tokens=int(answers["lengths"][row]),
            )

    return map_sorted(
        (
            (number, _strip_line_end(source), _strip_line_end(target))
            for number, (source, target) in _numbered(pairs)
        ),
        score,
        batch_size,
        length=lambda item: len(item[1]) + len(item[2]),
    )


def _numbered(lines):
    return enumerate(lines, start=1)


def _strip_line_end(line):
    r"""The line as bytes, without "\n" or "\r\n" at its end."""
    if isinstance(line, str):
        # Lone surrogates become broken bytes, which the encoder cleans.
        line = line.encode("utf-8", "surrogatepass")
    if line.endswith(b"\n"):
        line = line[:-1]
    return line[:-1] if line.endswith(b"\r") else line


def hypotheses_of(
    outputs: Sequence[bytes],
    scores: Sequence[float],
    tokens: Sequence[np.ndarray] | None = None,
    *,
    line: int,
) -> list[Hypothesis]:
    """The hypotheses of one text that exist, of what a graph gave for it.

    Args:
      outputs: texts, best first.
      scores: of each.
      tokens: int32 [N, L], ids of each, with zeros behind.
      line: the number of the text, for an error.

    Raises:
      T2TLiteError: the model's scores are no numbers.
    """
    if not is_possible(scores[0]):
        raise _not_a_number(line)
    return [
        Hypothesis(
            text=outputs[k].decode("utf-8", "replace"),
            score=float(scores[k]),
            tokens=None if tokens is None else _trim(tokens[k]),
        )
        for k in range(len(scores))
        if is_possible(scores[k])
    ]


def _completed(hypothesis, text, facts):
    return dataclasses.replace(hypothesis, text=text, facts=facts)


def _trim(tokens):
    """Ids as a list, up to the EOS; without one, without the zeros behind."""
    tokens = tokens.tolist()
    if EOS_ID in tokens:
        return tokens[: tokens.index(EOS_ID) + 1]
    while tokens and tokens[-1] == PAD_ID:
        tokens.pop()
    return tokens


def _cut_note(translator, done):
    return (
        f"a text may have {translator.max_length} tokens (max_length, EOS "
        f"included); this one was cut to them and {done}."
    )


def _log_note(number, message):
    logging.getLogger("t2t_lite").warning("line %d: %s", number, message)


def _not_a_number(number):
    return T2TLiteError(
        "The scores of a model must be numbers; got NaN or infinities for "
        f"line {number}. The training diverged or the checkpoint is damaged: "
        "choose another with --checkpoint."
    )
