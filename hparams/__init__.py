"""The hparams sets that come with t2t-lite; importing registers them."""

from t2t_lite.hparams import small, transformer

__all__ = ["small", "transformer"]
