"""Streams of lines to their translations or scores, in the order of input."""

import functools
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from t2t_lite.decoding.answers import Answer, PairScore, Translation
from t2t_lite.decoding.engine import Engine
from t2t_lite.decoding.questions import (
    Asked,
    Question,
    Result,
    Scoring,
    Translating,
)
from t2t_lite.decoding.streams.batching import Batching, map_sorted
from t2t_lite.decoding.streams.replicas import Replica
from t2t_lite.decoding.streams.requests import Pair, Request
from t2t_lite.decoding.texts import count_tokens, strip_line_end
from t2t_lite.decoding.token_details import TokenDetails
from t2t_lite.errors import T2TLiteError
from t2t_lite.progress import Counter

_CUT = (
    "a text may have {} tokens (max_length, EOS included); what is beyond was "
    "left out."
)


def translate_lines(
    translator: Engine | Sequence[Replica],
    lines: Iterable[str | bytes | Request],
    *,
    batch_size: int | None = None,
    batch_tokens: int | None = None,
    prompt: bool = True,
    first_line: int = 1,
    num_hypotheses: int = 1,
    complete: Callable[[str, str], tuple[str, Mapping[str, Any]]] | None = None,
    details: TokenDetails | None = None,
    mbr: str | None = None,
    split: Callable[[str], Sequence[str]] | None = None,
    tags: Sequence[str] = (),
    note: Callable[[int, str], None] | None = None,
) -> Iterator[Translation]:
    r"""Translates a stream of lines, one answer a line, in their order.

    It answers the lines that have come without waiting for more, so `lines`
    may be a pipe or a person. The batches change the speed, not the answers.

    Args:
      translator: what translates; several replicas work side by side.
      lines: each ends with "\n", "\r\n" or nothing; every other character,
        such as NUL or U+2028, belongs to the line. It may be an open binary
        file. A `Request` asks for more; the answer to one that cannot be met
        is its error.
      batch_size: see `Batching`.
      batch_tokens: likewise.
      prompt: likewise.
      first_line: the number of the first line.
      num_hypotheses: hypotheses a line, at most the translator's beam size.
      complete: `Problem.complete`; None gives what the model wrote.
      details: what to tell of each token.
      mbr: order the hypotheses by this utility, see `minimum_bayes_risk`.
      split: a line to sentences, which are translated by themselves and joined
        again, see `answers.joined`; with one hypothesis and no details.
      tags: `Problem.source_tags`, that a `Request` may name.
      note: called with a line number and what the user should know about
        that line; by default it is logged as a warning.

    Raises:
      T2TLiteError: the model's scores are no numbers.
    """
    replicas, note = _replicas_of(translator), note or log_note
    question = Translating(
        replicas[0].translator,
        num_hypotheses,
        complete,
        details,
        mbr,
        split,
        tags,
        note,
    )
    return _results(
        question,
        map(question.request, lines),
        replicas,
        Batching(batch_size, batch_tokens, prompt),
        first_line,
        note,
    )


def best_translations(
    translator: Engine | Sequence[Replica],
    texts: Sequence[str],
    doing: str = "translating",
    *,
    batch_size: int | None = None,
    batch_tokens: int | None = None,
    complete: Callable[[str, str], tuple[str, Mapping[str, Any]]] | None = None,
    note: Callable[[int, str], None] | None = None,
) -> list[str]:
    """The best hypothesis of each text; tells on stderr how far it is.

    Args:
      translator: as in `translate_lines`.
      texts: one line each.
      doing: what it says that it does.
      batch_size: see `Batching`.
      batch_tokens: likewise.
      complete: as in `translate_lines`.
      note: likewise.

    Raises:
      T2TLiteError: the model's scores are no numbers.
    """
    best = []
    with Counter(doing, "sentences", total=len(texts)) as counter:
        for translation in translate_lines(
            translator,
            texts,
            batch_size=batch_size,
            batch_tokens=batch_tokens,
            complete=complete,
            note=note,
        ):
            best.append(translation.hypotheses[0].text)
            counter.advance(1)
    return best


def score_pairs(
    translator: Engine | Sequence[Replica],
    pairs: Iterable[Sequence[str | bytes] | Pair],
    *,
    batch_size: int | None = None,
    batch_tokens: int | None = None,
    prompt: bool = True,
    first_line: int = 1,
    details: TokenDetails | None = None,
    tags: Sequence[str] = (),
    note: Callable[[int, str], None] | None = None,
) -> Iterator[PairScore]:
    """Scores a stream of (source, target) pairs, in their order.

    Args:
      translator: whose model, encoders, alpha and longest length to use.
      pairs: texts, with or without line ends.
      batch_size: see `Batching`.
      batch_tokens: likewise.
      prompt: likewise.
      first_line: the number of the first pair.
      details: what to tell of each token; its log-probability in any case.
      tags: as in `translate_lines`.
      note: as in `translate_lines`.

    Raises:
      T2TLiteError: the model's scores are no numbers.
    """
    question = Scoring(details, tags)
    return _results(
        question,
        map(question.request, pairs),
        _replicas_of(translator),
        Batching(batch_size, batch_tokens, prompt),
        first_line,
        note or log_note,
    )


def _replicas_of(
    translator: Engine | Sequence[Replica],
) -> Sequence[Replica]:
    if isinstance(translator, Sequence):
        return translator
    return [Replica(translator)]


def _results(
    question: Question[Asked, Result],
    requests: Iterable[Asked],
    replicas: Sequence[Replica],
    batching: Batching,
    first_line: int,
    note: Callable[[int, str], None],
) -> Iterator[Result]:
    """What comes back for each request, in their order."""
    engine = replicas[0].translator
    in_tokens = batching.tokens is not None
    answered = map_sorted(
        requests,
        lambda request: [] if request.error else question.parts(request),
        [functools.partial(_answers, question, each) for each in replicas],
        functools.partial(_lengths, question, engine, in_tokens),
        batching,
        share_out=True,
    )
    for line, (request, answers) in enumerate(answered, start=first_line):
        if not answers:
            yield question.refusal(line, request)
            continue
        if any(answer["cut"] for answer in answers):
            note(line, _CUT.format(engine.max_length))
        yield question.result(line, request, answers)


def _answers(
    question: Question[Asked, Result], replica: Replica, parts: list[Asked]
) -> Iterator[Answer]:
    """What a replica answers to each part of a batch."""
    with tf.device(replica.device):
        answers = question.ask(replica.translator, parts)
    values = {name: value.numpy() for name, value in answers.items()}
    for place in range(len(parts)):
        yield {name: value[place] for name, value in values.items()}


def _lengths(
    question: Question[Asked, Result],
    engine: Engine,
    in_tokens: bool,
    parts: list[Asked],
) -> Sequence[int]:
    """How long the texts of each part are, as `Batching` counts."""
    texts = [question.texts(part) for part in parts]
    if not in_tokens:
        return [sum(map(len, sides)) for sides in texts]
    encoders = engine.source_encoder, engine.target_encoder
    counts = [
        count_tokens(
            [strip_line_end(text) for text in side],
            encoder,
            engine.max_length,
            engine.form,
        )
        for side, encoder in zip(
            zip(*texts, strict=True), encoders, strict=False
        )
    ]
    return np.max(counts, axis=0).tolist()


def split_pairs(
    lines: Iterable[bytes], first_line: int = 1
) -> Iterator[list[bytes]]:
    r"""Splits lines `source<TAB>target`: `b"one\teins\n"` -> one, eins.

    Args:
      lines: with or without line ends.
      first_line: the number of the first line.

    Raises:
      T2TLiteError: a line has no tab, or more than one.
    """
    for number, line in enumerate(lines, start=first_line):
        sides = line.split(b"\t")
        if len(sides) != 2:
            raise T2TLiteError(
                "Pairs to score are lines source<TAB>target, one tab each; "
                f"line {number} has {len(sides) - 1} tabs."
            )
        yield sides


def log_note(number: int, message: str) -> None:
    """Logs a remark on a line as a warning."""
    logging.getLogger("t2t_lite").warning("line %d: %s", number, message)
