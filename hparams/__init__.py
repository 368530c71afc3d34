"""The built-in hparams sets; importing this package registers them."""

from t2t_lite.hparams import parsing, small, table3, tensor2tensor, transformer

__all__ = ["parsing", "small", "table3", "tensor2tensor", "transformer"]
