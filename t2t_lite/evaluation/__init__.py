"""Metrics: pure functions on lists of strings."""
