"""Parameters of parametrized tests."""

import pytest


def slow(*values):
    """Return values of a parameter set that only `make slowtest` runs."""
    return pytest.param(*values, marks=pytest.mark.slow)
