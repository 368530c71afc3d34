"""Streams of lines to their translations or scores, in the order of input."""

import dataclasses
import functools
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
import tensorflow as tf

from t2t_lite.decoding.answers import (
    Answer,
    PairScore,
    Translation,
    by_utility,
    hypotheses_of,
    joined,
    not_a_number,
    trimmed,
)
from t2t_lite.decoding.engine import Engine
from t2t_lite.decoding.search.log_probs import is_possible
from t2t_lite.decoding.search.settings import SearchSettings
from t2t_lite.decoding.streams.batching import Batching, map_sorted
from t2t_lite.decoding.streams.replicas import Replica
from t2t_lite.decoding.streams.requests import Pair, Request
from t2t_lite.decoding.texts import count_tokens
from t2t_lite.decoding.token_details import KNOWN, TokenDetails
from t2t_lite.errors import T2TLiteError, UsageError
from t2t_lite.text.tags import split_behind_tag

Asked = TypeVar("Asked", Request, Pair)
Result = TypeVar("Result")

_BROKEN = {
    "missing": "it was asked for, but is not in the translation: {}.",
    "unavoided": "it was to be avoided, but is in the translation: {}.",
}
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
    replicas, say = _replicas_of(translator), note or log_note
    settings = replicas[0].translator.settings

    def parts(request: Request) -> list[Request]:
        if split is None:
            return [request]
        sentences = split_behind_tag(decoded(request.text), tags, split)
        return [dataclasses.replace(request, text=each) for each in sentences]

    def search(
        translator: Engine, requests: Sequence[Request]
    ) -> Mapping[str, tf.Tensor]:
        # Here what the requests ask for reaches the translator, in columns.
        texts = [strip_line_end(request.text) for request in requests]
        texts = tf.constant(texts)
        asked = _columns(requests, settings)
        found = translator.translate(texts, num_hypotheses, asked)
        if details:
            found = found | details.of_hypotheses(
                translator, texts, found["tokens"]
            )
        return found

    def answer(
        line: int, request: Request, sentences: Sequence[Answer]
    ) -> Translation:
        source = decoded(request.text)
        hypotheses = joined(
            [hypotheses_of(found, line) for found in sentences], settings.alpha
        )
        for k, each in enumerate(hypotheses):
            broken = request.broken_by(each.text, settings.avoid)
            text, facts = (
                complete(source, each.text) if complete else (each.text, {})
            )
            hypotheses[k] = dataclasses.replace(
                each, text=text, facts={**facts, **broken}
            )
        pieces = None
        if details:
            pieces = details.source_pieces(source)
            for k, each in enumerate(hypotheses):
                (found,) = sentences
                known = {name: found[name][k] for name in KNOWN & found.keys()}
                told = details.tell(source, each.tokens or [], known)
                hypotheses[k] = dataclasses.replace(each, **told)
        if mbr:
            hypotheses = by_utility(hypotheses, mbr)
        for name, texts in hypotheses[0].facts.items():
            if name in _BROKEN:
                say(line, _BROKEN[name].format(", ".join(texts)))
        return Translation(
            line, source, hypotheses, request.id, source_pieces=pieces
        )

    def refuse(line: int, request: Request) -> Translation:
        source = decoded(request.text)
        return Translation(line, source, [], request.id, request.error)

    return _ask(
        replicas,
        search,
        answer,
        refuse,
        (
            _request(line, replicas[0].translator, split is not None).tagged(
                tags
            )
            for line in lines
        ),
        parts,
        lambda request: [request.text],
        Batching(batch_size, batch_tokens, prompt),
        first_line,
        say,
    )


def _columns(
    requests: Sequence[Request], settings: SearchSettings
) -> dict[str, tf.Tensor | tf.RaggedTensor]:
    """What requests ask for, as `Translator.translate` takes it."""
    asked = {name for request in requests for name in request.asked()}
    columns = {}
    if "prefix" in asked:
        columns["prefix"] = tf.constant([each.prefix for each in requests])
    for name in asked & {"constraints", "avoid"}:
        columns[name] = tf.ragged.constant(
            [list(getattr(each, name)) for each in requests],
            tf.string,
            ragged_rank=1,
        )
    if "seed" in asked:
        seeds = [each.seed for each in requests]
        seeds = [settings.seed if seed is None else seed for seed in seeds]
        columns["seed"] = tf.constant(seeds, tf.int64)
    return columns


# What a `Request` may ask of one sentence only.
_OF_ONE_SENTENCE = ("prefix", "constraints")


def _request(
    line: str | bytes | Request, translator: Engine, split: bool
) -> Request:
    """The request of a line, with an error if this search cannot meet it."""
    if not isinstance(line, Request):
        return Request(line)
    try:
        for name in line.asked() if split else ():
            if name in _OF_ONE_SENTENCE:
                raise UsageError(
                    f"{name} is for one sentence: it does not go with split "
                    "ones."
                )
        translator.require_can_do(line.asked())
    except UsageError as error:
        return dataclasses.replace(line, error=line.error or str(error))
    return line


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

    def score(
        translator: Engine, pairs: Sequence[Pair]
    ) -> Mapping[str, tf.Tensor]:
        columns = [
            [strip_line_end(pair.source) for pair in pairs],
            [strip_line_end(pair.target) for pair in pairs],
        ]
        texts = [tf.constant(column) for column in columns]
        found = translator.score(*texts)
        if details:
            found = (
                details.of_targets(translator, texts[0], found["tokens"])
                | found
            )
        return found

    def answer(line: int, pair: Pair, answers: Sequence[Answer]) -> PairScore:
        (found,) = answers
        if not is_possible(found["log_probabilities"]):
            raise not_a_number(line)
        source, target = decoded(pair.source), decoded(pair.target)
        told = {}
        if details:
            told = details.tell(source, trimmed(found["tokens"]), found, target)
            told["source_pieces"] = details.source_pieces(source)
        return PairScore(
            line,
            source,
            target,
            score=float(found["scores"]),
            log_probability=float(found["log_probabilities"]),
            tokens=int(found["lengths"]),
            id=pair.id,
            **told,
        )

    def refuse(line: int, pair: Pair) -> PairScore:
        source, target = decoded(pair.source), decoded(pair.target)
        return PairScore(line, source, target, id=pair.id, error=pair.error)

    return _ask(
        _replicas_of(translator),
        score,
        answer,
        refuse,
        (
            pair.tagged(tags)
            if isinstance(pair, Pair)
            else Pair(pair[0], pair[1])
            for pair in pairs
        ),
        lambda pair: [pair],
        lambda pair: [pair.source, pair.target],
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


def _ask(
    replicas: Sequence[Replica],
    ask: Callable[[Engine, list[Asked]], Mapping[str, tf.Tensor]],
    answer: Callable[[int, Asked, Sequence[Answer]], Result],
    refuse: Callable[[int, Asked], Result],
    requests: Iterable[Asked],
    parts: Callable[[Asked], Sequence[Asked]],
    texts: Callable[[Asked], list[str | bytes]],
    batching: Batching,
    first_line: int,
    note: Callable[[int, str], None],
) -> Iterator[Result]:
    """What translators answer to the parts of each request, in their order."""
    one = replicas[0].translator

    def rows_of(replica: Replica, batch: list[Asked]) -> Iterator[Answer]:
        with tf.device(replica.device):
            answers = ask(replica.translator, batch)
        values = {name: value.numpy() for name, value in answers.items()}
        for place in range(len(batch)):
            yield {name: value[place] for name, value in values.items()}

    def lengths(batch: list[Asked]) -> Sequence[int]:
        if batching.tokens is None:
            return [sum(map(len, texts(each))) for each in batch]
        sides = zip(*map(texts, batch), strict=True)
        encoders = one.source_encoder, one.target_encoder
        counts = [
            count_tokens(
                [strip_line_end(text) for text in side],
                encoder,
                one.max_length,
                one.form,
            )
            for side, encoder in zip(sides, encoders, strict=False)
        ]
        return np.max(counts, axis=0).tolist()

    answered = map_sorted(
        requests,
        lambda request: [] if request.error else parts(request),
        [functools.partial(rows_of, replica) for replica in replicas],
        lengths,
        batching,
    )
    for line, (request, found) in enumerate(answered, start=first_line):
        if not found:
            yield refuse(line, request)
            continue
        if any(each["cut"] for each in found):
            note(line, _CUT.format(one.max_length))
        yield answer(line, request, found)


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


def strip_line_end(line: str | bytes) -> bytes:
    r"""The line as bytes, without "\n" or "\r\n" at its end."""
    if isinstance(line, str):
        # Lone surrogates become broken bytes, which the encoder cleans.
        line = line.encode("utf-8", "surrogatepass")
    return line.removesuffix(b"\n").removesuffix(b"\r")


def decoded(line: str | bytes) -> str:
    """The line as text, without its end, U+FFFD for what is not UTF-8."""
    return strip_line_end(line).decode("utf-8", "replace")


def log_note(number: int, message: str) -> None:
    """Logs a remark on a line as a warning."""
    logging.getLogger("t2t_lite").warning("line %d: %s", number, message)
