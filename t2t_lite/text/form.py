"""`TextForm`: what graphs must know about the texts of a problem."""

from typing import Any, Protocol

import tensorflow as tf


class TextForm(Protocol):
    """Has graph ops only; `tree_form.TreeForm` is one.

    Attributes:
      kind: what answers are, such as "trees", for people and pages.
    """

    kind: str

    def prepare(self, texts: tf.Tensor) -> tf.Tensor:
        """Source texts in the form of the training data: tf.string [B]."""

    def constrain(
        self, texts: tf.Tensor, limits: tf.Tensor
    ) -> tuple[Any, tf.Tensor]:
        """The `ScoreChange` to the right form; see `TreeForm.constrain`."""

    def write(self, texts: tf.Tensor, tokens: tf.Tensor) -> tf.Tensor:
        """Readable answers, from tokens [B, N, L] of a constrained search."""
