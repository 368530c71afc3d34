"""Lengths of the sides of pairs, which are similar as in translations."""

import numpy as np


def random_lengths(examples, longest=40, seed=0):
    """Return the lengths of the sources and of the targets."""
    generator = np.random.default_rng(seed)
    sources = generator.integers(2, longest + 1, examples)
    targets = np.clip(sources + generator.integers(-3, 4, examples), 2, longest)
    return sources, targets
