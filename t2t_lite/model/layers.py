"""The layers around attention: dropout, embedding, positions, feed-forward."""

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
    unflatten_rows,
)

# Drops a share of a tensor: `DropoutMasks` of a pass, or `no_dropout`.
Dropout = Callable[[Tensor, float], Tensor]

_skips_init = contextvars.ContextVar("skips_init", default=False)


@contextlib.contextmanager
def skip_init(really: bool = True) -> Iterator[None]:
    """Initialize the weights that are created in this block with zeros.

    Use it where a checkpoint sets them all: random numbers for the 60 million
    weights of the base model take a second.
    """
    token = _skips_init.set(really)
    try:
        yield
    finally:
        _skips_init.reset(token)


def maybe_init(initializer: Any) -> Any:
    """Return the initializer; within `skip_init()`, zeros."""
    return "zeros" if _skips_init.get() else initializer


class DropoutMasks:
    """Dropout of one forward pass, whose masks are a pure function of a seed.

    Keras' own dropout keeps a counter in a variable, which is in no checkpoint
    and the same on every replica. Here a training step passes a seed made of
    the run, the update and the micro-batch: there is nothing to save, and a
    micro-batch drops the same units wherever it is computed.

    Args:
      seed: int32 [2]; equal seeds give equal masks, call by call. In int32 [3]
        the third number counts the rows of the batch before those here, which
        then drop the units that they drop in the whole batch.

    Attributes:
      drawn: number of masks so far; assign an earlier number to repeat them.
    """

    def __init__(self, seed: Tensor):
        seed = ops.cast(ops.convert_to_tensor(seed), "int32")
        self._seed = seed[:2]
        self._rows_before = seed[2] if seed.shape[0] == 3 else 0
        self.drawn = 0

    def __call__(self, x: Tensor, rate: float) -> Tensor:
        """Zero a share `rate` of `x`, and scale up the rest; see `dropout`."""
        if not dropped_steps(rate):
            return x
        self.drawn += 1
        seed = self._seed + ops.array([0, self.drawn], "int32")
        return dropout(x, rate, seed, self._rows_before)


def no_dropout(x: Tensor, rate: float) -> Tensor:
    """Return `x`: the dropout of evaluation."""
    del rate
    return x


@keras.saving.register_keras_serializable(package="t2t_lite")
class TokenEmbedding(keras.layers.Layer):
    """A table [V, D] that embeds tokens and, unscaled, scores them.

    arXiv:1706.03762, section 3.4.

    Args:
      vocab_size: V.
      hidden_size: d_model.
      scaled: multiply embeddings by the square root of d_model.
    """

    def __init__(
        self,
        vocab_size: int,
        hidden_size: int,
        scaled: bool = True,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        self.vocab_size = vocab_size
        self.hidden_size = hidden_size
        self.scaled = scaled

    def build(self, input_shape: Shape | None = None) -> None:
        stddev = self.hidden_size**-0.5
        self.table = self.add_weight(
            shape=(self.vocab_size, self.hidden_size),
            initializer=maybe_init(
                keras.initializers.RandomNormal(stddev=stddev)
            ),
            name="table",
            autocast=False,  # only the rows in use are cast
        )
        self.built = True

    def call(self, ids: Tensor) -> Tensor:
        """Int [B, T] -> float [B, T, D]; padding is embedded as zero."""
        real = ops.cast(padding_mask(ids), self.compute_dtype)
        vectors = ops.take(self.table, ids, axis=0)
        vectors = ops.cast(vectors, self.compute_dtype)
        return vectors * (self.scale * real)[..., None]

    @property
    def scale(self) -> float:
        """The factor of embeddings."""
        return self.hidden_size**0.5 if self.scaled else 1.0

    def logits(self, hidden: Tensor) -> Tensor:
        """Float [..., D] -> float32 [..., V], the input of the softmax."""
        kernel = ops.transpose(ops.cast(self.table, hidden.dtype))
        logits = unflatten_rows(dense(hidden, kernel), hidden)
        return ops.cast(logits, "float32")

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "vocab_size": self.vocab_size,
            "hidden_size": self.hidden_size,
            "scaled": self.scaled,
        }


@keras.saving.register_keras_serializable(package="t2t_lite")
class TargetSpaceEmbedding(keras.layers.Layer):
    """Adds one vector to every embedded source token.

    tensor2tensor has one for each kind of target. It is initialized to zero.
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
    """Return sines and cosines of geometrically growing wavelengths.

    arXiv:1706.03762, section 3.5.

    Args:
      positions: int [T], counted from 0.
      depth: d_model; even with "interleaved".
      layout: "interleaved": sine at 2i and cosine at 2i + 1 of the angle
        position / 10000 ** (2i / depth), as in section 3.5. "concatenated":
        tensor2tensor's, all sines, then all cosines, the wavelengths reaching
        10000 * 2 pi at the last pair; an odd depth ends in a zero.

    Returns:
      float32 [T, depth], in float32 under every precision: bfloat16 cannot
      tell neighboring positions beyond 256 apart.
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


@keras.saving.register_keras_serializable(package="t2t_lite")
class SinusoidalPositions(keras.layers.Layer):
    """Adds `position_signal`; has no weights and no maximum length."""

    def __init__(self, layout: str = "interleaved", **kwargs: Any):
        super().__init__(**kwargs)
        self.layout = layout

    def call(
        self,
        x: Tensor,
        start: int | Tensor = 0,
        positions: Tensor | None = None,
    ) -> Tensor:
        """Add the signal of positions start...start+T-1 to float [B, T, D].

        Args:
          x: float [B, T, D].
          start: position of the first token, an int or an int32 scalar.
          positions: int [B, T] below T, the position of each token instead.
        """
        signal = position_signal(
            start + ops.arange(ops.shape(x)[1]), x.shape[-1], self.layout
        )
        if positions is not None:
            signal = ops.take(signal, positions, axis=0)  # -> [B, T, D]
        return ops.cast(ops.cast(x, "float32") + signal, x.dtype)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "layout": self.layout}


@keras.saving.register_keras_serializable(package="t2t_lite")
class LearnedPositions(keras.layers.Layer):
    """Adds a learned vector per position (table 3, row E).

    Args:
      max_length: number of positions; nothing is added to later ones, so that
        a hypothesis may be longer.
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
          positions: int [B, T], the position of each token instead.
        """
        if positions is None:
            positions = start + ops.arange(ops.shape(x)[1])
        known = ops.minimum(positions, self.max_length - 1)
        vectors = ops.take(self.table, known, axis=0)
        is_known = ops.equal(known, positions)[..., None]
        return x + ops.where(is_known, vectors, ops.zeros_like(vectors))

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "max_length": self.max_length}


@keras.saving.register_keras_serializable(package="t2t_lite")
class FeedForward(keras.layers.Layer):
    """FFN(x) = max(0, x W1 + b1) W2 + b2 (arXiv:1706.03762, equation 2).

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
            initializer=maybe_init("glorot_uniform"),
            name="hidden_kernel",
        )
        self.hidden_bias = self.add_weight(
            shape=(self.filter_size,), initializer="zeros", name="hidden_bias"
        )
        self.output_kernel = self.add_weight(
            shape=(self.filter_size, size),
            initializer=maybe_init("glorot_uniform"),
            name="output_kernel",
        )
        self.output_bias = self.add_weight(
            shape=(size,), initializer="zeros", name="output_bias"
        )
        self.built = True

    def call(self, x: Tensor, dropout: Dropout = no_dropout) -> Tensor:
        """Float [B, T, D] -> float [B, T, D]."""
        hidden = dense(x, self.hidden_kernel, self.hidden_bias, True)
        if self.relu_dropout:  # which needs the batch axis
            hidden = dropout(unflatten_rows(hidden, x), self.relu_dropout)
        rows = dense(hidden, self.output_kernel, self.output_bias)
        return unflatten_rows(rows, x)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "filter_size": self.filter_size,
            "relu_dropout": self.relu_dropout,
        }


@keras.saving.register_keras_serializable(package="t2t_lite")
class LayerNormalization(keras.layers.Layer):
    """Layer normalization over the last axis; see `ops.layer_norm`.

    Args:
      epsilon: added to the variance, inside the root.
    """

    def __init__(self, epsilon: float = 1e-6, **kwargs: Any):
        super().__init__(**kwargs)
        self.epsilon = epsilon

    def build(self, input_shape: Shape) -> None:
        options = {
            "shape": (input_shape[-1],),
            "dtype": "float32",
            "autocast": False,
        }
        self.scale = self.add_weight(
            initializer="ones", name="scale", **options
        )
        self.bias = self.add_weight(initializer="zeros", name="bias", **options)
        self.built = True

    def call(self, x: Tensor) -> Tensor:
        """Float [..., D] -> float [..., D], of the compute dtype."""
        return layer_norm(x, self.scale, self.bias, self.epsilon)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "epsilon": self.epsilon}
