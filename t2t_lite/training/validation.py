"""How good a model is on held-out data, while it trains and after."""

import functools
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import tensorflow as tf

from t2t_lite.decoding.lines import translate_lines
from t2t_lite.decoding.translator import Translator
from t2t_lite.training.run import Run

T = TypeVar("T")
_SAMPLES = 10  # lines of dev that show the progress
_SIDE = tf.TensorSpec([None, None], tf.int32)

# Gives the report of `Problem.evaluate`, or {} where there is none.
TextEvaluator = Callable[[], dict[str, Any]]


class Sample(NamedTuple):
    """A sentence that shows people what a model makes of it."""

    source: str
    translation: str
    reference: str


def spread_over_lengths(texts: Sequence[str], count: int) -> list[int]:
    """Which texts to show, from the shortest to the longest.

    Args:
      texts: the same ones give the same answer.
      count: at most so many are chosen, evenly by their rank.
    """
    ranked = sorted(range(len(texts)), key=lambda i: len(texts[i]))
    last = len(ranked) - 1
    parts = max(count - 1, 1)
    return [
        ranked[r] for r in sorted({last * i // parts for i in range(count)})
    ]


class LossEvaluation:
    """Computes a model's loss on batches, tracing its graph only once.

    Args:
      model: has `loss_sum(features, label_smoothing, seed)`.
    """

    def __init__(self, model: Any):
        self._loss_sum = tf.function(
            lambda features: model.loss_sum(
                features, label_smoothing=0.0, seed=None
            ),
            input_signature=[{"inputs": _SIDE, "targets": _SIDE}],
            autograph=False,
        )

    def __call__(
        self, batches: Iterable[Mapping[str, tf.Tensor]]
    ) -> dict[str, float]:
        """Evaluates without dropout and without label smoothing.

        Args:
          batches: dicts of int32 `inputs` [b, S] and `targets` [b, T].

        Returns:
          `loss`, the cross-entropy per real target token in nats, EOS
          included; `perplexity`, its exponential; `tokens`, how many. Without
          any token the first two are NaN.
        """
        return loss_report(*self.sums(batches))

    def sums(
        self, batches: Iterable[Mapping[str, tf.Tensor]]
    ) -> tuple[float, float]:
        """The loss of all tokens together, and how many they are."""
        total = tokens = 0.0
        for batch in batches:
            loss, count = self._loss_sum(
                {name: batch[name] for name in ("inputs", "targets")}
            )
            total += float(loss)
            tokens += float(count)
        return total, tokens


def loss_report(total: float, tokens: float) -> dict[str, float]:
    """What `LossEvaluation` returns, of its sums."""
    loss = total / tokens if tokens else math.nan
    # The exponential of an untrained model's loss can be too large.
    perplexity = math.inf if loss >= 700 else math.exp(loss)
    return {"loss": loss, "perplexity": perplexity, "tokens": int(tokens)}


def evaluations_since_best(
    records: Iterable[Mapping[str, Any]], metric: str
) -> tuple[int, int, float]:
    """How long evaluations have not been better.

    Args:
      records: of evaluations, in the order of their steps.
      metric: a key of theirs. Of a loss or a perplexity less is better.

    Returns:
      The number of evaluations since the best one, its step and its value. A
      value that is missing or not finite is never better. Without any value:
      all of them, 0 and NaN.
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
    """How good a model in training is on the dev split.

    The workers of a cluster share it out: `share` gives the part of one, and
    `scores` puts the parts of all together.

    Args:
      run: what is trained.
      model: its model.
      evaluate_text: scores the model's texts; None translates the dev split
        greedily and scores that.
      best_metric: what tells the best checkpoint: "loss", the problem's metric,
        or "auto", see `judge`.
      index: of this worker.
      workers: how many there are.
      moved: called after each batch of the loss and each sentence.

    Attributes:
      metric: the name of the score, `dev_bleu` say.
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
        moved: Callable[[], None] = lambda: None,
    ):
        self._run = run
        self._model = model
        self._loss = LossEvaluation(model)
        self._evaluate_text = evaluate_text
        self._best_metric = best_metric
        self._index = index
        self._workers = workers
        self._moved = moved
        self.metric = f"dev_{run.problem.metric}"
        self.samples: list[Sample] = []

    def share(self) -> dict[str, Any]:
        """What one of n workers finds out: each n-th batch and sentence."""
        batches = itertools.islice(
            self._run.data.batches("dev"), self._index, None, self._workers
        )
        part: dict[str, Any] = {"loss": self._loss.sums(self._noting(batches))}
        if not self._evaluate_text:
            sources = self._texts[0][self._index :: self._workers]
            part["translations"] = self._translate(sources)
        elif not self._index:
            part["report"] = self._evaluate_text()
        return part

    def scores(self, shares: Sequence[Mapping[str, Any]]) -> dict[str, float]:
        """`dev_loss`, `dev_perplexity`, and the score if there is a report.

        Args:
          shares: of all workers, in their order.
        """
        totals, tokens = zip(*(part["loss"] for part in shares), strict=True)
        loss = loss_report(sum(totals), sum(tokens))
        scores = {f"dev_{key}": loss[key] for key in ("loss", "perplexity")}
        report = shares[0].get("report")
        if not self._evaluate_text:
            report = self._score([part["translations"] for part in shares])
        if report:
            scores[self.metric] = float(report["score"])
        return scores

    def judge(
        self, scores: Mapping[str, float], best: Mapping[str, Any]
    ) -> tuple[str, float]:
        """The metric by which a checkpoint is the best, and its value.

        With "auto" that is the loss until the score reaches one point of a
        hundred, and the score from then on: below, it is noise.

        Args:
          scores: of an evaluation.
          best: what marks the best checkpoint so far, or {}.
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

    def _translate(self, sources: list[str]) -> list[str]:
        answers = translate_lines(
            self._translator,
            sources,
            note=lambda number, text: None,  # the same at every evaluation
        )
        return [answer.hypotheses[0].text for answer in self._noting(answers)]

    def _noting(self, items: Iterable[T]) -> Iterator[T]:
        """Yields them; work on one is over when the next is asked for."""
        for item in items:
            self._moved()
            yield item

    def _score(self, parts: Sequence[Sequence[str]]) -> dict[str, Any]:
        """The report on translations, of which each worker made some."""
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
        """Greedy. Kept, because its graph takes a while to trace.

        A greedy constrained search goes astray: where what the model wants is
        forbidden, it takes the best of what it does not want at all.
        """
        return self._run.translator(self._model, beam_size=1, constrained=False)
