"""Hparams sets of tensor2tensor 1.15.7 with the same names and values.

tensor2tensor changed `transformer_base` and `transformer_big` after the paper.
Here these names have the paper's values, and `_v3` marks the later values. In
tensor2tensor, `batch_size` is the positions of one pass on one GPU, which is
`batch_tokens` divided by `gradient_accumulation_steps` here. The sets for
several GPUs have the update size of eight GPUs on any number of devices.
"""

from t2t_lite.hparam import HParams
from t2t_lite.hparams.transformer import transformer_base
from t2t_lite.registry import register_hparams


@register_hparams
def transformer_base_v3() -> HParams:
    """tensor2tensor's third base model, its current `transformer_base`.

    Pre-norm allows twice the paper's learning rate, after 8000 updates of
    warm-up. Dropout of attention weights and in the feed-forward network adds
    regularization, and beta2 = 0.997 averages squared gradients over more
    updates. Position signals are all sines, then all cosines.
    """
    return transformer_base().replace(
        norm_placement="pre",
        position_encoding="concatenated",
        target_space_embedding=True,
        shift_across_segments=True,  # in packed rows
        attention_dropout=0.1,
        relu_dropout=0.1,
        batch_tokens=8 * 4096,  # eight GPUs
        learning_rate=2.0,
        warmup_steps=8000,
        schedule_offset=1,  # the learning rate of the first update is 0
        adam_beta2=0.997,
        train_steps=250000,  # default of tensor2tensor's trainer
        extra_decode_length=100,  # default of tensor2tensor's decoder
        max_source_length=2048,  # no limit in tensor2tensor
    )


@register_hparams
def transformer_base_v2() -> HParams:
    """tensor2tensor's second base model: the third with beta2 = 0.98."""
    return transformer_base_v3().replace(schedule_offset=0, adam_beta2=0.98)


@register_hparams
def transformer_base_v1() -> HParams:
    """tensor2tensor's first base model: the paper's, with all sines first."""
    return transformer_base_v3().replace(
        norm_placement="post",
        attention_dropout=0.0,
        relu_dropout=0.0,
        learning_rate=1.0,
        warmup_steps=4000,
        schedule_offset=0,
        adam_beta2=0.98,
    )


@register_hparams
def transformer_base_single_gpu() -> HParams:
    """tensor2tensor's base model for one GPU: 1024 positions per update.

    The learning rate does not depend on `hidden_size`.
    """
    return transformer_base_v3().replace(
        batch_tokens=1024,
        gradient_accumulation_steps=1,
        schedule="inverse_sqrt",
        learning_rate=0.1 * 16000**-0.5,  # a peak rate of 0.0008
        warmup_steps=16000,
    )


@register_hparams
def transformer_big_single_gpu() -> HParams:
    """tensor2tensor's big model for one GPU: 2048 positions per update."""
    return transformer_base_v3().replace(
        hidden_size=1024,
        filter_size=4096,
        num_heads=16,
        batch_tokens=2048,
        gradient_accumulation_steps=1,
        warmup_steps=16000,
    )


@register_hparams
def transformer_relative() -> HParams:
    """tensor2tensor's base model with relative positions, arXiv:1803.02155."""
    return transformer_base_v3().replace(
        position_encoding="none", max_relative_position=20
    )


@register_hparams
def transformer_relative_big() -> HParams:
    """tensor2tensor's big model with relative positions, arXiv:1803.02155."""
    return transformer_base_v3().replace(
        hidden_size=1024,
        filter_size=4096,
        num_heads=16,
        position_encoding="none",
        max_relative_position=20,
        residual_dropout=0.3,
        batch_tokens=8 * 2048,
        average_checkpoints=20,
    )


@register_hparams
def transformer_tiny() -> HParams:
    """tensor2tensor's smallest model: 2 layers, d_model 128, one GPU."""
    return transformer_base_v3().replace(
        hidden_size=128,
        filter_size=512,
        num_heads=4,
        num_hidden_layers=2,
        batch_tokens=4096,
        gradient_accumulation_steps=1,
    )
