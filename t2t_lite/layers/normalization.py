"""Layer normalization with its gradient written out."""

import keras
from keras import ops


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

    def __init__(self, epsilon=1e-6, **kwargs):
        super().__init__(**kwargs)
        self.epsilon = epsilon

    def build(self, input_shape):
        size = input_shape[-1]
        self.scale = self.add_weight(
            shape=(size,), initializer="ones", name="scale", autocast=False
        )
        self.bias = self.add_weight(
            shape=(size,), initializer="zeros", name="bias", autocast=False
        )
        self.built = True

    def call(self, x):
        """Float [..., D] to float [..., D], of the compute dtype."""
        normalize = ops.custom_gradient(self._normalize_with_gradient)
        # + 0: values, for a custom gradient in TensorFlow takes no variables.
        return normalize(x, self.scale + 0.0, self.bias + 0.0)

    def _normalize_with_gradient(self, x, scale, bias):
        dtype = x.dtype
        x = ops.cast(x, "float32")
        centered = x - ops.mean(x, axis=-1, keepdims=True)
        variance = ops.mean(ops.square(centered), axis=-1, keepdims=True)
        inverse_deviation = ops.rsqrt(variance + self.epsilon)
        normalized = centered * inverse_deviation

        def gradient(upstream):
            upstream = ops.cast(upstream, "float32")
            batch_axes = tuple(range(len(x.shape) - 1))
            scale_gradient = ops.sum(upstream * normalized, axis=batch_axes)
            bias_gradient = ops.sum(upstream, axis=batch_axes)
            inner = upstream * scale
            inner_mean = ops.mean(inner, axis=-1, keepdims=True)
            along = ops.mean(inner * normalized, axis=-1, keepdims=True)
            x_gradient = inverse_deviation * (
                inner - inner_mean - normalized * along
            )
            return ops.cast(x_gradient, dtype), scale_gradient, bias_gradient

        return ops.cast(normalized * scale + bias, dtype), gradient

    def get_config(self):
        return {**super().get_config(), "epsilon": self.epsilon}
