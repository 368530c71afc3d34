"""The hparams sets that come with t2t-lite; importing registers them."""

from t2t_lite.hparams import (
    parsing,
    small,
    table3,
    tensor2tensor,
    transformer,
)

__all__ = ["parsing", "small", "table3", "tensor2tensor", "transformer"]
