"""A problem of your own, which is registered by importing this package."""

from . import hparams, problem

__all__ = ["hparams", "problem"]
