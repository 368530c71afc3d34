"""Constituency parsing: trees, linearization, constraints, bracket F1."""
