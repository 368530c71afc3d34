"""The loss of a micro-batch and its gradients, compiled by XLA if asked to."""

from collections.abc import Mapping, Sequence
from typing import Any

import keras
import tensorflow as tf

_Pass = tuple[tf.Tensor, tf.Tensor, list[tf.Tensor | None]]


class Gradients:
    """What a pass of a model gives.

    XLA cannot read variables that lie on another replica's device. So the
    compiled pass is a function of the weights, too. It makes a graph for each
    shape of micro-batches, which takes a while: packing keeps shapes few. Where
    a seed is negative XLA draws other random bits than TensorFlow, so that
    dropout drops other values.

    Args:
      model: has `loss_sum(features, label_smoothing, seed)` and `variables`.
      names: of the features.
      variables: what the gradients are by.
      label_smoothing: the hparam.
      jit: compile it.
    """

    def __init__(
        self,
        model: Any,
        names: Sequence[str],
        variables: Sequence[tf.Variable],
        label_smoothing: float,
        jit: bool = False,
    ):
        self._model = model
        self._names = names
        self._variables = list(variables)
        self._label_smoothing = label_smoothing
        self._jit = jit
        self._compiled = tf.function(
            self._of_weights, jit_compile=True, autograph=False
        )
        # One graph for both halves, which is not copied for each.
        self._half = tf.function(
            self._dense,
            autograph=False,
            experimental_attributes={"_noinline": True},
        )

    def __call__(self, features: Mapping[str, Any]) -> _Pass:
        """The loss sum, how many target tokens there are, and the gradients.

        Args:
          features: of the names, and `seed`, see `DropoutMasks`.
        """
        if not self._jit:
            return self._of(self._variables, features)
        weights = [v.value.read_value() for v in self._model.variables]
        return self._compiled(weights, dict(features))

    def in_halves(self, features: Mapping[str, Any]) -> _Pass:
        """The same, of the rows' two halves side by side, in a graph.

        On a processor each half has its own cores. What both computed together
        would wait for the slower one of them after every operation, of which
        there are thousands. Gradients take twice as much memory.

        Args:
          features: as for a call; b rows. Where b is odd, half of b + 1.
        """
        rows = tf.shape(features["inputs"])[0]
        half = (rows + 1) // 2
        places = [[0, 2 * half - rows], [0, 0]]  # zeros count for nothing
        filled = {name: tf.pad(features[name], places) for name in self._names}
        first, second, *before = tf.unstack(features["seed"])
        done = []
        for start in (0, half):
            seed = [first, second, sum(before) + start]
            part = {name: x[start : start + half] for name, x in filled.items()}
            done.append(self._half(part | {"seed": tf.stack(seed)}))
        (loss, tokens, ones), (more_loss, more_tokens, others) = done
        sums = [
            one if one is None else one + other
            for one, other in zip(ones, others, strict=True)
        ]
        return loss + more_loss, tokens + more_tokens, sums

    def _dense(self, features: Mapping[str, Any]) -> _Pass:
        loss, tokens, gradients = self(features)
        dense = [g if g is None else tf.convert_to_tensor(g) for g in gradients]
        return loss, tokens, dense

    def _of(
        self, variables: Sequence[Any], features: Mapping[str, Any]
    ) -> _Pass:
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(variables)
            loss, tokens = self._model.loss_sum(
                {name: features[name] for name in self._names},
                label_smoothing=self._label_smoothing,
                seed=features["seed"],
            )
        return loss, tokens, tape.gradient(loss, variables)

    def _of_weights(
        self, weights: Sequence[tf.Tensor], features: Mapping[str, Any]
    ) -> _Pass:
        own = self._model.variables
        values = dict(zip((id(v.value) for v in own), weights, strict=True))
        mapping = list(zip(own, weights, strict=True))
        with keras.StatelessScope(state_mapping=mapping):
            loss, tokens, gradients = self._of(
                [values[id(v)] for v in self._variables], features
            )
        dense = [g if g is None else tf.convert_to_tensor(g) for g in gradients]
        return loss, tokens, dense
