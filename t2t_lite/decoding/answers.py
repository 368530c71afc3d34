"""What comes back for a line or a pair: records, fit for JSON."""

import dataclasses
import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from t2t_lite.decoding.search.log_probs import is_possible
from t2t_lite.errors import T2TLiteError
from t2t_lite.evaluation.minimum_bayes_risk import choose
from t2t_lite.text.encoder import EOS_ID, PAD_ID

_MOST_NATS = 700  # the exponential of more is no float
Answer = Mapping[str, Any]  # the values of one row by name


@dataclasses.dataclass(frozen=True)
class Hypothesis:
    """One translation.

    Attributes:
      text: one line, without its end.
      score: log-probability / ((5 + length) / 6) ** alpha.
      tokens: the ids, with the EOS unless it was cut at the limit; None of an
        export, which does not tell them.
      facts: what the problem says of it, see `Problem.complete`.
      pieces: the vocabulary's entries of the tokens, if details are asked for.
      token_log_probabilities: of each token by the model, if asked for.
      alignment: pairs [source, target] of tokens or words, if asked for.
      utility: mean likeness to all hypotheses, 0-100, if it orders them.
    """

    text: str
    score: float
    tokens: list[int] | None
    facts: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    pieces: list[str] | None = None
    token_log_probabilities: list[float] | None = None
    alignment: list[list[int]] | None = None
    utility: float | None = None


@dataclasses.dataclass(frozen=True)
class Translation:
    """The answer to one line.

    Attributes:
      line: its number, from 1.
      source: the line without its end, U+FFFD for what is not UTF-8.
      hypotheses: best first, at least one; none of a request with an error.
      id: of the request.
      error: why the request is not answered.
      source_pieces: what an alignment of tokens names in the source.
    """

    line: int
    source: str
    hypotheses: list[Hypothesis]
    id: str | int | None = None
    error: str | None = None
    source_pieces: list[str] | None = None

    def to_dict(self) -> dict[str, Any]:
        """All of it, fit for JSON; facts stand beside text and score."""
        record = _record(self)
        if "hypotheses" in record:
            record["hypotheses"] = [
                _told(each) | each["facts"] for each in record["hypotheses"]
            ]
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
      tokens: how many the target has, EOS included; 0 of an old export, which
        does not tell.
      id: of the request.
      error: why the pair is not scored; the numbers say nothing then.
      pieces, token_log_probabilities, alignment: of the target, if asked for;
        see `Hypothesis`.
      source_pieces: see `Translation`.
    """

    line: int
    source: str
    target: str
    score: float = math.nan
    log_probability: float = math.nan
    tokens: int = 0
    id: str | int | None = None
    error: str | None = None
    pieces: list[str] | None = None
    token_log_probabilities: list[float] | None = None
    alignment: list[list[int]] | None = None
    source_pieces: list[str] | None = None

    def to_dict(self) -> dict[str, Any]:
        """All of it, fit for JSON."""
        return _record(self)


def _record(answer: Translation | PairScore) -> dict[str, Any]:
    """The fields of an answer; of one with an error, only what says so."""
    record = dataclasses.asdict(answer)
    if answer.error is not None:
        record = {name: record[name] for name in ("line", "id", "error")}
    return _told(record)


def _told(record: Mapping[str, Any]) -> dict[str, Any]:
    """A record without what was not asked for."""
    return {
        name: value
        for name, value in record.items()
        if name != "facts" and not (value is None and name != "tokens")
    }


def hypotheses_of(answer: Answer, line: int) -> list[Hypothesis]:
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
        raise not_a_number(line)
    return [
        Hypothesis(
            text=answer["outputs"][k].decode("utf-8", "replace"),
            score=float(score),
            tokens=trimmed(answer["tokens"][k]) if "tokens" in answer else None,
        )
        for k, score in enumerate(answer["scores"])
        if is_possible(score)
    ]


def by_utility(
    hypotheses: Sequence[Hypothesis], utility: str
) -> list[Hypothesis]:
    """The hypotheses by their mean utility against all of them, best first.

    Args:
      hypotheses: of one source.
      utility: see `minimum_bayes_risk.choose`.
    """
    _, utilities = choose([each.text for each in hypotheses], utility)
    order = sorted(range(len(utilities)), key=lambda k: -utilities[k])
    return [
        dataclasses.replace(hypotheses[k], utility=utilities[k]) for k in order
    ]


class ScoreSummary:
    """How likely given translations are together."""

    def __init__(self) -> None:
        self._sentences = self._tokens = self._words = 0
        self._log_probability = 0.0

    def add(self, pair: PairScore) -> None:
        """Counts a pair, unless it has an error."""
        if pair.error is None:
            self._sentences += 1
            self._tokens += pair.tokens
            self._words += len(pair.target.split()) + 1
            self._log_probability += pair.log_probability

    def report(self) -> dict[str, Any]:
        """The sums and means, fit for JSON.

        Returns: `sentences`, `tokens` and `words` of the targets, the end of
          each counted as one; the sum `log_probability`, in nats;
          `cross_entropy` = -log_probability / tokens; `perplexity` =
          exp(cross_entropy), and `word_perplexity` =
          exp(-log_probability / words). None where there are no sentences, or
          of a perplexity that is too large to be written.
        """
        nats = -self._log_probability
        cross_entropy = nats / self._tokens if self._tokens else None
        return {
            "sentences": self._sentences,
            "tokens": self._tokens,
            "words": self._words,
            "log_probability": self._log_probability,
            "cross_entropy": cross_entropy,
            "perplexity": _perplexity(cross_entropy),
            "word_perplexity": _perplexity(
                nats / self._words if self._words else None
            ),
        }


def _perplexity(cross_entropy: float | None) -> float | None:
    if cross_entropy is None or cross_entropy >= _MOST_NATS:
        return None
    return math.exp(cross_entropy)


def joined(
    sentences: Sequence[list[Hypothesis]], alpha: float
) -> list[Hypothesis]:
    """The hypotheses of a line; of several sentences, the best ones as one.

    Its score is as if it were one hypothesis: the log-probabilities add up, and
    so do the lengths, of which the penalty is.

    Args:
      sentences: the hypotheses of each.
      alpha: of the length penalty.
    """
    if len(sentences) == 1:
        return sentences[0]
    best = [hypotheses[0] for hypotheses in sentences]
    tokens = [each.tokens or [] for each in best]
    log_probability = sum(
        each.score * _penalty(len(ids), alpha)
        for each, ids in zip(best, tokens, strict=True)
    )
    together = list(itertools.chain.from_iterable(tokens))
    return [
        Hypothesis(
            text=" ".join(each.text for each in best if each.text),
            score=log_probability / _penalty(len(together), alpha),
            tokens=together,
        )
    ]


def _penalty(length: int, alpha: float) -> float:
    """As `beam_search.length_penalty`, of a number."""
    return ((5 + length) / 6) ** alpha


def trimmed(tokens: np.ndarray) -> list[int]:
    """Ids [L] as a list, up to the EOS, or up to the zeros if there is none."""
    ids = tokens.tolist()
    if EOS_ID in ids:
        return ids[: ids.index(EOS_ID) + 1]
    while ids and ids[-1] == PAD_ID:
        ids.pop()
    return ids


def not_a_number(line: int) -> T2TLiteError:
    """The error for scores that are no numbers."""
    return T2TLiteError(
        "The scores of a model must be numbers; got NaN or infinities for "
        f"line {line}. The training diverged or the checkpoint is damaged: "
        "choose another with --checkpoint."
    )
