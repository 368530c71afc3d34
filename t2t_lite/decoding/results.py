"""Results of lines and pairs: records that become JSON."""

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
      text: one line, without its end.
      score: log-probability / ((5 + length) / 6) ** alpha.
      tokens: the ids, with EOS unless truncated at the limit; None of an export
        as SavedModel.
      facts: the additions of `Problem.postprocess`, and the phrases of the
        request that are `missing` or `unavoided`.
      pieces: the vocabulary's entries of the tokens, if requested.
      token_log_probabilities: of each token, if requested.
      alignment: pairs [source, target] of words, if requested.
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
    """

    line: int
    source: str
    hypotheses: list[Hypothesis]
    id: str | int | None = None
    error: str | None = None

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
    """Return the hypotheses of one text, the line of this number.

    Args:
      row: values of a graph: `outputs` bytes [N] and `scores` [N], best first,
        and maybe `tokens` int32 [N, L]. Those that do not exist have impossible
        scores.
      line: for the T2TLiteError of a model whose scores are not numbers.
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
    """Return one hypothesis of the best ones of a line's sentences.

    Its score is that of one hypothesis: the log-probabilities add up, and so do
    the lengths in the penalty, which has the weight `alpha`.
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
            "choose another with `checkpoint`."
        )
