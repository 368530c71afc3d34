"""What an engine is asked about lines, and what becomes of its answers."""

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

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
from t2t_lite.decoding.streams.requests import Pair, Request
from t2t_lite.decoding.texts import decoded, strip_line_end
from t2t_lite.decoding.token_details import KNOWN, TokenDetails
from t2t_lite.errors import UsageError
from t2t_lite.text.tags import split_behind_tag

Asked = TypeVar("Asked", Request, Pair)
Result = TypeVar("Result", covariant=True)

# What a `Request` may ask of one sentence only.
_OF_ONE_SENTENCE = ("prefix", "constraints")
_BROKEN = {
    "missing": "it was asked for, but is not in the translation: {}.",
    "unavoided": "it was to be avoided, but is in the translation: {}.",
}


class Question(Protocol[Asked, Result]):
    """What is asked for each request, in parts, and what comes back."""

    def parts(self, request: Asked) -> Sequence[Asked]:
        """What is asked by itself, and may share a batch with others."""
        ...

    def texts(self, part: Asked) -> list[str | bytes]:
        """Those whose length matters: the source, and a target if given."""
        ...

    def ask(
        self, engine: Engine, parts: Sequence[Asked]
    ) -> Mapping[str, tf.Tensor]:
        """The answers of an engine to a batch of parts, by name: [B, ...]."""
        ...

    def result(
        self, line: int, request: Asked, answers: Sequence[Answer]
    ) -> Result:
        """What comes back for a request, given the answer to each part.

        Raises:
          T2TLiteError: the model's scores are no numbers.
        """
        ...

    def refusal(self, line: int, request: Asked) -> Result:
        """What comes back for a request with an error."""
        ...


@dataclasses.dataclass(frozen=True)
class Translating:
    """The translations of texts; see `lines.translate_lines`."""

    engine: Engine  # which tells what it can do
    num_hypotheses: int
    complete: Callable[[str, str], tuple[str, Mapping[str, Any]]] | None
    details: TokenDetails | None
    mbr: str | None
    split: Callable[[str], Sequence[str]] | None
    tags: Sequence[str]
    note: Callable[[int, str], None]

    def request(self, line: str | bytes | Request) -> Request:
        """That of a line, with an error if the engine cannot meet it."""
        if not isinstance(line, Request):
            return Request(line)
        try:
            self._require_can_do(line.asked())
        except UsageError as error:
            line = dataclasses.replace(line, error=line.error or str(error))
        return line.tagged(self.tags)

    def _require_can_do(self, asked: Iterable[str]) -> None:
        for name in asked if self.split else ():
            if name in _OF_ONE_SENTENCE:
                raise UsageError(
                    f"{name} and split_sentences do not go together: give "
                    "single sentences."
                )
        self.engine.require_can_do(asked)

    def parts(self, request: Request) -> list[Request]:
        """Its sentences, each behind the tag; or all of it."""
        if self.split is None:
            return [request]
        text = decoded(request.text)
        sentences = split_behind_tag(text, self.tags, self.split)
        return [dataclasses.replace(request, text=each) for each in sentences]

    def texts(self, part: Request) -> list[str | bytes]:
        """See `Question`."""
        return [part.text]

    def ask(
        self, engine: Engine, parts: Sequence[Request]
    ) -> Mapping[str, tf.Tensor]:
        """See `Question`."""
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
        """See `Question`; notes what the translation does otherwise."""
        source = decoded(request.text)
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
        """With what the problem makes of it, and what it breaks."""
        text = hypothesis.text
        facts: Mapping[str, Any] = {}
        broken = request.broken_by(text, self.engine.settings.avoid)
        if self.complete:
            text, facts = self.complete(source, text)
        return dataclasses.replace(
            hypothesis, text=text, facts={**facts, **broken}
        )

    def refusal(self, line: int, request: Request) -> Translation:
        """See `Question`."""
        source = decoded(request.text)
        return Translation(line, source, [], request.id, request.error)


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


@dataclasses.dataclass(frozen=True)
class Scoring:
    """How likely given translations are; see `lines.score_pairs`."""

    details: TokenDetails | None
    tags: Sequence[str]

    def request(self, pair: Sequence[str | bytes] | Pair) -> Pair:
        """The pair with its tag."""
        if isinstance(pair, Pair):
            return pair.tagged(self.tags)
        return Pair(pair[0], pair[1])

    def parts(self, request: Pair) -> list[Pair]:
        """All of it."""
        return [request]

    def texts(self, part: Pair) -> list[str | bytes]:
        """See `Question`."""
        return [part.source, part.target]

    def ask(
        self, engine: Engine, parts: Sequence[Pair]
    ) -> Mapping[str, tf.Tensor]:
        """See `Question`."""
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
        """See `Question`."""
        (found,) = answers
        if not is_possible(found["log_probabilities"]):
            raise not_a_number(line)
        source, target = decoded(request.source), decoded(request.target)
        told = {}
        if self.details:
            tokens = trimmed(found["tokens"])
            told = self.details.tell(source, tokens, found, target)
            told["source_pieces"] = self.details.source_pieces(source)
        return PairScore(
            line,
            source,
            target,
            score=float(found["scores"]),
            log_probability=float(found["log_probabilities"]),
            tokens=int(found["lengths"]),
            id=request.id,
            **told,
        )

    def refusal(self, line: int, request: Pair) -> PairScore:
        """See `Question`."""
        source, target = decoded(request.source), decoded(request.target)
        return PairScore(
            line, source, target, id=request.id, error=request.error
        )
