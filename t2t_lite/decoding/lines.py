"""Streams of lines to their translations or scores, in the order of input."""

import abc
import dataclasses
import functools
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from t2t_lite.decoding.answers import (
    Answer,
    Hypothesis,
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
from t2t_lite.decoding.texts import count_tokens, decoded, strip_line_end
from t2t_lite.decoding.token_details import KNOWN, TokenDetails
from t2t_lite.errors import T2TLiteError, UsageError
from t2t_lite.progress import Counter
from t2t_lite.text.tags import split_behind_tag

_CUT = (
    "a text may have {} tokens (max_length, EOS included); what is beyond was "
    "left out."
)
# The options of a `Request` that apply to one sentence only.
_OF_ONE_SENTENCE = ("prefix", "constraints")
_BROKEN = {
    "missing": "required, but not in the translation: {}.",
    "unavoided": "to be avoided, but in the translation: {}.",
}


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
    r"""Translate a stream of lines, one answer a line, in their order.

    Lines that have arrived are translated without waiting for more, so `lines`
    may be a pipe or a person. Batches change the speed, not the answers.

    Args:
      translator: an engine, or several replicas that work in parallel.
      lines: each ends with "\n", "\r\n" or nothing; every other character,
        such as NUL or U+2028, belongs to the line. It may be an open binary
        file. A `Request` has options of its own; the answer to one that cannot
        be met is its error.
      batch_size: see `Batching`.
      batch_tokens: see `Batching`.
      prompt: see `Batching`.
      first_line: the number of the first line.
      num_hypotheses: hypotheses a line, at most the translator's beam size.
      complete: `Problem.complete`; None returns the model's text.
      details: the fields to add to each hypothesis.
      mbr: order the hypotheses by this utility, see `minimum_bayes_risk`.
      split: splits a line into sentences, which are translated separately and
        joined again, see `answers.joined`; with one hypothesis and no details.
      tags: `Problem.source_tags`, which a `Request` may name.
      note: called with a line number and a warning about that line; the default
        logs it.

    Raises:
      T2TLiteError: the model's scores are not finite.
    """
    replicas, note = _replicas_of(translator), note or log_note
    engine = replicas[0].translator
    task = _Translation(
        engine, num_hypotheses, complete, details, mbr, split, tags, note
    )
    batching = Batching(batch_size, batch_tokens, prompt)
    return _results(task, lines, replicas, batching, first_line, note)


def best_translations(
    translator: Engine | Sequence[Replica],
    texts: Sequence[str],
    doing: str = "translating",
    **options: Any,
) -> list[str]:
    """Return the best hypothesis of each text; show the progress on stderr.

    Args:
      translator: as in `translate_lines`.
      texts: one line each.
      doing: the label of the progress.
      options: as in `translate_lines`.

    Raises:
      T2TLiteError: the model's scores are not finite.
    """
    best = []
    with Counter(doing, "sentences", total=len(texts)) as counter:
        for translation in translate_lines(translator, texts, **options):
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
    """Score a stream of (source, target) pairs, in their order.

    Args:
      translator: whose model, encoders, alpha and longest length to use.
      pairs: texts, with or without line ends.
      batch_size: see `Batching`.
      batch_tokens: see `Batching`.
      prompt: see `Batching`.
      first_line: the number of the first pair.
      details: the fields to add; log-probabilities of tokens in any case.
      tags: as in `translate_lines`.
      note: as in `translate_lines`.

    Raises:
      T2TLiteError: the model's scores are not finite.
    """
    return _results(
        _Scoring(details, tags),
        pairs,
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
    task: "_Task",
    lines: Iterable[Any],
    replicas: Sequence[Replica],
    batching: Batching,
    first_line: int,
    note: Callable[[int, str], None],
) -> Iterator[Any]:
    """Yield the result of each line, in their order."""
    engine = replicas[0].translator
    in_tokens = batching.tokens is not None
    answered = map_sorted(
        map(task.request, lines),
        lambda request: [] if request.error else task.parts(request),
        [functools.partial(_answers, task, each) for each in replicas],
        functools.partial(_lengths, task, engine, in_tokens),
        batching,
        share_out=True,
    )
    for line, (request, answers) in enumerate(answered, start=first_line):
        if any(answer["cut"] for answer in answers):
            note(line, _CUT.format(engine.max_length))
        yield task.result(line, request, answers)


def _answers(
    task: "_Task", replica: Replica, parts: list[Any]
) -> Iterator[Answer]:
    """Yield the answer of a replica to each part of a batch."""
    with tf.device(replica.device):
        answers = task.ask(replica.translator, parts)
    values = {name: value.numpy() for name, value in answers.items()}
    for row in range(len(parts)):
        yield {name: value[row] for name, value in values.items()}


def _lengths(
    task: "_Task", engine: Engine, in_tokens: bool, parts: list[Any]
) -> Sequence[int]:
    """Return the length of each part, as `Batching` counts it."""
    texts = [task.texts(part) for part in parts]
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


class _Task(abc.ABC):
    """What to do with a request: its parts, and the result of their answers."""

    @abc.abstractmethod
    def request(self, line: Any) -> Any:
        """Return the request of a line, with an error if it cannot be met."""

    @abc.abstractmethod
    def texts(self, part: Any) -> list[str | bytes]:
        """Return the texts whose length matters for batches."""

    @abc.abstractmethod
    def ask(
        self, engine: Engine, parts: Sequence[Any]
    ) -> Mapping[str, tf.Tensor]:
        """Return the answers of an engine to a batch, by name: [B, ...]."""

    @abc.abstractmethod
    def result(self, line: int, request: Any, answers: Sequence[Answer]) -> Any:
        """Return the result, given the answer to each part; [] for an error."""

    def parts(self, request: Any) -> list[Any]:
        """Return the parts that may go to different batches."""
        return [request]


@dataclasses.dataclass(frozen=True)
class _Translation(_Task):
    """Translates a text; the fields are arguments of `translate_lines`."""

    engine: Engine
    num_hypotheses: int
    complete: Callable[[str, str], tuple[str, Mapping[str, Any]]] | None
    details: TokenDetails | None
    mbr: str | None
    split: Callable[[str], Sequence[str]] | None
    tags: Sequence[str]
    note: Callable[[int, str], None]

    def request(self, line: str | bytes | Request) -> Request:
        if not isinstance(line, Request):
            return Request(line)
        asked = line.asked()
        try:
            for name in asked if self.split else ():
                if name in _OF_ONE_SENTENCE:
                    raise UsageError(
                        f"{name} and split_sentences do not go together: give "
                        "single sentences."
                    )
            self.engine.require_can_do(asked)
        except UsageError as error:
            line = dataclasses.replace(line, error=line.error or str(error))
        return line.tagged(self.tags)

    def parts(self, request: Request) -> list[Request]:
        """Return the sentences of a text, each after its tag."""
        if self.split is None:
            return [request]
        text = decoded(request.text)
        sentences = split_behind_tag(text, self.tags, self.split)
        return [dataclasses.replace(request, text=each) for each in sentences]

    def texts(self, part: Request) -> list[str | bytes]:
        return [part.text]

    def ask(
        self, engine: Engine, parts: Sequence[Request]
    ) -> Mapping[str, tf.Tensor]:
        texts = tf.constant([strip_line_end(part.text) for part in parts])
        asked = _columns(parts, self.engine.settings)
        found = engine.translate(texts, self.num_hypotheses, asked)
        if self.details:
            tokens = found["tokens"]
            found = found | self.details.of_hypotheses(engine, texts, tokens)
        return found

    def result(
        self, line: int, request: Request, answers: Sequence[Answer]
    ) -> Translation:
        source = decoded(request.text)
        if not answers:
            return Translation(line, source, [], request.id, request.error)
        hypotheses = joined(
            [hypotheses_of(answer, line) for answer in answers],
            self.engine.settings.alpha,
        )
        pieces = None
        if self.details:
            pieces = self.details.source_pieces(source)
            (answer,) = answers
            names = KNOWN & answer.keys()
            for k, each in enumerate(hypotheses):
                known = {name: answer[name][k] for name in names}
                told = self.details.tell(source, each.tokens or [], known)
                hypotheses[k] = dataclasses.replace(each, **told)
        hypotheses = [
            self._completed(source, each, request) for each in hypotheses
        ]
        if self.mbr:
            hypotheses = by_utility(hypotheses, self.mbr)
        for name, texts in hypotheses[0].facts.items():
            if name in _BROKEN:
                self.note(line, _BROKEN[name].format(", ".join(texts)))
        return Translation(
            line, source, hypotheses, request.id, source_pieces=pieces
        )

    def _completed(
        self, source: str, hypothesis: Hypothesis, request: Request
    ) -> Hypothesis:
        """Return the hypothesis with the problem's facts and what it breaks."""
        text = hypothesis.text
        facts: Mapping[str, Any] = {}
        broken = request.broken_by(text, self.engine.settings.avoid)
        if self.complete:
            text, facts = self.complete(source, text)
        return dataclasses.replace(
            hypothesis, text=text, facts={**facts, **broken}
        )


def _columns(
    requests: Sequence[Request], settings: SearchSettings
) -> dict[str, tf.Tensor | tf.RaggedTensor]:
    """Return the options of requests, as `Translator.translate` takes them."""
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


@dataclasses.dataclass(frozen=True)
class _Scoring(_Task):
    """Scores a pair; the fields are arguments of `score_pairs`."""

    details: TokenDetails | None
    tags: Sequence[str]

    def request(self, line: Sequence[str | bytes] | Pair) -> Pair:
        if isinstance(line, Pair):
            return line.tagged(self.tags)
        return Pair(line[0], line[1])

    def texts(self, part: Pair) -> list[str | bytes]:
        return [part.source, part.target]

    def ask(
        self, engine: Engine, parts: Sequence[Pair]
    ) -> Mapping[str, tf.Tensor]:
        sources = tf.constant([strip_line_end(pair.source) for pair in parts])
        targets = tf.constant([strip_line_end(pair.target) for pair in parts])
        found = engine.score(sources, targets)
        if self.details:
            tokens = found["tokens"]
            found = self.details.of_targets(engine, sources, tokens) | found
        return found

    def result(
        self, line: int, request: Pair, answers: Sequence[Answer]
    ) -> PairScore:
        source, target = decoded(request.source), decoded(request.target)
        pair = PairScore(
            line, source, target, id=request.id, error=request.error
        )
        if not answers:
            return pair
        (found,) = answers
        if not is_possible(found["log_probabilities"]):
            raise not_a_number(line)
        told = {}
        if self.details:
            tokens = trimmed(found["tokens"])
            told = self.details.tell(source, tokens, found, target)
            told["source_pieces"] = self.details.source_pieces(source)
        return dataclasses.replace(
            pair,
            score=float(found["scores"]),
            log_probability=float(found["log_probabilities"]),
            tokens=int(found["lengths"]),
            **told,
        )


def split_pairs(
    lines: Iterable[bytes], first_line: int = 1
) -> Iterator[list[bytes]]:
    r"""Split lines `source<TAB>target`: `b"one\teins\n"` -> one, eins.

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
    """Log a remark on a line as a warning."""
    logging.getLogger("t2t_lite").warning("line %d: %s", number, message)
