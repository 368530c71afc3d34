"""Evaluation of a model on held-out data, during training and after."""

import functools
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
import tensorflow as tf

from t2t_lite.decoding.stream import translate_lines
from t2t_lite.decoding.translator import Translator
from t2t_lite.training.run import Run

T = TypeVar("T")
_SAMPLES = 10  # lines of dev that show the progress
_SIDE = tf.TensorSpec([None, None], tf.int32)


class DevEvaluation:
    """Evaluates a model in training on the dev split, translating greedily.

    Workers share the split: `share` evaluates the part of the worker `index`,
    and `scores` combines the parts of all. After each batch of the loss and
    each sentence it calls `check`. For `best_metric` see `judge`.

    Attributes:
      metric: the name of the score, such as `dev_bleu`.
      samples: of the last evaluation, the same lines each time, shortest
        first.
    """

    def __init__(
        self,
        run: Run,
        model: Any,
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
        self._best_metric = best_metric
        self._index = index
        self._workers = workers
        self._check = check
        self.metric = f"dev_{run.problem.metric}"
        self.samples: list[dict[str, str]] = []

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
        results = translate_lines(
            self._translator,
            self._texts[0][self._index :: self._workers],
            note=lambda number, text: None,  # alike at every evaluation
        )
        translations = [
            result.hypotheses[0].text for result in self._checked(results)
        ]
        return {"loss": (total, tokens), "translations": translations}

    def scores(self, shares: Sequence[Mapping[str, Any]]) -> dict[str, float]:
        """Return the scores of all workers' shares, in their order.

        `dev_loss` is the cross-entropy per real target token in nats, EOS
        included, and `dev_perplexity` its exponential.
        """
        total, tokens = np.sum([part["loss"] for part in shares], axis=0)
        loss = float(total / tokens) if tokens else math.nan
        # The exponential of an untrained model's loss can be too large.
        perplexity = math.inf if loss >= 700 else math.exp(loss)
        scores = {"dev_loss": loss, "dev_perplexity": perplexity}
        sources, references = self._texts
        translations = [""] * len(sources)
        for index, part in enumerate(shares):
            translations[index :: len(shares)] = part["translations"]
        ranked = sorted(range(len(sources)), key=lambda i: len(sources[i]))
        parts = np.array_split(ranked, _SAMPLES)  # of similar lengths
        self.samples = [
            {
                "source": sources[i],
                "translation": translations[i],
                "reference": references[i],
            }
            for i, *_ in filter(len, parts)
        ]
        report = self._run.problem.evaluate(sources, references, translations)
        if report:
            scores[self.metric] = float(report["score"])
        return scores

    def select_metric(
        self, scores: Mapping[str, float], best: Mapping[str, Any]
    ) -> tuple[str, float]:
        """Return the metric by which a checkpoint is the best, and its value.

        With `best_metric` "loss" that is the loss. With "auto" it is the loss
        until the score reaches one point of a hundred, and the score from then
        on: below, it is noise. `best` is the best mark so far, or {}.
        """
        score = scores.get(self.metric)
        by_score = best.get("metric") == self.metric and best["value"] >= 1
        if (
            score is None
            or self._best_metric == "loss"
            or (self._best_metric == "auto" and not (by_score or score >= 1))
        ):
            return "negative_dev_loss", -scores["dev_loss"]
        return self.metric, score

    def _checked(self, items: Iterable[T]) -> Iterator[T]:
        for item in items:
            self._check()  # the work on the item before is done
            yield item

    @functools.cached_property
    def _texts(self) -> tuple[list[str], list[str]]:
        return self._run.data.texts("dev")

    @functools.cached_property
    def _translator(self) -> Translator:
        # Greedy, and kept because its graph takes a while to trace. Greedy
        # search with constraints would take the best token of those that the
        # model does not want at all.
        return self._run.translator(self._model, beam_size=1, constrained=False)
