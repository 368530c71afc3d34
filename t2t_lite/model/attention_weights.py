"""Compute the attention weights of a model for a batch."""

from t2t_lite.model.masks import padding_mask, source_bias
from t2t_lite.model.transformer import Features, Transformer
from t2t_lite.ops import Tensor


def attention_weights(
    model: Transformer, features: Features
) -> dict[str, list[Tensor]]:
    """Return the attention weights of every layer and head, without dropout.

    A graph prunes the layers whose weights are not used.

    Args:
      model: a built model.
      features: `inputs` and `targets` of a call, one pair per row.

    Returns:
      A dict with a float32 tensor per layer: `encoder` [B, H, S, S], `decoder`
      [B, H, T, T] and `cross` [B, H, T, S]. The weights of a position sum to 1.
      Row t of `decoder` and `cross` belongs to the position that predicts
      `targets[:, t]`; column t of `decoder` is the target before it.
    """
    encoder, decoder, cross = [], [], []
    inputs, targets = features["inputs"], features["targets"]
    real = padding_mask(inputs)
    mask = model.encoder_mask(real)
    x = model.embed_source(inputs)
    for layer in model.encoder_layers:
        y = layer.self_attention_input(x)
        encoder.append(layer.self_attention.attention_weights(y, **mask))
        x = layer(x, self_mask=mask)
    memory = model.encoder_norm(x)
    mask, bias = model.decoder_mask(targets), source_bias(real)
    x = model.embed_target(targets)
    for layer in model.decoder_layers:
        y = layer.self_attention_input(x)
        decoder.append(layer.self_attention.attention_weights(y, **mask))
        y = layer.cross_attention_input(x, mask)
        cross.append(layer.cross_attention.attention_weights(y, bias, memory))
        x = layer(x, memory, self_mask=mask, memory_bias=bias)
    return {"encoder": encoder, "decoder": decoder, "cross": cross}
