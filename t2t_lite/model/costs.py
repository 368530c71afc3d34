"""What a model costs, counted from its hparams: parameters and FLOPs.

Counted by hand from the formulas of arXiv:1706.03762, without building a
model; the tests hold the counts against the built one. With d = d_model,
f = d_ff, h heads of d_k and d_v, and w = h (d_k + d_v):

- attention has 2 d w weights: queries and keys h d_k wide, values and what
  goes back to d h d_v wide;
- the feed-forward network has 2 d f weights and f + d biases;
- a normalization has 2 d.
"""

import re
from collections.abc import Mapping
from typing import Any

from t2t_lite.hparam import HParams, ModelHParams

# A training step makes the products of the forward pass and, for each of
# them, two more: the gradients of its two factors.
TRAINING_PER_FORWARD = 3


def count_parameters(
    hparams: ModelHParams, source_vocab_size: int, target_vocab_size: int
) -> dict[str, int]:
    """The parameters of a model by part; their sum is the model's."""
    d, (encoder, decoder) = hparams.hidden_size, hparams.layers
    source, target = hparams.vocab_sizes(source_vocab_size, target_vocab_size)
    attention = 2 * d * _attention_width(hparams)
    feed_forward = 2 * d * hparams.filter_size + hparams.filter_size + d
    norm = 2 * d
    at_the_end = norm if hparams.norm_placement == "pre" else 0
    parts = {
        "encoder self-attention": encoder * attention,
        "encoder feed-forward": encoder * feed_forward,
        "encoder norms": 2 * encoder * norm + at_the_end,
        "decoder self-attention": decoder * attention,
        "decoder cross-attention": decoder * attention,
        "decoder feed-forward": decoder * feed_forward,
        "decoder norms": 3 * decoder * norm + at_the_end,
    }
    if hparams.source_vector:
        parts["vector of the source"] = d
    if hparams.max_relative_position is not None:
        tables = _relative_rows(hparams) * sum(_depths(hparams))
        parts["encoder self-attention"] += encoder * tables
        parts["decoder self-attention"] += decoder * tables
    if hparams.position_encoding == "learned":
        parts["positions"] = 2 * hparams.max_length * d
    if hparams.shared_embedding:
        return {"embedding and softmax": source * d} | parts
    return {
        "source embedding": source * d,
        "target embedding": target * d,
        "softmax": target * d,
    } | parts


# Single-precision FLOP/s that section 6.1 estimates with, in its footnote.
_PAPER_FLOPS = {"K80": 2.8e12, "K40": 3.7e12, "M40": 6.0e12, "P100": 9.5e12}


def count_forward_flops(
    hparams: ModelHParams,
    target_vocab_size: int,
    source_length: float,
    target_length: float,
) -> tuple[float, float]:
    """The FLOPs of a forward pass over a source and over a target token.

    Matrix products alone, 2 FLOPs for each multiplication with its addition:
    a product with an [a, b] matrix is 2 a b a token, and attention to n
    positions 2 h (d_k + d_v) n. With S source and T target positions:

      source token: N (4 d w + 4 d f + 2 w S)         the encoder
                    + N (2 d w)                       keys and values of it
      target token: N (4 d w + 4 d f + 2 w T)         the decoder
                    + N (2 d w + 2 w S)               its cross-attention
                    + 2 d V                           the softmax

    N is the encoder's in the first line, and the decoder's in the others.
    Relative positions add 2 w (2k + 1) to each of both, products with their
    tables. What spreads these over the positions by one-hot matrices is left
    out: it multiplies with zeros and ones.
    The future that a mask hides is counted, since it is computed. A window of
    r counts as the r + 1 positions that it sees, r / 2 + 1 in the decoder; the
    blocks it is computed in are up to three times as long.

    Args:
      hparams: of the model.
      target_vocab_size: ids of the target's vocabulary.
      source_length: S, in tokens; 0 leaves out what grows with it.
      target_length: T, in tokens.
    """
    d, (encoder, decoder) = hparams.hidden_size, hparams.layers
    _, vocab_size = hparams.vocab_sizes(1, target_vocab_size)
    width = _attention_width(hparams)
    seen_source, seen_target = source_length, target_length
    if hparams.attention_window is not None:
        reach = hparams.attention_window // 2
        seen_source = min(seen_source, 2 * reach + 1)
        seen_target = min(seen_target, reach + 1)
    layer = 4 * d * width + 4 * d * hparams.filter_size
    layer += 2 * width * _relative_rows(hparams)
    half_attention = 2 * d * width
    source = encoder * (layer + 2 * width * seen_source)
    target = decoder * (
        layer
        + 2 * width * seen_target
        + half_attention
        + 2 * width * source_length
    )
    return source + decoder * half_attention, target + 2 * d * vocab_size


def count_step_flops(
    hparams: HParams, target_vocab_size: int, length: float
) -> float:
    """The FLOPs of an update: `batch_tokens` a side, sentences of `length`."""
    tokens = hparams.batch_tokens
    return count_training_flops(
        hparams, target_vocab_size, tokens, tokens, length, length
    )


def count_training_flops(
    hparams: ModelHParams,
    target_vocab_size: int,
    source_tokens: float,
    target_tokens: float,
    source_length: float,
    target_length: float,
) -> float:
    """The FLOPs of a training that saw so many tokens, padding left out.

    Args: as in `count_forward_flops`; tokens are those of all updates.
    """
    source, target = count_forward_flops(
        hparams, target_vocab_size, source_length, target_length
    )
    forward = source_tokens * source + target_tokens * target
    return TRAINING_PER_FORWARD * forward


def training_cost(
    hparams: HParams,
    target_vocab_size: int,
    lengths: tuple[float, float],
    work: Mapping[str, Any],
    sustained: float | None = None,
) -> dict[str, Any]:
    """What a training took, counted and as the paper's table 2 estimates it.

    Args:
      hparams: of the model.
      target_vocab_size: ids of the target's vocabulary.
      lengths: tokens of a mean source and target sentence, or of packed rows.
      work: what `trainer.train` says.
      sustained: FLOP/s of one device; None takes what the paper gives for that
        device, if it does.

    Returns:
      `work`, `flops_counted` from the model, and, where
      `sustained_flops_a_second` is known, `flops_as_table_2`: seconds of
      updates x devices x that.
    """
    counted = count_training_flops(
        hparams,
        target_vocab_size,
        work["source_tokens"],
        work["target_tokens"],
        *lengths,
    )
    sustained = sustained or sustained_flops(work["device"])
    return {
        **work,
        "flops_counted": counted,
        "sustained_flops_a_second": sustained,
        "flops_as_table_2": sustained
        and work["seconds"] * work["devices"] * sustained,
    }


def sustained_flops(device_name: str) -> float | None:
    """FLOP/s that a GPU sustains, by the paper; None of those not in it."""
    for part, value in _PAPER_FLOPS.items():
        if re.search(rf"\b{part}(?![0-9])", device_name):  # no K4000
            return value
    return None


def estimate_memory(
    hparams: HParams,
    source_vocab_size: int,
    target_vocab_size: int,
    recompute: bool = False,
) -> dict[str, int]:
    """Bytes that training takes on one device, by part.

    Weights, what the optimizer keeps of them, their moving average, the
    gradients of an update and those of a pass are float32 under every
    precision, and counted; the rows and columns of Adafactor are next to
    nothing. So are the kernels of
    attention as a pass multiplies with them, side by side, and the gradient
    that each use of an embedding matrix has before they are added up. The
    activations are an estimate for the largest micro-batch, as sentences of
    `max_length`: what the backward pass reads, and one block of logits. The
    process itself, half a GiB of TensorFlow, comes on top.

    Args:
      hparams: of the model and its training.
      source_vocab_size: ids of the source's vocabulary.
      target_vocab_size: ids of the target's.
      recompute: the backward pass reads the inputs of layers only, and has
        one layer at a time whole.
    """
    sizes = (source_vocab_size, target_vocab_size)
    parts = count_parameters(hparams, *sizes)
    weights = 4 * sum(parts.values())
    embeddings = 4 * sum(
        count for part, count in parts.items() if "embedding" in part
    )
    # Three of an attention's four kernels, 4 bytes a number.
    attention_inputs = 3 * sum(
        count for part, count in parts.items() if "attention" in part
    )
    if recompute:  # those of a decoder layer
        encoder, decoder = hparams.layers
        attention_inputs = 2 * attention_inputs // (encoder + 2 * decoder)
    uses = 3 if hparams.shared_embedding else 1
    positions = hparams.batch_tokens // hparams.micro_batches
    bytes_each = 2 if hparams.precision == "bfloat16" else 4
    kept = positions * _kept_numbers(hparams, recompute)
    # Logits, their exponentials and those transposed, in blocks of rows.
    _, vocab_size = hparams.vocab_sizes(*sizes)
    logits = 3 * 4 * min(positions, 1024) * vocab_size
    return {
        "weights": weights,
        "optimizer": 0 if hparams.optimizer == "adafactor" else 2 * weights,
        **({"moving average": weights} if hparams.ema_decay else {}),
        "gradients": 2 * weights + (uses - 1) * embeddings,
        "kernels in use": attention_inputs,
        "activations": int(bytes_each * kept + logits),
    }


def _kept_numbers(hparams: HParams, recompute: bool) -> float:
    """Numbers kept of a source and a target position, by all layers.

    An attention keeps its queries, keys, values and context, and the weights
    of each head; a feed-forward network its hidden units. The frame of every
    sublayer, its normalization and dropout, keeps 2.25 d: two arrays, and a
    byte for what was dropped.
    """
    length = min(
        hparams.max_length, hparams.batch_tokens // hparams.micro_batches
    )
    copies = 1 + 1.25 * (hparams.attention_dropout > 0)
    attention = (
        2 * _attention_width(hparams) + copies * hparams.num_heads * length
    )
    # Products of the weights and the table, of self-attention only.
    relative = hparams.num_heads * _relative_rows(hparams)
    feed_forward = hparams.filter_size * (1 + 1.25 * (hparams.relu_dropout > 0))
    frame = 2.25 * hparams.hidden_size
    encoder, decoder = hparams.layers
    both = attention + relative + feed_forward
    decoder_layer = both + attention + 3 * frame
    if recompute:  # with the encoder's output, an input of every decoder layer
        return (encoder + decoder + 1) * hparams.hidden_size + decoder_layer
    return encoder * (both + 2 * frame) + decoder * decoder_layer


def _attention_width(hparams: ModelHParams) -> int:
    """The w of the formulas: h (d_k + d_v)."""
    return hparams.num_heads * sum(_depths(hparams))


def _depths(hparams: ModelHParams) -> tuple[int, int]:
    """d_k and d_v."""
    default = hparams.hidden_size // hparams.num_heads
    return hparams.key_depth or default, hparams.value_depth or default


def _relative_rows(hparams: ModelHParams) -> int:
    """Of a table of relative positions: 2k + 1; 0 without one."""
    reach = hparams.max_relative_position
    return 0 if reach is None else 2 * reach + 1
