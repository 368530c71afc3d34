"""The hparams sets that come with t2t-lite; importing registers them."""

from t2t_lite.hparams import small, table3, transformer

__all__ = ["small", "table3", "transformer"]
