"""The attention weights of a model for a given batch."""

from keras import ops

from t2t_lite.model.masks import padding_mask, source_bias
from t2t_lite.model.transformer import Features, Transformer
from t2t_lite.ops import Tensor


def attention_weights(
    model: Transformer, features: Features
) -> dict[str, Tensor]:
    """Return the attention weights of every layer and head, without dropout.

    Args:
      model: built.
      features: `inputs` and `targets` of a call, one pair a row.

    Returns:
      A dict of float32: `encoder` [N, B, H, S, S], `decoder` [N, B, H, T, T]
      and `cross` [N, B, H, T, S]. A row is the attention of one position, and
      sums to 1. Row t of `decoder` and `cross` is the position that scores
      `targets[:, t]`; its input, column t of `decoder`, is the target before.
    """
    weights = _weights_by_layer(model, features)
    return {name: ops.stack(each) for name, each in weights.items()}


def source_attention(
    model: Transformer, features: Features, layer: int
) -> Tensor:
    """Return the mean attention of the heads of one layer to the source.

    Call it in a graph, which leaves out the layers above.

    Args:
      model: built.
      features: the arguments of `attention_weights`.
      layer: of the decoder, from 1.

    Returns:
      float32 [B, T, S]; row t is the position that scores `targets[:, t]`, and
      sums to 1.
    """
    weights = _weights_by_layer(model, features)["cross"]
    return ops.mean(weights[layer - 1], axis=1)


def _weights_by_layer(model, features):
    kept: dict[str, list[Tensor]] = {"encoder": [], "decoder": [], "cross": []}

    def keep(name, attention, **options):
        def attend(x):
            kept[name].append(attention.weights_of(x, **options))
            return attention(x, **options)

        return attend

    inputs, targets = features["inputs"], features["targets"]
    real = padding_mask(inputs)
    mask = model.encoder_mask(real)
    x = model.embed_source(inputs)
    for layer in model.encoder_layers:
        x = layer.with_attentions(
            x, keep("encoder", layer.self_attention, **mask)
        )
    memory = model.encoder_norm(x)
    mask, bias = model.decoder_mask(targets), source_bias(real)
    x = model.embed_target(targets)
    for layer in model.decoder_layers:
        x = layer.with_attentions(
            x,
            keep("decoder", layer.self_attention, **mask),
            keep("cross", layer.cross_attention, bias=bias, memory=memory),
        )
    return kept
