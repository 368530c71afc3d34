"""Tolerances that float32 arithmetic gives on every processor.

The kernel that multiplies two matrices depends on the processor, on the number
of threads and on the shape of the batch, and each adds the terms in another
order. One logit of size 10 differs by up to 1e-5 then; a score is a sum of many
log-probabilities, so its error grows with its size, too.
"""

import os

import numpy as np
import pytest

RELATIVE = 1e-5  # about 80 units in the last place of float32
ABSOLUTE = 1e-4  # what is left where a score near zero comes from large logits

# TensorFlow asks the processor, not oneDNN, whether it has bfloat16 products.
requires_bfloat16 = pytest.mark.skipif(
    "ONEDNN_MAX_CPU_ISA" in os.environ,
    reason="oneDNN with a restricted instruction set has no bfloat16 products, "
    "and TensorFlow then ends the process",
)


def approx_score(expected):
    """Return what equals `expected` within the rounding of a float32 score."""
    return pytest.approx(expected, rel=RELATIVE, abs=ABSOLUTE)


def assert_scores_close(actual, expected):
    """Assert that arrays of scores or logits are equal within rounding."""
    np.testing.assert_allclose(actual, expected, RELATIVE, ABSOLUTE)
