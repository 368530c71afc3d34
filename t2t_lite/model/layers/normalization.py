"""Layer normalization with its gradient written out."""

from typing import Any

import keras
from keras import ops

from t2t_lite.model.layers.backend import Shape, Tensor, reshape_rows
from t2t_lite.model.layers.product import flat


@keras.saving.register_keras_serializable(package="t2t_lite")
class LayerNormalization(keras.layers.Layer):
    """Layer normalization over the last axis (arXiv:1607.06450).

    Keras' own layer leaves the gradient to automatic differentiation, which
    walks over the activations about three times as often; on a CPU these
    passes, not arithmetic, are what a small model spends its time on.

    Statistics are taken in float32 under every precision: a bfloat16 mean
    over hundreds of units loses the digits that the variance is made of.

    Args:
      epsilon: added to the variance, inside the root.
    """

    def __init__(self, epsilon: float = 1e-6, **kwargs: Any):
        super().__init__(**kwargs)
        self.epsilon = epsilon

    def build(self, input_shape: Shape) -> None:
        size = input_shape[-1]
        kind = {"shape": (size,), "dtype": "float32", "autocast": False}
        self.scale = self.add_weight(initializer="ones", name="scale", **kind)
        self.bias = self.add_weight(initializer="zeros", name="bias", **kind)
        self.built = True

    def call(self, x: Tensor) -> Tensor:
        """Float [..., D] to float [..., D], of the compute dtype."""
        normalize = ops.custom_gradient(self._normalize_with_gradient)
        # As tensors: a custom gradient in TensorFlow takes no variables.
        weights = map(ops.copy, (self.scale, self.bias))
        return normalize(x, *weights)

    def _normalize_with_gradient(self, x, scale, bias):
        given, dtype, size = x, x.dtype, scale.shape[0]
        x = flat(ops.cast(x, "float32"))  # [N, D]
        centered = x - ops.mean(x, axis=-1, keepdims=True)
        variance = ops.mean(ops.square(centered), axis=-1, keepdims=True)
        inverse_deviation = ops.rsqrt(variance + self.epsilon)
        normalized = centered * inverse_deviation

        def gradient(given):
            upstream = flat(ops.cast(given, "float32"))
            product = upstream * normalized
            # Means weighted by `scale` are matrix products: [N, D] x [D, 1].
            share = ops.reshape(scale / size, (-1, 1))
            mean = ops.matmul(upstream, share)
            along = ops.matmul(product, share)
            x_gradient = inverse_deviation * (
                upstream * scale - mean - normalized * along
            )
            return (
                reshape_rows(ops.cast(x_gradient, dtype), given),
                ops.sum(product, axis=0),
                ops.sum(upstream, axis=0),
            )

        output = ops.cast(normalized * scale + bias, dtype)
        return reshape_rows(output, given), gradient

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "epsilon": self.epsilon}
