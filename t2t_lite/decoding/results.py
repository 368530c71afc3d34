"""Results of lines and pairs: records that become JSON."""

import collections
import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from t2t_lite.decoding.search.beam_search import length_penalty
from t2t_lite.decoding.search.state import is_possible
from t2t_lite.errors import T2TLiteError
from t2t_lite.text.encoder import EOS_ID, PAD_ID

_MAX_NATS = 700  # the exponential of more overflows a float


@dataclasses.dataclass(frozen=True)
class Hypothesis:
    """One translation.

    Attributes:
      text: one line, without its end.
      score: log-probability / ((5 + length) / 6) ** alpha.
      tokens: the ids, with EOS unless truncated at the limit; None of an export
        as SavedModel.
      facts: what the problem adds, see `Problem.complete`, and the phrases of
        the request that are `missing` or `unavoided`.
      pieces: the vocabulary's entries of the tokens, if requested.
      token_log_probabilities: of each token, if requested.
      alignment: pairs [source, target] of tokens or words, if requested.
      utility: mean similarity to all hypotheses, 0-100, if it orders them.
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
    """The result of one line.

    Attributes:
      line: its number, from 1.
      source: the line without its end, U+FFFD for invalid UTF-8.
      hypotheses: best first, at least one; none if there is an error.
      id: of the request.
      error: the reason why the request has no hypotheses.
      source_pieces: the source tokens that an alignment of tokens counts.
    """

    line: int
    source: str
    hypotheses: list[Hypothesis]
    id: str | int | None = None
    error: str | None = None
    source_pieces: list[str] | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the record for JSON; facts are keys of their hypothesis."""
        record = _to_dict(self)
        if self.error is None:
            record["hypotheses"] = [
                {**_to_dict(each), **each.facts} for each in self.hypotheses
            ]
        return record


@dataclasses.dataclass(frozen=True)
class PairScore:
    """The score of a given translation.

    Attributes:
      line: the number of the pair, from 1.
      source: its first text, U+FFFD for invalid UTF-8.
      target: its second text.
      score: log_probability / ((5 + tokens) / 6) ** alpha.
      log_probability: natural logarithm, of the target with its EOS.
      tokens: length of the target, EOS included.
      id: of the request.
      error: the reason why the pair has no score; the numbers are NaN then.
      pieces, token_log_probabilities, alignment: of the target, if requested;
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
        """Return the record for JSON."""
        return _to_dict(self)


def _to_dict(result: Hypothesis | Translation | PairScore) -> dict[str, Any]:
    """Return the fields that are set, tokens always; of an error, the error."""
    names = [field.name for field in dataclasses.fields(result)]
    if getattr(result, "error", None) is not None:
        names = ["line", "id", "error"]
    record = {name: getattr(result, name) for name in names if name != "facts"}
    return {
        name: value
        for name, value in record.items()
        if value is not None or name == "tokens"
    }


def hypotheses_of(row: Mapping[str, Any], line: int) -> list[Hypothesis]:
    """Return the hypotheses of one text.

    Args:
      row: values of a graph: `outputs` bytes [N] and `scores` [N], best first,
        and maybe `tokens` int32 [N, L]. Those that do not exist have impossible
        scores.
      line: the number of the text, for an error.

    Raises:
      T2TLiteError: the model's scores are not numbers.
    """
    require_finite(row["scores"][0], line)
    return [
        Hypothesis(
            text=row["outputs"][k].decode("utf-8", "replace"),
            score=float(score),
            tokens=strip_padding(row["tokens"][k]) if "tokens" in row else None,
        )
        for k, score in enumerate(row["scores"])
        if is_possible(score)
    ]


def concat_sentences(
    sentences: Sequence[Hypothesis], alpha: float
) -> Hypothesis:
    """Return one hypothesis for the sentences of a line.

    Its score is that of one hypothesis: the log-probabilities add up, and so do
    the lengths in the penalty.

    Args:
      sentences: the best hypothesis of each.
      alpha: of the length penalty.
    """
    tokens: list[int] = []
    log_probability = 0.0
    for each in sentences:
        ids = each.tokens or []
        log_probability += each.score * length_penalty(len(ids), alpha)
        tokens += ids
    return Hypothesis(
        text=" ".join(each.text for each in sentences if each.text),
        score=log_probability / length_penalty(len(tokens), alpha),
        tokens=tokens,
    )


def strip_padding(tokens: np.ndarray) -> list[int]:
    """Return ids [L] up to the EOS, or without the zeros at the end."""
    ids = tokens.tolist()
    if EOS_ID in ids:
        return ids[: ids.index(EOS_ID) + 1]
    while ids and ids[-1] == PAD_ID:
        ids.pop()
    return ids


def require_finite(score: float, line: int) -> None:
    """Raise T2TLiteError if a model's best score is not a number."""
    if not is_possible(score):
        raise T2TLiteError(
            "The scores of a model must be numbers; got NaN or infinities for "
            f"line {line}. The training diverged or the checkpoint is damaged: "
            "choose another with --checkpoint."
        )


class ScoreSummary:
    """Sums and means over scored pairs."""

    def __init__(self) -> None:
        self._sums: collections.Counter = collections.Counter()

    def add(self, pair: PairScore) -> None:
        """Count a pair, unless it has an error."""
        if pair.error is None:
            self._sums["sentences"] += 1
            self._sums["tokens"] += pair.tokens
            self._sums["words"] += len(pair.target.split()) + 1
            self._sums["log_probability"] += pair.log_probability  # type: ignore

    def report(self) -> dict[str, Any]:
        """Return the record for JSON.

        Returns:
          `sentences`, `tokens` and `words` of the targets, the end of each
          counted as one; the sum `log_probability`, in nats; `cross_entropy` =
          -log_probability / tokens; `perplexity` = exp(cross_entropy), and
          `word_perplexity` = exp(-log_probability / words). None where there
          are no sentences, or for a perplexity that overflows.
        """
        names = ("sentences", "tokens", "words", "log_probability")
        sums = {name: self._sums[name] for name in names}
        per_token, per_word = (
            -sums["log_probability"] / sums[name] if sums[name] else math.inf
            for name in ("tokens", "words")
        )
        return {
            **sums,
            "cross_entropy": None if math.isinf(per_token) else per_token,
            "perplexity": _perplexity(per_token),
            "word_perplexity": _perplexity(per_word),
        }


def _perplexity(cross_entropy: float) -> float | None:
    return math.exp(cross_entropy) if cross_entropy < _MAX_NATS else None
