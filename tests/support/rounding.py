"""Tolerances of float32 results on any processor.

The kernel of a matrix product depends on the processor, the number of threads
and the shape of the batch, and kernels add terms in different orders. So a
logit of size 10 differs by up to 1e-5. A score is a sum of log-probabilities,
so its error grows with its size.
"""

import os

import numpy as np
import pytest

RELATIVE = 1e-5  # about 80 units in the last place of float32
ABSOLUTE = 1e-4  # for a score near zero that comes from large logits

# TensorFlow queries the processor, not oneDNN, for bfloat16 products.
requires_bfloat16 = pytest.mark.skipif(
    "ONEDNN_MAX_CPU_ISA" in os.environ,
    reason="oneDNN with a restricted instruction set has no bfloat16 products, "
    "and TensorFlow then ends the process",
)


def approx_score(expected):
    """Return `expected` with the tolerance of a float32 score."""
    return pytest.approx(expected, rel=RELATIVE, abs=ABSOLUTE)


def assert_scores_close(actual, expected):
    """Assert that arrays of scores or logits are equal within rounding."""
    np.testing.assert_allclose(actual, expected, RELATIVE, ABSOLUTE)
