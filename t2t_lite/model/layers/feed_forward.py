"""The position-wise feed-forward network (arXiv:1706.03762, section 3.3)."""

from typing import Any

import keras
from keras import ops

from t2t_lite.model.layers.backend import Shape, Tensor, has_accelerator
from t2t_lite.model.layers.dropout import Dropout, no_dropout
from t2t_lite.model.layers.product import LINE, project


@keras.saving.register_keras_serializable(package="t2t_lite")
class FeedForward(keras.layers.Layer):
    """FFN(x) = max(0, x W1 + b1) W2 + b2, equation 2.

    Args:
      filter_size: d_ff, the width between the two products.
      relu_dropout: share of the hidden units dropped in training.
    """

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
            initializer="glorot_uniform",
            name="hidden_kernel",
        )
        self.hidden_bias = self.add_weight(
            shape=(self.filter_size,), initializer="zeros", name="hidden_bias"
        )
        self.output_kernel = self.add_weight(
            shape=(self.filter_size, size),
            initializer="glorot_uniform",
            name="output_kernel",
        )
        self.output_bias = self.add_weight(
            shape=(size,), initializer="zeros", name="output_bias"
        )
        self.built = True

    def call(self, x: Tensor, dropout: Dropout = no_dropout) -> Tensor:
        """Float [B, T, D] to float [B, T, D]."""
        kernel, bias, output_kernel = self._weights(dropout is not no_dropout)
        hidden = ops.relu(project(x, kernel, bias))
        hidden = dropout(hidden, self.relu_dropout)
        return project(hidden, output_kernel, self.output_bias)

    def _weights(self, training):
        """W1, b1 and W2; in training with hidden units that stay zero.

        A row of 4096 bytes begins where every other one does in a processor's
        cache. The gradients of the kernels, products that walk down the
        columns of [N, d_ff], take half as long again for it; one cache line
        more a row spreads them.
        """
        weights = (self.hidden_kernel, self.hidden_bias, self.output_kernel)
        if not training or self.filter_size % 1024 or has_accelerator():
            return weights
        spread = (0, LINE)
        paddings = (((0, 0), spread), (spread,), (spread, (0, 0)))
        return [
            ops.pad(weight, padding)
            for weight, padding in zip(weights, paddings, strict=True)
        ]

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "filter_size": self.filter_size,
            "relu_dropout": self.relu_dropout,
        }
