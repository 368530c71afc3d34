"""Layers: dropout, embeddings, positions, feed-forward, normalization."""

import contextlib
import contextvars
import math
from collections.abc import Callable, Iterator
from typing import Any

import keras
from keras import ops

from t2t_lite.model.masks import padding_mask
from t2t_lite.ops import (
    Shape,
    Tensor,
    dense,
    dropout,
    dropped_steps,
    layer_norm,
    shape_list,
    spread_units,
    take_rows,
    unflatten_rows,
)

# A function of a tensor and a rate: `DropoutMasks` of a pass, or `no_dropout`.
Dropout = Callable[[Tensor, float], Tensor]

_skips_init = contextvars.ContextVar("skips_init", default=False)


@contextlib.contextmanager
def skip_init(enabled: bool = True) -> Iterator[None]:
    """Initialize weights created in this block with zeros.

    Use it if a checkpoint sets all weights: random numbers for the 60 million
    weights of the base model take a second.
    """
    token = _skips_init.set(enabled)
    try:
        yield
    finally:
        _skips_init.reset(token)


def add_kernel(
    layer: Any, name: str, rows: int, columns: int, **options: Any
) -> Any:
    """Add a weight [rows, columns], by default with Glorot initialization."""
    options = {"initializer": "glorot_uniform", **options}
    if _skips_init.get():
        options["initializer"] = "zeros"
    return layer.add_weight(shape=(rows, columns), name=name, **options)


class DropoutMasks:
    """Dropout of one forward pass; a seed determines all masks.

    Keras' dropout counts in a variable, which checkpoints do not contain. Here
    no state is saved, and a pass has the same masks on any replica.

    Args:
      seed: int32 [2]; or int32 [3], where the third number is the index of the
        first row in the whole batch, so that rows keep their masks.

    Attributes:
      num_masks: the number so far; assign a lower number to repeat masks.
    """

    def __init__(self, seed: Tensor):
        seed = ops.cast(ops.convert_to_tensor(seed), "int32")
        self._seed = seed[:2]
        self._rows_before = seed[2] if seed.shape[0] == 3 else 0
        self.num_masks = 0

    def __call__(self, x: Tensor, rate: float) -> Tensor:
        """Zero a fraction `rate` of `x` and scale up the rest."""
        if not dropped_steps(rate):
            return x
        self.num_masks += 1
        seed = self._seed + ops.array([0, self.num_masks], "int32")
        return dropout(x, rate, seed, self._rows_before)


def no_dropout(x: Tensor, rate: float) -> Tensor:
    """Return `x` unchanged, for evaluation."""
    del rate
    return x


@keras.saving.register_keras_serializable(package="t2t_lite")
class TokenEmbedding(keras.layers.Layer):
    """A table [V, D] for embeddings and logits (arXiv:1706.03762, sec. 3.4).

    Args:
      vocab_size: V.
      hidden_size: D.
      scaled: multiply embeddings, not logits, by sqrt(d_model).
      embeds_padding: embed padding by its row; else by zeros.
      use_bias: add a bias to logits.
    """

    def __init__(
        self,
        vocab_size: int,
        hidden_size: int,
        scaled: bool = True,
        embeds_padding: bool = False,
        use_bias: bool = False,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        self.vocab_size = vocab_size
        self.hidden_size = hidden_size
        self.scaled = scaled
        self.embeds_padding = embeds_padding
        self.use_bias = use_bias
        self.bias: Any = None

    def build(self, input_shape: Shape | None = None) -> None:
        stddev = self.hidden_size**-0.5
        self.table = add_kernel(
            self,
            "table",
            self.vocab_size,
            self.hidden_size,
            initializer=keras.initializers.RandomNormal(stddev=stddev),
            autocast=False,  # `call` casts only the rows it uses
        )
        if self.use_bias:
            self.bias = self.add_weight(
                (self.vocab_size,), "zeros", name="bias"
            )
        self.built = True

    def call(self, ids: Tensor) -> Tensor:
        """Int [B, T] -> float [B, T, D]."""
        vectors = take_rows(self.table, ids)
        vectors = ops.cast(vectors, self.compute_dtype)
        if self.embeds_padding:
            return vectors * self.scale
        real = ops.cast(padding_mask(ids), self.compute_dtype)
        return vectors * (self.scale * real)[..., None]

    @property
    def scale(self) -> float:
        """The scale factor of embeddings."""
        return self.hidden_size**0.5 if self.scaled else 1.0

    def logits(self, hidden: Tensor) -> Tensor:
        """Float [..., D] -> float32 [..., V], the logits."""
        kernel = ops.transpose(ops.cast(self.table, hidden.dtype))  # [D, V]
        logits = unflatten_rows(dense(hidden, kernel, self.bias), hidden)
        return ops.cast(logits, "float32")


@keras.saving.register_keras_serializable(package="t2t_lite")
class TargetSpaceEmbedding(keras.layers.Layer):
    """A learned vector that is added to every embedded source token.

    tensor2tensor has one for each target space. The initial value is zero.
    """

    def build(self, input_shape: Shape) -> None:
        self.vector = self.add_weight(
            shape=(input_shape[-1],), initializer="zeros", name="vector"
        )
        self.built = True

    def call(self, x: Tensor) -> Tensor:
        """Float [B, S, D] -> float [B, S, D]."""
        return x + self.vector


def position_signal(
    positions: Tensor, depth: int, layout: str = "interleaved"
) -> Tensor:
    """Return sinusoidal position encodings (arXiv:1706.03762, section 3.5).

    Args:
      positions: int [T], from 0.
      depth: d_model; must be even for "interleaved".
      layout: "interleaved" has at 2i the sine and at 2i + 1 the cosine of
        position / 10000 ** (2i / depth), as in section 3.5. "concatenated", as
        in tensor2tensor, has all sines, then all cosines; the last wavelength
        is 10000 * 2 pi, and an odd depth ends in a zero.

    Returns:
      float32 [T, depth] for every dtype policy, because bfloat16 cannot
      distinguish neighboring positions beyond 256.
    """
    pairs = depth // 2
    steps = pairs if layout == "interleaved" else max(pairs - 1, 1)
    exponents = ops.arange(pairs, dtype="float32") / steps
    frequencies = ops.exp(exponents * -math.log(10000.0))
    angles = ops.cast(positions, "float32")[:, None] * frequencies[None, :]
    if layout == "concatenated":
        signal = ops.concatenate([ops.sin(angles), ops.cos(angles)], axis=-1)
        return ops.pad(signal, ((0, 0), (0, 1))) if depth % 2 else signal
    signal = ops.stack([ops.sin(angles), ops.cos(angles)], axis=-1)
    return ops.reshape(signal, (-1, depth))  # [T, D / 2, 2] -> [T, D]


class _Positions(keras.layers.Layer):
    """Base class of layers that add a vector [D] to each position."""

    def call(
        self,
        x: Tensor,
        start: int | Tensor = 0,
        positions: Tensor | None = None,
    ) -> Tensor:
        """Add the vectors of positions start...start+T-1 to float [B, T, D].

        Args:
          x: float [B, T, D].
          start: position of the first token, an int or an int32 scalar.
          positions: int [B, T] below T, positions of tokens in packed rows.
        """
        vectors = self._vectors(start + ops.arange(shape_list(x)[1]), x)
        if positions is not None:
            vectors = take_rows(vectors, positions)  # -> [B, T, D]
        return ops.cast(ops.cast(x, "float32") + vectors, x.dtype)

    def _vectors(self, positions, x):
        """Return the vectors, float32 [T, D], of int [T]."""
        raise NotImplementedError


@keras.saving.register_keras_serializable(package="t2t_lite")
class SinusoidalPositions(_Positions):
    """Sinusoidal positions without weights and without a maximum length."""

    def __init__(self, layout: str = "interleaved", **kwargs: Any):
        super().__init__(**kwargs)
        self.layout = layout

    def _vectors(self, positions, x):
        return position_signal(positions, x.shape[-1], self.layout)


@keras.saving.register_keras_serializable(package="t2t_lite")
class LearnedPositions(_Positions):
    """Learned vectors that are added at each position (table 3, row E).

    Args:
      max_length: number of positions; later positions, in longer hypotheses,
        have no vector.
    """

    def __init__(self, max_length: int, **kwargs: Any):
        super().__init__(**kwargs)
        self.max_length = max_length

    def build(self, input_shape: Shape) -> None:
        size = input_shape[-1]
        self.table = self.add_weight(
            shape=(self.max_length, size),
            initializer=keras.initializers.RandomNormal(stddev=size**-0.5),
            name="table",
        )
        self.built = True

    def _vectors(self, positions, x):
        rows = ops.minimum(positions, self.max_length - 1)
        vectors = ops.cast(take_rows(self.table, rows), "float32")
        return ops.where(ops.equal(rows, positions)[:, None], vectors, 0.0)


@keras.saving.register_keras_serializable(package="t2t_lite")
class FeedForward(keras.layers.Layer):
    """FFN(x) = max(0, x W1 + b1) W2 + b2 (arXiv:1706.03762, equation 2).

    Args:
      filter_size: d_ff, the number of hidden units.
      relu_dropout: dropout rate of the hidden units, 0-1.
      activation: function in place of max(0, x), by its name in Keras.
    """

    def __init__(
        self,
        filter_size: int,
        relu_dropout: float = 0.0,
        activation: str = "relu",
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        self.filter_size = filter_size
        self.relu_dropout = relu_dropout
        self.activation = activation

    def build(self, input_shape: Shape) -> None:
        size, ff = input_shape[-1], self.filter_size
        self.hidden_kernel = add_kernel(self, "hidden_kernel", size, ff)
        self.hidden_bias = self.add_weight((ff,), "zeros", name="hidden_bias")
        self.output_kernel = add_kernel(self, "output_kernel", ff, size)
        self.output_bias = self.add_weight((size,), "zeros", name="output_bias")
        self.built = True

    def call(self, x: Tensor, dropout: Dropout = no_dropout) -> Tensor:
        """Float [B, T, D] -> float [B, T, D]."""
        weights = self.hidden_kernel, self.hidden_bias, self.output_kernel
        if dropout is not no_dropout:  # in training
            weights = spread_units(*weights)
        kernel, bias, output_kernel = weights
        hidden = hidden_units(x, kernel, bias, self.activation)
        if self.relu_dropout:  # requires the batch axis
            # [B * T, F] -> [B, T, F]
            hidden = dropout(unflatten_rows(hidden, x), self.relu_dropout)
        rows = dense(hidden, output_kernel, self.output_bias)
        return unflatten_rows(rows, x)  # [B * T, D] -> [B, T, D]


def hidden_units(
    x: Tensor, kernel: Tensor, bias: Tensor, activation: str
) -> Tensor:
    """Return the hidden units of a feed-forward network, rows [N, F]."""
    is_relu = activation == "relu"  # fused
    rows = dense(x, kernel, bias, relu=is_relu)
    return rows if is_relu else keras.activations.get(activation)(rows)


@keras.saving.register_keras_serializable(package="t2t_lite")
class LayerNormalization(keras.layers.Layer):
    """Layer normalization over the last axis; see `ops.layer_norm`.

    Args:
      epsilon: constant added to the variance before the square root.
    """

    def __init__(self, epsilon: float = 1e-6, **kwargs: Any):
        super().__init__(**kwargs)
        self.epsilon = epsilon

    def build(self, input_shape: Shape) -> None:
        shape = (input_shape[-1],)
        self.scale, self.bias = (
            self.add_weight(
                shape, initializer, dtype="float32", autocast=False, name=name
            )
            for name, initializer in (("scale", "ones"), ("bias", "zeros"))
        )
        self.built = True

    def call(self, x: Tensor) -> Tensor:
        """Float [..., D] -> float [..., D] in the compute dtype."""
        return layer_norm(x, self.scale, self.bias, self.epsilon)
