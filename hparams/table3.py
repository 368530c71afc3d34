"""The other rows of table 3 of arXiv:1706.03762, each a step from the base.

The names are tensor2tensor's, where it has one. `t2t-lite-registry --table3`
puts their sizes beside the paper's.
"""

from t2t_lite.hparam import HParams
from t2t_lite.hparams.transformer import transformer_base
from t2t_lite.registry import register_hparams

# Millions of parameters by table 3; the rows without a number of their own
# have the base model's.
PAPER_MILLIONS = {
    "transformer_base": 65,
    "transformer_h1": 65,
    "transformer_h4": 65,
    "transformer_h16": 65,
    "transformer_h32": 65,
    "transformer_k16": 58,
    "transformer_k32": 60,
    "transformer_l2": 36,
    "transformer_l4": 50,
    "transformer_l8": 80,
    "transformer_hs256": 28,
    "transformer_hs1024": 168,
    "transformer_ff1024": 53,
    "transformer_ff4096": 90,
    "transformer_dr0": 65,
    "transformer_dr2": 65,
    "transformer_ls0": 65,
    "transformer_ls2": 65,
    "transformer_learned_positions": 65,
    "transformer_big": 213,
}
# The shared vocabulary of section 5.1, "about 37000 tokens".
PAPER_VOCAB_SIZE = 37000


@register_hparams
def transformer_h1() -> HParams:
    """Table 3, row (A): 1 head of d_k = d_v = 512."""
    return transformer_base().replace(
        num_heads=1, key_depth=512, value_depth=512
    )


@register_hparams
def transformer_h4() -> HParams:
    """Table 3, row (A): 4 heads of d_k = d_v = 128."""
    return transformer_base().replace(
        num_heads=4, key_depth=128, value_depth=128
    )


@register_hparams
def transformer_h16() -> HParams:
    """Table 3, row (A): 16 heads of d_k = d_v = 32."""
    return transformer_base().replace(
        num_heads=16, key_depth=32, value_depth=32
    )


@register_hparams
def transformer_h32() -> HParams:
    """Table 3, row (A): 32 heads of d_k = d_v = 16."""
    return transformer_base().replace(
        num_heads=32, key_depth=16, value_depth=16
    )


@register_hparams
def transformer_k16() -> HParams:
    """Table 3, row (B): keys of d_k = 16, values as in the base model."""
    return transformer_base().replace(key_depth=16)


@register_hparams
def transformer_k32() -> HParams:
    """Table 3, row (B): keys of d_k = 32, values as in the base model."""
    return transformer_base().replace(key_depth=32)


@register_hparams
def transformer_l2() -> HParams:
    """Table 3, row (C): 2 layers."""
    return transformer_base().replace(num_hidden_layers=2)


@register_hparams
def transformer_l4() -> HParams:
    """Table 3, row (C): 4 layers."""
    return transformer_base().replace(num_hidden_layers=4)


@register_hparams
def transformer_l8() -> HParams:
    """Table 3, row (C): 8 layers."""
    return transformer_base().replace(num_hidden_layers=8)


@register_hparams
def transformer_hs256() -> HParams:
    """Table 3, row (C): d_model 256, d_k = d_v = 32."""
    return transformer_base().replace(
        hidden_size=256, key_depth=32, value_depth=32
    )


@register_hparams
def transformer_hs1024() -> HParams:
    """Table 3, row (C): d_model 1024, d_k = d_v = 128."""
    return transformer_base().replace(
        hidden_size=1024, key_depth=128, value_depth=128
    )


@register_hparams
def transformer_ff1024() -> HParams:
    """Table 3, row (C): d_ff 1024."""
    return transformer_base().replace(filter_size=1024)


@register_hparams
def transformer_ff4096() -> HParams:
    """Table 3, row (C): d_ff 4096."""
    return transformer_base().replace(filter_size=4096)


@register_hparams
def transformer_dr0() -> HParams:
    """Table 3, row (D): no dropout."""
    return transformer_base().replace(residual_dropout=0.0)


@register_hparams
def transformer_dr2() -> HParams:
    """Table 3, row (D): dropout 0.2."""
    return transformer_base().replace(residual_dropout=0.2)


@register_hparams
def transformer_ls0() -> HParams:
    """Table 3, row (D): no label smoothing."""
    return transformer_base().replace(label_smoothing=0.0)


@register_hparams
def transformer_ls2() -> HParams:
    """Table 3, row (D): label smoothing 0.2."""
    return transformer_base().replace(label_smoothing=0.2)


@register_hparams
def transformer_learned_positions() -> HParams:
    """Table 3, row (E): learned positions instead of sinusoids."""
    return transformer_base().replace(position_encoding="learned")
