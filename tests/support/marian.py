"""The weights of a `Transformer` by the names of Hugging Face's Marian."""

import numpy as np

from t2t_lite.model.layers.position import position_signal


def marian_weights(model, vocab_size, positions):
    """Arrays by the names of `MarianMTModel.state_dict()`.

    Args:
      model: post-norm, one embedding for all, sinusoidal positions. The vector
        of padding must be zero: Marian embeds it like any other.
      vocab_size: V.
      positions: how many of them Marian has.
    """
    table = model.softmax_embedding.table.numpy()
    assert not table[0].any()
    # Theirs puts all sines before all cosines; ours pairs them, as the paper.
    signal = np.array(
        position_signal(np.arange(positions), table.shape[1]), np.float32
    )
    weights = {
        "final_logits_bias": np.zeros((1, vocab_size), np.float32),
        "model.shared.weight": table,
        "lm_head.weight": table,
    }
    for side in ("encoder", "decoder"):
        weights[f"model.{side}.embed_tokens.weight"] = table
        weights[f"model.{side}.embed_positions.weight"] = signal
        for number, layer in enumerate(getattr(model, f"{side}_layers")):
            for name, value in _layer(layer).items():
                weights[f"model.{side}.layers.{number}.{name}"] = value
    return weights


def _layer(layer):
    feed_forward = layer.feed_forward
    named = {
        **_attention("self_attn", layer.self_attention),
        **_norm("self_attn_layer_norm", layer.self_attention_norm),
        "fc1.weight": feed_forward.hidden_kernel.numpy().T,
        "fc1.bias": feed_forward.hidden_bias.numpy(),
        "fc2.weight": feed_forward.output_kernel.numpy().T,
        "fc2.bias": feed_forward.output_bias.numpy(),
        **_norm("final_layer_norm", layer.feed_forward_norm),
    }
    if hasattr(layer, "cross_attention"):
        named |= _attention("encoder_attn", layer.cross_attention)
        named |= _norm("encoder_attn_layer_norm", layer.cross_attention_norm)
    return named


def _attention(name, attention):
    """Kernels [D, C] as [C, D], and the biases that ours does not have."""
    named = {}
    for theirs, ours in (
        ("q", "query"),
        ("k", "key"),
        ("v", "value"),
        ("out", "output"),
    ):
        kernel = getattr(attention, f"{ours}_kernel").numpy().T
        named[f"{name}.{theirs}_proj.weight"] = kernel
        bias = np.zeros(len(kernel), np.float32)
        named[f"{name}.{theirs}_proj.bias"] = bias
    return named


def _norm(name, norm):
    return {
        f"{name}.weight": norm.scale.numpy(),
        f"{name}.bias": norm.bias.numpy(),
    }
