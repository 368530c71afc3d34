"""Evaluation of a model in training on the dev split."""

import dataclasses
import functools
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from t2t_lite.decoding.batching import DEFAULT_SIZE, Batching
from t2t_lite.decoding.stream import translate_lines
from t2t_lite.decoding.translator import Translator
from t2t_lite.training.run import Run

_SAMPLES = 10  # translations of dev that are logged
_SIDE = tf.TensorSpec([None, None], tf.int32)


@dataclasses.dataclass
class DevEvaluation:
    """Evaluates a model in training on the dev split, with greedy decoding.

    The workers split the data: `evaluate_shard` evaluates one shard, and
    `scores` combines all shards. `metric` is the name of the score, such as
    `dev_bleu`, and `samples` has translations of the last evaluation.
    """

    run: Run
    model: Any
    best_metric: str = "auto"  # see `select_metric`
    index: int = 0  # of this worker, whose shard is evaluated
    workers: int = 1  # number of workers
    # Called after each batch of the loss and before each batch of translations.
    check: Callable[[], None] = lambda: None

    def __post_init__(self) -> None:
        # Traced once; without dropout and label smoothing.
        self._loss_sum = tf.function(
            lambda features: self.model.loss_sum(features, 0.0, None),
            input_signature=[{"inputs": _SIDE, "targets": _SIDE}],
            autograph=False,
        )
        # At most the source positions of a micro-batch, to limit the memory.
        hparams = self.run.hparams
        positions = hparams.batch_tokens // hparams.gradient_accumulation_steps
        self._batching = Batching(DEFAULT_SIZE, positions, flush_early=False)
        self.metric = f"dev_{self.run.problem.metric}"
        self.samples: list[dict[str, str]] = []

    def evaluate_shard(self) -> dict[str, Any]:
        """Evaluate every n-th batch and sentence, as one of n workers."""
        batches = self.run.data.batches("dev")
        total = tokens = 0.0
        for batch in itertools.islice(batches, self.index, None, self.workers):
            sides = {side: batch[side] for side in ("inputs", "targets")}
            loss, count = self._loss_sum(sides)
            total += float(loss)
            tokens += float(count)
            self.check()
        results = translate_lines(
            self._translator,
            self._texts[0][self.index :: self.workers],
            batching=self._batching,
            note=lambda number, text: None,  # equal in every evaluation
            check=self.check,
        )
        translations = [result.hypotheses[0].text for result in results]
        return {"loss": (total, tokens), "translations": translations}

    def scores(self, shards: Sequence[Mapping[str, Any]]) -> dict[str, float]:
        """Return the scores of the results of all workers, in worker order.

        `dev_loss` is the cross-entropy per real target token in nats, EOS
        included, and `dev_perplexity` its exponential.
        """
        total, tokens = np.sum([shard["loss"] for shard in shards], axis=0)
        loss = float(total / tokens) if tokens else math.nan
        # The exponential of an untrained model's loss can overflow.
        perplexity = math.inf if loss >= 700 else math.exp(loss)
        scores = {"dev_loss": loss, "dev_perplexity": perplexity}
        sources, references = self._texts
        translations = [""] * len(sources)
        for index, shard in enumerate(shards):
            translations[index :: len(shards)] = shard["translations"]
        by_length = sorted(range(len(sources)), key=lambda i: len(sources[i]))
        groups = np.array_split(by_length, _SAMPLES)
        self.samples = [
            {
                "source": sources[i],
                "translation": translations[i],
                "reference": references[i],
            }
            for i, *_ in filter(len, groups)
        ]
        report = self.run.problem.evaluate(sources, references, translations)
        if report:
            scores[self.metric] = float(report["score"])
        others = self.run.problem.other_metrics
        scores |= {f"dev_{k}": float(report[k]) for k in others if k in report}
        return scores

    def select_metric(
        self, scores: Mapping[str, float], best: Mapping[str, Any]
    ) -> tuple[str, float]:
        """Return the metric that ranks checkpoints, and its value.

        `best_metric` "auto" selects the loss until the score reaches 1 (of
        100), because lower scores are noise, and then the score. `best` is the
        mark of the best checkpoint, or {}.
        """
        name = self.metric
        if self.best_metric not in ("auto", "loss"):
            name = f"dev_{self.best_metric}"
        score = scores.get(name)
        by_score = best.get("metric") == name and best["value"] >= 1
        if (
            score is None
            or self.best_metric == "loss"
            or (self.best_metric == "auto" and not (by_score or score >= 1))
        ):
            return "negative_dev_loss", -scores["dev_loss"]
        return name, score

    @functools.cached_property
    def _texts(self) -> tuple[list[str], list[str]]:
        return self.run.data.texts("dev")

    @functools.cached_property
    def _translator(self) -> Translator:
        # Cached, because tracing its graph is slow. Unconstrained, because
        # constraints can force greedy search to choose unlikely tokens.
        return self.run.translator(self.model, beam_size=1, constrained=False)
