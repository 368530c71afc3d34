"""Attention weights of all layers and heads for a pair of texts."""

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from t2t_lite.decoding.stream import translate_lines
from t2t_lite.decoding.token_info import END
from t2t_lite.decoding.translator import Translator
from t2t_lite.errors import UsageError
from t2t_lite.model.attention_weights import attention_weights
from t2t_lite.tokenizers.base import EOS_ID, PAD_ID
from t2t_lite.validators import check, integer, optional


@dataclasses.dataclass(eq=False)
class Attention:
    """Attention weights of N layers and H heads for a pair of texts.

    The weights of a position sum to 1.

    Attributes:
      texts: the source and its translation.
      source_tokens: S pieces, EOS included.
      target_tokens: T pieces, EOS included.
      encoder: float32 [N, H, S, S].
      decoder: float32 [N, H, T, T]; column t is the token before row t.
      cross: float32 [N, H, T, S].
    """

    texts: tuple[str, str]
    source_tokens: list[str]
    target_tokens: list[str]
    encoder: np.ndarray = dataclasses.field(repr=False)
    decoder: np.ndarray = dataclasses.field(repr=False)
    cross: np.ndarray = dataclasses.field(repr=False)

    def plot(
        self, ax: Any = None, *, layer: int = -1, head: int | None = None
    ) -> Any:
        """Plot the cross-attention of a decoder layer with matplotlib.

        Args:
          ax: the axes to draw on; None makes a figure.
          layer: the index of the layer; -1 is the last layer.
          head: the index of the head; None plots the mean over all heads.

        Returns:
          The axes: source pieces from left to right, target pieces downwards.

        Raises:
          UsageError: matplotlib is missing, or an index is out of range.
        """
        try:
            from matplotlib import pyplot
        except ImportError as error:
            raise UsageError(
                "A plot requires matplotlib: pip install 't2t-lite[notebook]'."
            ) from error
        layers, heads = self.cross.shape[:2]
        check("layer", layer, integer(-layers, layers - 1))
        check("head", head, optional(integer(-heads, heads - 1)))
        weights = self.cross[layer]  # [H, T, S]
        weights = weights.mean(axis=0) if head is None else weights[head]
        if ax is None:
            _, ax = pyplot.subplots(layout="constrained")
        ax.imshow(weights, cmap="Greys", vmin=0, vmax=1)
        # matplotlib reads text between dollar signs as a formula.
        for set_ticks, tokens, angle in (
            (ax.set_xticks, self.source_tokens, 90),
            (ax.set_yticks, self.target_tokens, 0),
        ):
            places = range(len(tokens))
            set_ticks(places, tokens, rotation=angle, parse_math=False)
        ax.set(xlabel="source", ylabel="target")
        return ax


def attention_of(
    translator: Translator, source: str, target: str | None = None
) -> Attention:
    """Compute the attention weights of all heads for a pair of texts.

    Without a target, it is the translation of the source.
    """
    if target is None:
        (result,) = translate_lines(translator, [source])
        target = result.hypotheses[0].text
    outputs = attention(translator)(*map(tf.constant, ([source], [target])))
    if outputs.pop("cut")[0]:
        raise UsageError(
            f"A text must have at most {translator.max_length} tokens "
            "(max_length, EOS included)."
        )
    values = {name: value[0].numpy() for name, value in outputs.items()}
    for name in ("source_tokens", "target_tokens"):
        values[name] = [piece.decode() for piece in values[name]]
    return Attention((source, target), **values)


def attention(translator: Translator) -> Callable[..., dict[str, tf.Tensor]]:
    """Return a function of sources and targets, tf.string [B] each.

    Its outputs are pieces `source_tokens` [B, S] and `target_tokens` [B, T];
    weights `encoder` [B, N, H, S, S], `decoder` [B, N, H, T, T], where column t
    is the token before row t, and `cross` [B, N, H, T, S]; and `cut` [B].
    """
    model = translator.single_model
    pieces = []  # pieces by id, of the source and the target vocabulary
    for encoder in (translator.source_encoder, translator.target_encoder):
        pieces.append(encoder.ids_to_pieces(range(encoder.vocab_size)))
        pieces[-1][PAD_ID], pieces[-1][EOS_ID] = "", END

    def answer(sources: tf.Tensor, targets: tf.Tensor) -> dict[str, tf.Tensor]:
        features, _, truncated = translator.encode_pairs(sources, targets)
        inputs, targets = features["inputs"], features["targets"]
        weights = attention_weights(model, features)
        queries = {"encoder": inputs, "decoder": targets, "cross": targets}
        return {
            "source_tokens": tf.gather(pieces[0], inputs),
            "target_tokens": tf.gather(pieces[1], targets),
            **{
                name: _without_padding(weights[name], ids != PAD_ID)
                for name, ids in queries.items()
            },
            "cut": truncated,
        }

    return answer


def _without_padding(layers: list[tf.Tensor], real: tf.Tensor) -> tf.Tensor:
    """Stack the weights of N layers, with 0 for NaN and padding.

    `real`, bool [B, T], is False for padding.
    """
    weights = tf.stack(layers, axis=1)  # [B, N, H, T, S]
    is_valid = real[:, None, None, :, None] & tf.math.is_finite(weights)
    return tf.where(is_valid, weights, 0.0)
