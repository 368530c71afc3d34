"""The result of a line, from the search or a server to JSON and text."""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from t2t_lite.decoding.search.scores import is_possible, length_penalty
from t2t_lite.errors import requires_extra
from t2t_lite.validators import check, integer, optional


@dataclasses.dataclass(frozen=True)
class Hypothesis:
    """One translation, or the given target of a scored pair.

    Attributes:
      text: one line, without the line end.
      score: log-probability / ((5 + length) / 6) ** alpha; None if a server
        does not return scores.
      tokens: token ids, with EOS unless truncated at the length limit; None if
        a SavedModel computed the hypothesis.
      facts: fields added by `Problem.postprocess`, and the request's phrases
        that are `missing` or `forbidden`.
      log_probability: natural logarithm of the probability, EOS included, of a
        given target.
      pieces: vocabulary entry of each token, if requested.
      token_log_probabilities: log-probability of each token, if requested.
      alignment: pairs [source, target] of word indices, if requested.
      utility: mean similarity to all hypotheses, 0-100, if they are reranked.
    """

    text: str
    score: float | None
    tokens: list[int] | None = None
    facts: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    log_probability: float | None = None
    pieces: list[str] | None = None
    token_log_probabilities: list[float] | None = None
    alignment: list[list[int]] | None = None
    utility: float | None = None


@dataclasses.dataclass(frozen=True)
class Result:
    """The result of one line.

    Attributes:
      line: line number, from 1.
      source: the line without its line end, with U+FFFD for invalid UTF-8.
      hypotheses: at least one, best first; the target of a scored pair; empty
        if there is an error.
      id: identifier of the request.
      error: reason why there are no hypotheses.
      truncated: whether the text was longer than the model's limit.
    """

    line: int
    source: str
    hypotheses: Sequence[Hypothesis] = ()
    id: str | int | None = None
    error: str | None = None
    truncated: bool = False

    def to_json(self) -> str:
        """Return a JSON object on one line; facts are keys of a hypothesis.

        The keys of a scored pair and of its target are in one object, whose
        `tokens` is the number of target tokens.
        """
        record: dict[str, Any] = {"line": self.line}
        if self.id is not None:
            record["id"] = self.id
        if self.error is not None:
            record["error"] = self.error
        else:
            record["source"] = self.source
            hypotheses = [_to_dict(each) for each in self.hypotheses]
            if "log_probability" in hypotheses[0]:
                (pair,) = hypotheses
                record |= {"target": pair.pop("text"), **pair}
                record["tokens"] = len(pair["tokens"])
            else:
                record["hypotheses"] = hypotheses
        # Lone surrogates, which an id may contain, are escaped.
        text = json.dumps(record, ensure_ascii=False)
        return text.encode("utf-8", "backslashreplace").decode()

    def to_text(self, count: int = 1) -> str:
        """Return the best `count` texts on one line, separated by TABs.

        Spaces replace separators in a text. A scored pair gives its score.
        Alignments follow as " ||| 0-0 1-2". An error gives an empty line.
        """
        separators = "\r\n\t" if count > 1 else "\r\n"
        table = str.maketrans(dict.fromkeys(separators, " "))
        texts = []
        for each in self.hypotheses[:count]:
            text = each.text.translate(table)
            if each.log_probability is not None:
                text = f"{each.score:.6f}"
            if each.alignment is not None:
                pairs = (f"{s}-{t}" for s, t in each.alignment)
                text = f"{text} ||| {' '.join(pairs)}"
            texts.append(text)
        return "\t".join(texts)


def _to_dict(hypothesis: Hypothesis) -> dict[str, Any]:
    """Return the score, the tokens, the facts, and the fields that are set."""
    record = {
        field.name: value
        for field in dataclasses.fields(hypothesis)
        if (value := getattr(hypothesis, field.name)) is not None
        or field.name in ("score", "tokens")
    }
    return record | record.pop("facts")


def hypotheses_of(outputs: Mapping[str, Any], row: int) -> list[Hypothesis]:
    """Return the first hypothesis of a text, and all others that exist.

    Args:
      outputs: of a graph or a server, best first: `outputs` [B] or [B, N],
        `scores` of the same shape, `tokens` [B, N, L], and of pairs
        `log_probabilities` [B]; all but the first may be missing. Missing
        hypotheses have impossible scores.
      row: index of the text.
    """
    texts = np.atleast_1d(np.array(outputs["outputs"][row], object))
    scores = [None] * len(texts)
    if "scores" in outputs:
        scores = np.atleast_1d(outputs["scores"][row]).tolist()
    log_prob = None
    if "log_probabilities" in outputs:
        log_prob = float(outputs["log_probabilities"][row])
    hypotheses = []
    for k, (text, score) in enumerate(zip(texts, scores, strict=True)):
        if isinstance(text, bytes):
            text = text.decode("utf-8", "replace")
        tokens = None
        if "tokens" in outputs:
            tokens = _strip_padding(outputs["tokens"][row][k])
        if k == 0 or score is None or is_possible(score):
            each = Hypothesis(text, score, tokens, log_probability=log_prob)
            hypotheses.append(each)
    return hypotheses


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
        log_probability += (each.score or 0.0) * length_penalty(len(ids), alpha)
        tokens += ids
    return Hypothesis(
        text=" ".join(each.text for each in sentences if each.text),
        score=log_probability / length_penalty(len(tokens), alpha),
        tokens=tokens,
    )


def _strip_padding(tokens: np.ndarray) -> list[int]:
    """Return ids [L] up to EOS; without EOS, strip only trailing zeros."""
    from t2t_lite.tokenizers.base import EOS_ID  # imports TensorFlow

    ids = np.trim_zeros(tokens, "b").tolist()
    return ids[: ids.index(EOS_ID) + 1] if EOS_ID in ids else ids


@dataclasses.dataclass(eq=False, repr=False)
class Attention:
    """Attention weights of N layers and H heads for a pair of texts."""

    texts: tuple[str, str]  # source and target
    source_tokens: list[str]  # S pieces, EOS included
    target_tokens: list[str]  # T pieces, EOS included
    encoder: Any  # float32 [N, H, S, S]
    decoder: Any  # float32 [N, H, T, T]; column t is the token before row t
    cross: Any  # float32 [N, H, T, S]

    def plot(
        self, ax: Any = None, *, layer: int = -1, head: int | None = None
    ) -> Any:
        """Plot the cross-attention with matplotlib, and return the axes.

        Args:
          ax: the axes; None makes a figure.
          layer: the index of the decoder layer.
          head: the index of the head; None plots the mean of all heads.

        Raises:
          T2TLiteError: matplotlib is missing.
          UsageError: an index is out of range.
        """
        with requires_extra("notebook"):
            from matplotlib import pyplot
        layers, heads = self.cross.shape[:2]
        check("layer", layer, integer(-layers, layers - 1))
        check("head", head, optional(integer(-heads, heads - 1)))
        weights = self.cross[layer]  # [H, T, S]
        ax = ax or pyplot.subplots(layout="constrained")[1]
        image = weights.mean(axis=0) if head is None else weights[head]
        ax.imshow(image, cmap="Greys", vmin=0, vmax=1)
        sides = {ax.xaxis: self.source_tokens, ax.yaxis: self.target_tokens}
        for axis, tokens in sides.items():  # "$" does not begin a formula
            axis.set_ticks(range(len(tokens)), tokens, parse_math=False)
        ax.tick_params("x", rotation=90)
        ax.set(xlabel="source", ylabel="target")
        return ax
