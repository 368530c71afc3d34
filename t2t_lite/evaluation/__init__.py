"""Metrics: functions on lists of strings."""
