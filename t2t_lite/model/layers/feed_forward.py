"""The position-wise feed-forward network (arXiv:1706.03762, section 3.3)."""

from collections.abc import Mapping
from typing import Any

import keras
from keras import ops

from t2t_lite.model.layers.backend import Shape, Tensor, reshape_rows
from t2t_lite.model.layers.dropout import Dropout, no_dropout
from t2t_lite.model.layers.initial import drawn
from t2t_lite.model.layers.product import project_rows


@keras.saving.register_keras_serializable(package="t2t_lite")
class FeedForward(keras.layers.Layer):
    """FFN(x) = max(0, x W1 + b1) W2 + b2, equation 2.

    Args:
      filter_size: d_ff, the width between the two products.
      relu_dropout: share of the hidden units dropped in training.

    Attributes:
      NAMES: of the weights.
    """

    NAMES = ("hidden_kernel", "hidden_bias", "output_kernel", "output_bias")

    def __init__(
        self, filter_size: int, relu_dropout: float = 0.0, **kwargs: Any
    ):
        super().__init__(**kwargs)
        self.filter_size = filter_size
        self.relu_dropout = relu_dropout

    def build(self, input_shape: Shape) -> None:
        size = input_shape[-1]
        self.hidden_kernel = self.add_weight(
            shape=(size, self.filter_size),
            initializer=drawn("glorot_uniform"),
            name="hidden_kernel",
        )
        self.hidden_bias = self.add_weight(
            shape=(self.filter_size,), initializer="zeros", name="hidden_bias"
        )
        self.output_kernel = self.add_weight(
            shape=(self.filter_size, size),
            initializer=drawn("glorot_uniform"),
            name="output_kernel",
        )
        self.output_bias = self.add_weight(
            shape=(size,), initializer="zeros", name="output_bias"
        )
        self.built = True

    def cast_weights(self, dtype: str) -> dict[str, Tensor]:
        """The weights by name, in a dtype."""
        return {
            name: ops.cast(getattr(self, name), dtype) for name in self.NAMES
        }

    def call(
        self,
        x: Tensor,
        dropout: Dropout = no_dropout,
        weights: Mapping[str, Tensor] | None = None,
    ) -> Tensor:
        """Float [B, T, D] to float [B, T, D].

        `weights` are `cast_weights(x.dtype)` made before; None makes them here.
        """
        weights = weights or self.cast_weights(x.dtype)
        hidden = project_rows(
            x, weights["hidden_kernel"], weights["hidden_bias"], relu=True
        )
        if self.relu_dropout:  # which asks for the rows of the batch
            hidden = dropout(reshape_rows(hidden, x), self.relu_dropout)
        rows = project_rows(
            hidden, weights["output_kernel"], weights["output_bias"]
        )
        return reshape_rows(rows, x)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "filter_size": self.filter_size,
            "relu_dropout": self.relu_dropout,
        }
