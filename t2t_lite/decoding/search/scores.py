"""Scores of hypotheses, as numbers or tensors of any backend."""

from typing import Any

# The log-probability of a hypothesis that does not exist. It is finite because
# differences of infinities are NaN, and NaN is not valid JSON.
NEG_INF = -1e9


def is_possible(log_probs: Any) -> Any:
    """Return whether log-probabilities or scores belong to real hypotheses."""
    return log_probs > 0.01 * NEG_INF


def length_penalty(length: Any, alpha: float) -> Any:
    """Return the divisor of log-probabilities: ((5 + length) / 6) ** alpha.

    Args:
      length: number of generated tokens, EOS included; a number or float32.
      alpha: at least 0; 0 disables the penalty. The paper uses 0.6
        (arXiv:1609.08144, equation 14).
    """
    return ((5.0 + length) / 6.0) ** alpha
