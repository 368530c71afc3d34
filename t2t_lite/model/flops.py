"""Parameters and FLOPs of a model, computed from its hparams.

The formulas follow arXiv:1706.03762; no model is built. With d = d_model,
f = d_ff, h heads of d_k and d_v units, and w = h (d_k + d_v):

- attention has 2 d w weights: the kernels of queries and keys are [d, h d_k],
  the kernels of values and of the output have d h d_v weights each;
- the feed-forward network has 2 d f weights and f + d biases;
- a normalization has 2 d weights.
"""

import re
from collections.abc import Mapping
from typing import Any

from t2t_lite.hparam import HParams, ModelHParams

# For each product of the forward pass, a training step computes two more: the
# gradients of both factors.
TRAINING_PER_FORWARD = 3


def count_parameters(
    hparams: ModelHParams, source_vocab_size: int, target_vocab_size: int
) -> dict[str, int]:
    """Return the number of parameters by part of the model."""
    d, (encoder, decoder) = hparams.hidden_size, hparams.num_layers
    source, target = hparams.vocab_sizes(source_vocab_size, target_vocab_size)
    attention = 2 * d * _attention_width(hparams)
    if hparams.attention_bias:
        key_depth, value_depth = _depths(hparams)
        attention += hparams.num_heads * (2 * key_depth + value_depth) + d
    if hparams.attention_score == "additive":
        attention += hparams.num_heads * _depths(hparams)[0]
    tables = _relative_rows(hparams) * sum(_depths(hparams))
    feed_forward = 2 * d * hparams.filter_size + hparams.filter_size + d
    norm = 2 * d
    final_norm = norm if hparams.norm_placement == "pre" else 0
    parts = {
        "source embedding": source * d,
        "target embedding": target * d,
        "softmax": target * d,
        "encoder self-attention": encoder * (attention + tables),
        "encoder feed-forward": encoder * feed_forward,
        "encoder norms": 2 * encoder * norm + final_norm,
        "decoder self-attention": decoder * (attention + tables),
        "decoder cross-attention": decoder * attention,
        "decoder feed-forward": decoder * feed_forward,
        "decoder norms": 3 * decoder * norm + final_norm,
    }
    if hparams.shared_embedding:
        for part in ("source embedding", "target embedding", "softmax"):
            del parts[part]
        parts = {"embedding and softmax": source * d, **parts}
    if hparams.logits_bias:
        parts["logits bias"] = target
    if hparams.target_space_embedding:
        parts["target space embedding"] = d
    if hparams.position_encoding == "learned":
        parts["positions"] = 2 * hparams.max_length * d
    return parts


def count_forward_flops(
    hparams: ModelHParams,
    target_vocab_size: int,
    source_length: float,
    target_length: float,
) -> tuple[float, float]:
    """Return the FLOPs of a forward pass per source and per target token.

    Only matrix products count, with 2 FLOPs per multiplication and addition. A
    product with an [a, b] matrix has 2 a b FLOPs per token, attention to n
    positions 2 h (d_k + d_v) n. With N layers per stack, S source positions and
    T target positions:

      source token: N (4 d w + 4 d f + 2 w S)         the encoder
                    + N (2 d w)                       its keys and values
      target token: N (4 d w + 4 d f + 2 w T)         the decoder
                    + N (2 d w + 2 w S)               its cross-attention
                    + 2 d V                           the softmax

    Relative positions add products with their tables, 2 w (2k + 1) per layer
    and token. Masked positions count because they are computed. A window of r
    counts as r + 1 positions, in the decoder as r / 2 + 1.

    Args:
      hparams: the hparams of the model.
      target_vocab_size: size of the target vocabulary.
      source_length: S, in tokens; 0 omits the terms with S.
      target_length: T, in tokens.
    """
    d, (encoder, decoder) = hparams.hidden_size, hparams.num_layers
    _, vocab_size = hparams.vocab_sizes(1, target_vocab_size)
    width = _attention_width(hparams)
    visible_source, visible_target = source_length, target_length
    if hparams.attention_window is not None:
        radius = hparams.attention_window // 2
        visible_source = min(visible_source, 2 * radius + 1)
        visible_target = min(visible_target, radius + 1)
    layer = 4 * d * width + 4 * d * hparams.filter_size
    layer += 2 * width * _relative_rows(hparams)
    half_attention = 2 * d * width
    source = encoder * (layer + 2 * width * visible_source)
    cross_attention = half_attention + 2 * width * source_length
    target = decoder * (layer + 2 * width * visible_target + cross_attention)
    return source + decoder * half_attention, target + 2 * d * vocab_size


def count_training_flops(
    hparams: ModelHParams,
    target_vocab_size: int,
    tokens: tuple[float, float],
    lengths: tuple[float, float],
) -> float:
    """Return the FLOPs of training, without padding.

    Args:
      hparams: the hparams of the model.
      target_vocab_size: size of the target vocabulary.
      tokens: numbers of source and target tokens in all updates.
      lengths: tokens of a source and of a target sentence, or of packed rows.
    """
    costs = count_forward_flops(hparams, target_vocab_size, *lengths)
    return TRAINING_PER_FORWARD * (tokens[0] * costs[0] + tokens[1] * costs[1])


def count_step_flops(
    hparams: HParams, target_vocab_size: int, length: float
) -> float:
    """Return the FLOPs of an update with `batch_tokens` tokens per side."""
    tokens = hparams.batch_tokens
    return count_training_flops(
        hparams, target_vocab_size, (tokens, tokens), (length, length)
    )


# Single-precision FLOP/s of GPUs, from the footnote of section 6.1.
_PAPER_FLOPS = {"K80": 2.8e12, "K40": 3.7e12, "M40": 6.0e12, "P100": 9.5e12}


def training_cost(
    hparams: HParams,
    target_vocab_size: int,
    lengths: tuple[float, float],
    work: Mapping[str, Any],
    sustained: float | None = None,
) -> dict[str, Any]:
    """Return the cost of training, counted and estimated as in table 2.

    Args:
      hparams: see `count_training_flops`.
      target_vocab_size: see `count_training_flops`.
      lengths: see `count_training_flops`.
      work: `seconds`, `devices`, `device`, `source_tokens`, `target_tokens`.
      sustained: FLOP/s of one device; None is the paper's value if available.

    Returns:
      `work`, `flops_counted`, `sustained_flops_per_second` and
      `flops_as_table_2`: seconds of updates x devices x sustained FLOP/s, or
      None if unknown.
    """
    tokens = work["source_tokens"], work["target_tokens"]
    counted = count_training_flops(hparams, target_vocab_size, tokens, lengths)
    for device, rate in _PAPER_FLOPS.items():
        if re.search(rf"\b{device}(?![0-9])", work["device"]):  # not K4000
            sustained = sustained or rate
    return {
        **work,
        "flops_counted": counted,
        "sustained_flops_per_second": sustained,
        "flops_as_table_2": sustained
        and work["seconds"] * work["devices"] * sustained,
    }


def _attention_width(hparams: ModelHParams) -> int:
    """Return w of the formulas: h (d_k + d_v)."""
    return hparams.num_heads * sum(_depths(hparams))


def _depths(hparams: ModelHParams) -> tuple[int, int]:
    default = hparams.hidden_size // hparams.num_heads
    return hparams.key_depth or default, hparams.value_depth or default


def _relative_rows(hparams: ModelHParams) -> int:
    """Return the rows of a relative position table; 0 without tables."""
    distance = hparams.max_relative_position
    return 0 if distance is None else 2 * distance + 1
