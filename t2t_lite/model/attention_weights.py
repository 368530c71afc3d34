"""What the attention heads of a model look at, for a given batch."""

from keras import ops

from t2t_lite.model.layers.backend import Tensor
from t2t_lite.model.layers.masks import padding_mask
from t2t_lite.model.layers.segments import source_bias
from t2t_lite.model.transformer import Features, Transformer


def attention_weights(
    model: Transformer, features: Features
) -> dict[str, Tensor]:
    """The attention weights of every layer and head, without dropout.

    Args:
      model: built.
      features: `inputs` and `targets` of a call, one pair a row.

    Returns: a dict of float32: `encoder` [N, B, H, S, S], `decoder` [N, B,
      H, T, T] and `cross` [N, B, H, T, S]; a row is what one position
      attends to, and sums to 1. Row t of the decoder is the position that
      scores `targets[:, t]`, and its column t what that position is fed:
      the target before it.
    """
    kept: dict[str, list[Tensor]] = {"encoder": [], "decoder": [], "cross": []}

    def keep(name, attention, bias, memory=None):
        def attend(x):
            kept[name].append(attention.weights_of(x, bias, memory))
            return attention(x, bias, memory=memory)

        return attend

    inputs, targets = features["inputs"], features["targets"]
    bias = source_bias(padding_mask(inputs))
    x = model.embed_source(inputs)
    for layer in model.encoder_layers:
        x = layer.with_attentions(
            x, keep("encoder", layer.self_attention, bias)
        )
    memory = model.encoder_norm(x)
    self_bias = model.decoder_bias(ops.shape(targets)[1])
    x = model.embed_target(targets)
    for layer in model.decoder_layers:
        x = layer.with_attentions(
            x,
            keep("decoder", layer.self_attention, self_bias),
            keep("cross", layer.cross_attention, bias, memory),
        )
    return {name: ops.stack(weights) for name, weights in kept.items()}


def source_attention(
    model: Transformer, features: Features, layer: int
) -> Tensor:
    """What the heads of one decoder layer look at in the source, on average.

    Args:
      model: built.
      features: as of `attention_weights`.
      layer: of the decoder, from 1; those above it are not computed.

    Returns: float32 [B, T, S]; row t is of the position that scores
      `targets[:, t]`, which is fed the target before it, and sums to 1.
    """
    memory, mask = model.encode(features["inputs"])
    bias = source_bias(mask)
    self_bias = model.decoder_bias(ops.shape(features["targets"])[1])
    x = model.embed_target(features["targets"])
    *below, last = model.decoder_layers[:layer]
    for each in below:
        x = each(x, memory, self_bias, bias)
    kept = []

    def attend_source(y):
        kept.append(last.cross_attention.weights_of(y, bias, memory))
        return y  # what the layer makes of it is not needed

    last.with_attentions(
        x, lambda y: last.self_attention(y, self_bias), attend_source
    )
    return ops.mean(kept[0], axis=1)
