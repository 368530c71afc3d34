"""A set of hyperparameters for a very small problem."""

from t2t_lite.hparams.small import transformer_toy
from t2t_lite.registry import register_hparams


@register_hparams
def transformer_roman():
    """`transformer_toy`, trained for longer on short sequences."""
    return transformer_toy().replace(
        max_length=32,  # tokens per side
        residual_dropout=0.0,  # 3,599 pairs, each with one correct target
        train_steps=1500,  # optimizer updates
    )
