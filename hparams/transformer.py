"""The models of "Attention Is All You Need" (arXiv:1706.03762)."""

from t2t_lite.hparam import HParams
from t2t_lite.registry import register_hparams


@register_hparams
def transformer_base() -> HParams:
    """The base model of arXiv:1706.03762, table 3, row "base"."""
    return HParams(
        hidden_size=512,  # d_model
        filter_size=2048,  # d_ff
        num_heads=8,
        num_hidden_layers=6,
        residual_dropout=0.1,
        label_smoothing=0.1,
        batch_tokens=25000,  # positions of one update, each side, all replicas
        gradient_accumulation_steps=8,  # passes per update
        warmup_steps=4000,  # optimizer updates
        train_steps=100000,
        average_checkpoints=5,
    )


@register_hparams
def transformer_big() -> HParams:
    """The big model of arXiv:1706.03762, table 3, row "big"."""
    return transformer_base().replace(
        hidden_size=1024,
        filter_size=4096,
        num_heads=16,
        residual_dropout=0.3,
        train_steps=300000,
        average_checkpoints=20,
    )


@register_hparams
def transformer_big_enfr() -> HParams:
    """The big model for English to French (section 6.1): less dropout."""
    return transformer_big().replace(residual_dropout=0.1)
