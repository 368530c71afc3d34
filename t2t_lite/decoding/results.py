"""Results of translation and scoring, convertible to JSON."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from t2t_lite.decoding.search.beam_search import length_penalty
from t2t_lite.decoding.search.state import is_possible
from t2t_lite.errors import T2TLiteError
from t2t_lite.tokenizers.base import EOS_ID, PAD_ID


@dataclasses.dataclass(frozen=True)
class Hypothesis:
    """One translation.

    Attributes:
      text: one line, without the line end.
      score: log-probability / ((5 + length) / 6) ** alpha.
      tokens: token ids, with EOS unless truncated at the length limit; None if
        a SavedModel computed the hypothesis.
      facts: fields added by `Problem.postprocess`, and the request's phrases
        that are `missing` or `unavoided`.
      pieces: vocabulary entry of each token, if requested.
      token_log_probabilities: log-probability of each token, if requested.
      alignment: pairs [source, target] of word indices, if requested.
      utility: mean similarity to all hypotheses, 0-100, if they are reranked.
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
      line: line number, from 1.
      source: the line without its line end, with U+FFFD for invalid UTF-8.
      hypotheses: at least one, best first; empty if there is an error.
      id: identifier of the request.
      error: reason why there are no hypotheses.
    """

    line: int
    source: str
    hypotheses: list[Hypothesis]
    id: str | int | None = None
    error: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return a dict for JSON; facts become keys of their hypothesis."""
        record = _to_dict(self)
        if self.error is None:
            record["hypotheses"] = [
                {**_to_dict(each), **each.facts} for each in self.hypotheses
            ]
        return record


@dataclasses.dataclass(frozen=True)
class PairScore:
    """The score of a pair of texts.

    Attributes:
      line: number of the pair, from 1.
      source: source text, with U+FFFD for invalid UTF-8.
      target: target text.
      score: log_probability / ((5 + tokens) / 6) ** alpha.
      log_probability: natural logarithm of the target's probability, EOS
        included.
      tokens: number of target tokens, EOS included.
      id: identifier of the request.
      error: reason why the pair has no score; the numbers are NaN then.
      pieces, token_log_probabilities, alignment: details of the target, if
        requested; see `Hypothesis`.
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

    def to_dict(self) -> dict[str, Any]:
        """Return a dict for JSON."""
        return _to_dict(self)


def _to_dict(result: Hypothesis | Translation | PairScore) -> dict[str, Any]:
    """Return the fields that are set, and `tokens`; only the error, if any."""
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
      row: outputs of a graph: `outputs` bytes [N] and `scores` [N], best first,
        and optionally `tokens` int32 [N, L]. Hypotheses that do not exist have
        impossible scores.
      line: line number, for errors.

    Raises:
      T2TLiteError: the scores are not finite.
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
    """Concatenate the hypotheses of a line's sentences.

    The score is computed from the summed log-probabilities and the summed
    lengths, with the length penalty's weight `alpha`.
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
    """Return ids [L] up to EOS; without EOS, strip only trailing zeros."""
    ids = tokens.tolist()
    if EOS_ID in ids:
        return ids[: ids.index(EOS_ID) + 1]
    while ids and ids[-1] == PAD_ID:
        ids.pop()
    return ids


def require_finite(score: float, line: int) -> None:
    """Raise T2TLiteError if a model's best score is not finite."""
    if not is_possible(score):
        raise T2TLiteError(
            f"The model's score for line {line} is NaN or infinite. Training "
            "diverged or the checkpoint is damaged: choose another one with "
            "`checkpoint`."
        )
