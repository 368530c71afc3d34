"""How good a model is on held-out data, while it trains and after."""

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import tensorflow as tf

_SIDE = tf.TensorSpec([None, None], tf.int32)


class LossEvaluation:
    """Computes a model's loss on batches, tracing its graph only once.

    Args:
      model: has `loss_sum(features, label_smoothing, seed)`.
    """

    def __init__(self, model):
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
        total = tokens = 0.0
        for batch in batches:
            loss, count = self._loss_sum(
                {name: batch[name] for name in ("inputs", "targets")}
            )
            total += float(loss)
            tokens += float(count)
        loss = total / tokens if tokens else math.nan
        # Of an untrained or broken model, the power can be too large.
        perplexity = math.exp(loss) if loss < 700 else math.inf
        if math.isnan(loss):
            perplexity = math.nan
        return {"loss": loss, "perplexity": perplexity, "tokens": int(tokens)}


class TextEvaluation:
    """Translates the dev split and scores it with the problem's metric.

    Args:
      run: a `Run`.
      beam_size: of the search; 1 is the quickest.
      lines: at most so many of the split, the first ones; None takes all.
    """

    def __init__(self, run, beam_size: int = 1, lines: int | None = None):
        self._run = run
        self._beam_size = beam_size
        self._lines = lines
        self._texts = None
        self._translators = {}

    def __call__(self, model) -> dict[str, Any]:
        """The report of `Problem.evaluate`: `metric`, `score`, ..."""
        from t2t_lite.decoding.lines import translate_lines

        if self._texts is None:
            self._texts = self._run.data.texts("dev", self._lines)
        sources, references = self._texts
        translations = translate_lines(
            self._translator(model),
            sources,
            batch_size=64,
            note=_keep_quiet,
        )
        return self._run.problem.evaluate(
            sources,
            references,
            [translation.hypotheses[0].text for translation in translations],
        )

    def _translator(self, model):
        """Made once a model, because its graph takes a while to trace."""
        if id(model) not in self._translators:
            # Greedily, a constrained search strays: where what the model wants
            # is forbidden, it takes the best of what it does not want at all.
            self._translators[id(model)] = self._run.translator(
                model, beam_size=self._beam_size, constrained=False
            )
        return self._translators[id(model)]


def _keep_quiet(number, message):
    """Every evaluation would note the same over-long lines."""
    del number, message


TextEvaluator = Callable[[Any], dict[str, Any]]
