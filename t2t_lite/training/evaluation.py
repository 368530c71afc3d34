"""Evaluation of a model on held-out data, during training and after."""

import functools
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np
import tensorflow as tf

from t2t_lite.decoding.stream import translate_lines
from t2t_lite.decoding.translator import Translator
from t2t_lite.training.run import Run

T = TypeVar("T")
_SAMPLES = 10  # lines of dev that show the progress
_SIDE = tf.TensorSpec([None, None], tf.int32)

# Returns the report of `Problem.evaluate`, or {}.
TextEvaluator = Callable[[], dict[str, Any]]


class Sample(NamedTuple):
    """A sentence of dev and its translation, to look at."""

    source: str
    translation: str
    reference: str


def spread_over_lengths(texts: Sequence[str], count: int) -> list[int]:
    """Return indices of texts of all lengths, shortest first.

    Args:
      texts: the same ones give the same indices.
      count: maximum number of indices, evenly spaced by rank.
    """
    ranked = sorted(range(len(texts)), key=lambda i: len(texts[i]))
    last = len(ranked) - 1
    parts = max(count - 1, 1)
    return [
        ranked[r] for r in sorted({last * i // parts for i in range(count)})
    ]


def evaluations_since_best(
    records: Iterable[Mapping[str, Any]], metric: str
) -> tuple[int, int, float]:
    """Return the number of evaluations since the best one, its step and value.

    A value that is missing or not finite is never better. Without any value,
    the result is the number of evaluations, 0 and NaN.

    Args:
      records: of evaluations, in the order of their steps.
      metric: their key. Of a loss or a perplexity less is better.
    """
    sign = -1 if metric in ("dev_loss", "dev_perplexity") else 1
    since, step, best = 0, 0, math.nan
    for record in records:
        value = record.get(metric)
        since += 1
        if value is not None and math.isfinite(value):
            if math.isnan(best) or sign * value > sign * best:
                since, step, best = 0, record["step"], value
    return since, step, best


class DevEvaluation:
    """Evaluates a model in training on the dev split.

    Workers share the split: `share` evaluates the part of one, and `scores`
    combines the parts of all.

    Args:
      run: the run in training.
      model: its model.
      evaluate_text: scores the model's texts; None translates the dev split
        greedily and scores that.
      best_metric: metric of the best checkpoint: "loss", the problem's metric,
        or "auto", see `judge`.
      index: of this worker.
      workers: their number.
      check: called after each batch of the loss and each sentence.

    Attributes:
      metric: the name of the score, such as `dev_bleu`.
      samples: of the last evaluation, the same lines each time, shortest
        first; none where another evaluator scores.
    """

    def __init__(
        self,
        run: Run,
        model: Any,
        evaluate_text: TextEvaluator | None = None,
        best_metric: str = "auto",
        index: int = 0,
        workers: int = 1,
        check: Callable[[], None] = lambda: None,
    ):
        self._run = run
        self._model = model
        # Traced only once; without dropout and without label smoothing.
        self._loss_sum = tf.function(
            lambda features: model.loss_sum(features, 0.0, None),
            input_signature=[{"inputs": _SIDE, "targets": _SIDE}],
            autograph=False,
        )
        self._evaluate_text = evaluate_text
        self._best_metric = best_metric
        self._index = index
        self._workers = workers
        self._check = check
        self.metric = f"dev_{run.problem.metric}"
        self.samples: list[Sample] = []

    def share(self) -> dict[str, Any]:
        """Evaluate each n-th batch and sentence, as one of n workers."""
        batches = itertools.islice(
            self._run.data.batches("dev"), self._index, None, self._workers
        )
        total = tokens = 0.0
        for batch in self._checked(batches):
            sides = {side: batch[side] for side in ("inputs", "targets")}
            loss, count = self._loss_sum(sides)
            total += float(loss)
            tokens += float(count)
        part: dict[str, Any] = {"loss": (total, tokens)}
        if not self._evaluate_text:
            results = translate_lines(
                self._translator,
                self._texts[0][self._index :: self._workers],
                note=lambda number, text: None,  # alike at every evaluation
            )
            part["translations"] = [
                result.hypotheses[0].text for result in self._checked(results)
            ]
        elif not self._index:
            part["report"] = self._evaluate_text()
        return part

    def scores(self, shares: Sequence[Mapping[str, Any]]) -> dict[str, float]:
        """Return `dev_loss`, `dev_perplexity`, and the score if there is one.

        The loss is the cross-entropy per real target token in nats, EOS
        included; the perplexity is its exponential.

        Args:
          shares: of all workers, in their order.
        """
        total, tokens = np.sum([part["loss"] for part in shares], axis=0)
        loss = float(total / tokens) if tokens else math.nan
        # The exponential of an untrained model's loss can be too large.
        perplexity = math.inf if loss >= 700 else math.exp(loss)
        scores = {"dev_loss": loss, "dev_perplexity": perplexity}
        report = shares[0].get("report")
        if not self._evaluate_text:
            report = self._score([part["translations"] for part in shares])
        if report:
            scores[self.metric] = float(report["score"])
        return scores

    def judge(
        self, scores: Mapping[str, float], best: Mapping[str, Any]
    ) -> tuple[str, float]:
        """Return the metric by which a checkpoint is the best, and its value.

        With "auto" that is the loss until the score reaches one point of a
        hundred, and the score from then on: below, it is noise.

        Args:
          scores: of an evaluation.
          best: the mark of the best checkpoint so far, or {}.
        """
        score = scores.get(self.metric)
        reached = best.get("metric") == self.metric and best["value"] >= 1
        too_early = self._best_metric == "auto" and not reached
        if (
            self._best_metric == "loss"
            or score is None
            or (too_early and not score >= 1)
        ):
            return "negative_dev_loss", -scores["dev_loss"]
        return self.metric, score

    def _checked(self, items: Iterable[T]) -> Iterator[T]:
        for item in items:
            self._check()  # the work on the item before is done
            yield item

    def _score(self, parts: Sequence[Sequence[str]]) -> dict[str, Any]:
        """Return the report on translations of all workers."""
        sources, references = self._texts
        translations = [""] * len(sources)
        for index, part in enumerate(parts):
            translations[index :: len(parts)] = part
        self.samples = [
            Sample(sources[i], translations[i], references[i])
            for i in spread_over_lengths(sources, _SAMPLES)
        ]
        return self._run.problem.evaluate(sources, references, translations)

    @functools.cached_property
    def _texts(self) -> tuple[list[str], list[str]]:
        return self._run.data.texts("dev")

    @functools.cached_property
    def _translator(self) -> Translator:
        # Greedy, and kept because its graph takes a while to trace. Greedy
        # search with constraints would take the best token of those that the
        # model does not want at all.
        return self._run.translator(self._model, beam_size=1, constrained=False)
