"""A problem of your own: importing this package registers what it declares."""

from . import hparams, problem

__all__ = ["hparams", "problem"]
